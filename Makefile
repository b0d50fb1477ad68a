# gangline's developer commands. `make setup` first; it takes seconds when repeated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOG ?= sqlite

.PHONY: setup
setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt Makefile
	command -v uv >/dev/null || $(PYTHON) -m pip install --quiet uv
	uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt -e '.[server,train,dev]'
	touch $@
