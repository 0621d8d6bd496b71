# Two commands: `make run` starts one node, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
DATA ?= ./tidelog-data
ARGS ?=
BASE ?= HEAD
PYTEST := $(BIN)/python -m pytest -m "not slow and not cluster and not kafka_tools" -rR --rerun-show-tracebacks
SPARK_TESTS := tests/spark tests/docs tests/examples tests/cli/test_pipeline.py tests/cli/test_lake.py
SIMULATION_TESTS := tests/testing/simulation
BROKER_TESTS := tests $(foreach part,$(SPARK_TESTS),--ignore=$(part))

.PHONY: run test lint types layers unit unit-broker unit-simulation unit-spark test-pythons \
	explore chaos chaos-cluster fuzz simulate simulate-consensus simulate-cluster test-cluster \
	test-kafka-clients test-kafka-tools bench bench-cluster bench-change bench-spark demo docs clean

run: $(CORE)
	$(BIN)/tidelog up --data $(DATA) $(ARGS)

test: lint types layers unit

# A node needs neither Spark nor the tools of the tests.
$(CORE): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $(CORE)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark,connect,iceberg]'
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

# A test over real programs in real time (marked `realtime`) may meet a slow moment of the machine: it
# gets one more try, and the summary names it. A test that fails twice fails the run.
# Broker, simulator and Spark are tested side by side: tests of real programs mostly wait.
unit: $(READY)
	$(MAKE) --jobs=3 --output-sync=target unit-broker unit-simulation unit-spark

unit-broker: $(READY)
	$(PYTEST) $(BROKER_TESTS) --ignore=$(SIMULATION_TESTS) $(ARGS)

unit-simulation: $(READY)
	$(PYTEST) $(SIMULATION_TESTS) $(ARGS)

unit-spark: $(READY)
	$(PYTEST) $(SPARK_TESTS) $(ARGS)

# The broker's half on every Python from 3.11 on that the machine has, each with its own packages.
PYTHONS ?= $(foreach minor,11 12 13 14,$(if $(shell command -v python3.$(minor)),3.$(minor)))
test-pythons:
	$(if $(PYTHONS),,$(error no python3.11 or newer is on the PATH))
	for version in $(PYTHONS); do \
		test -x .venv-$$version/bin/python || python$$version -m venv .venv-$$version || exit 1; \
		.venv-$$version/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' \
			|| exit 1; \
		echo "Python $$version"; \
		.venv-$$version/bin/python -m pytest -m "not slow and not cluster and not kafka_tools" -rR --rerun-show-tracebacks $(BROKER_TESTS) $(ARGS) \
			|| exit 1; \
	done

# The property tests with new examples, and many of them.
explore: $(READY)
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -m "not slow and not cluster and not kafka_tools" --timeout 7200 \
		tests/protocol tests/storage tests/cluster tests/coordinator tests/testing $(ARGS)

# Hundreds of kills and power cuts, long storms, exactly-once under faults.
chaos: $(READY)
	$(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

# Clusters of real processes in network namespaces, under kills, power cuts, partitions, full disks and
# clock jumps, with librdkafka clients whose history is checked; and the last replica standing.
chaos-cluster: $(READY)
	$(BIN)/python -m tests.chaos.cluster.run $(if $(ARGS),$(ARGS),--rounds 100 --seed 1)
	$(if $(ARGS),,$(BIN)/python -m tests.chaos.cluster.run --rounds 50 --nodes 5 --voters 5 --seed 1001)
	$(if $(ARGS),,$(BIN)/python -m tests.chaos.cluster.last_replica)

# The real node in a simulated world: 20,000 seeds on all cores. ARGS="--minutes 480" explores new
# seeds for a night.
simulate: $(READY)
	$(BIN)/tidelog simulate $(if $(ARGS),$(ARGS),--count 20000)

# The metadata quorum alone: a million schedules on all cores, or as ARGS says.
simulate-consensus: $(READY)
	$(BIN)/tidelog simulate --consensus $(if $(ARGS),$(ARGS),--count 1000000)

# Clusters of three to seven real nodes in a simulated world: 10,000 seeds on all cores.
simulate-cluster: $(READY)
	$(BIN)/tidelog simulate --cluster $(if $(ARGS),$(ARGS),--count 10000)

# The Spark source, sink and lake on a standalone cluster: a master and two workers on loopback.
test-cluster: $(READY)
	$(BIN)/python -m pytest -m cluster tests/spark/cluster $(ARGS)

# Apache Kafka's own tests of its Java clients (needs a JDK and mvn); see docs/testing.md.
test-kafka-clients: $(READY)
	$(BIN)/python -m tests.kafka_clients.run $(ARGS)

# Apache Kafka's own command line tools against a cluster (needs java and mvn); see docs/testing.md.
test-kafka-tools: $(READY)
	$(BIN)/python -m pytest -m kafka_tools tests/kafka_tools $(ARGS)

# A million malformed frames against a running node.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz.run $(ARGS)

# Tidelog beside Apache Kafka (needs java and mvn); the page and the plot go to docs/benchmarks.
bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks.compare $(if $(findstring --quick,$(ARGS))$(findstring --only,$(ARGS)),,--docs docs/benchmarks) $(ARGS)

# Clusters of three nodes of each (needs java and mvn); the page and the plot go to docs/benchmarks.
bench-cluster: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks.cluster.compare $(if $(findstring --quick,$(ARGS))$(findstring --only,$(ARGS)),,--docs docs/benchmarks) $(ARGS)

# This source tree beside the one at BASE (a git reference or a checkout), by the same protocol, in
# about three minutes. BASE=HEAD measures what is not committed yet.
bench-change: $(READY)
	$(BIN)/python -m benchmarks.compare --against $(BASE) \
	    --only produce,consume,small,one-record,latency --scale 0.5 --warm-seconds 10 $(ARGS)

# The Spark source and sink beside a bare Arrow source and Spark's own Kafka source.
bench-spark: $(READY)
	$(BIN)/python -m benchmarks.spark.run --docs docs/benchmarks $(ARGS)

# A shop's events through a pipeline into a lake and back, in under three minutes.
demo: $(READY)
	$(BIN)/python -m examples.shop.run $(ARGS)

docs: $(READY)
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
