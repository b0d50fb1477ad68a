# gangline's developer commands. `make setup` first; it takes seconds when repeated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv comes from PyPI, into the environment that it then fills, where the machine has none.
UV = $(shell command -v uv || echo $(BIN)/uv)
LOG ?= sqlite
# Tests share two cores with the processes that they start.
JOBS ?= 2
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadgroup

.PHONY: help setup demo test check lint bench
help:
	@echo 'make demo   a real training job on this machine, killed and resumed (LOG=sqlite or kafka)'
	@echo 'make test   every test'
	@echo 'make check  lint, types and the quick tests'
	@echo 'make lint   style, formatting, types, layering, purity of the core'
	@echo 'make bench  every benchmark'

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt Makefile
	command -v uv >/dev/null || { $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --constraint constraints.txt uv; }
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt -e '.[server,train,report,dev]'
	touch $@

demo: setup
	$(BIN)/python examples/digits/demo.py --log $(LOG)

test: setup
	$(PYTEST)

check: lint
	$(PYTEST) -m 'not slow'

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/pytest -q tests/test_style.py tests/test_core_purity.py

bench: setup
	$(BIN)/python -m benchmarks all
