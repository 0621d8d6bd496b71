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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
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

docs: $(READY)
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
