# Two commands: `make run` starts one node, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= ./tidelog-data
ARGS ?=

.PHONY: run test lint types layers unit chaos fuzz bench docs clean

run: $(READY)
	$(BIN)/tidelog up --data $(DATA) $(ARGS)

test: lint types layers unit

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark,connect]'
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

# A test over real processes and real time may meet a slow moment of the machine: it gets one more
# try, and the summary names it. A test that fails twice fails the run.
unit: $(READY)
	$(BIN)/python -m pytest -m "not slow" --reruns 1 -rR $(ARGS)

# Hundreds of kills and power cuts, long storms, exactly-once under faults.
chaos: $(READY)
	$(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

# A million malformed frames against a running node.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz.run $(ARGS)

# Tidelog beside Apache Kafka (needs java and mvn); the page and the plot go to docs/benchmarks.
bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks.compare --docs docs/benchmarks $(ARGS)

docs: $(READY)
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
