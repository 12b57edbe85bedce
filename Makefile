# Every target does its own set-up: a virtual environment in $(VENV), installed once and again when
# pyproject.toml or requirements/ change. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
VENV_NUMPY2 ?= .venv-numpy2
WORKERS ?= 2
# The first of these that runs and is new enough; Procgen's original engine has builds for 3.11 and 3.12.
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints.txt
KEY := $(shell cat pyproject.toml requirements/* | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(KEY)
INSTALLED_NUMPY2 := $(VENV_NUMPY2)/.installed-$(KEY)

# One thread a process: the tests run in $(WORKERS) processes.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: help install run tabular test check check-numpy2 lint coverage format bench clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

install: $(INSTALLED) ## make the virtual environment and install everything, development tools included

$(INSTALLED):
	@[ -n "$(PYTHON)" ] || { echo "ede: Python 3.11 or newer is needed, with its venv module; name one with make PYTHON=…" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --group dev --editable '.[all,wandb]'
	$(BIN)/pip install --quiet --no-deps --requirement requirements/envpool.txt
	rm -f $(VENV)/.installed-*
	touch $@

# Carries on where it was stopped; RUN names another folder for another run.
RUN ?= runs/bigfish

run: $(INSTALLED) ## the main job: train EDE on Procgen's bigfish for about ten minutes, then show an episode
	if [ -e $(RUN)/DONE ]; then echo "$(RUN) is finished; make run RUN=runs/another trains anew."; \
	elif [ -e $(RUN)/config.json ]; then env -u OMP_NUM_THREADS $(BIN)/ede resume $(RUN); \
	else env -u OMP_NUM_THREADS $(BIN)/ede train procgen/bigfish --out $(RUN); fi
	env -u OMP_NUM_THREADS $(BIN)/ede watch $(RUN) --out $(RUN)/watch.html

tabular: $(INSTALLED) ## the paper's tabular study with its figures, in out/tabular
	env -u OMP_NUM_THREADS $(BIN)/ede tabular --out out/tabular

test: $(INSTALLED) ## every test
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(COVERAGE)

lint: $(INSTALLED) ## format, lint and types, nothing changed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

coverage: ## every test, and how much of the code they reach
	@$(MAKE) --no-print-directory test COVERAGE='--cov --cov-report=term'

check: ## what CI runs: lint, the core's tests on NumPy 2, every test with coverage; all of it even if one fails
	@$(MAKE) --no-print-directory --keep-going lint check-numpy2 coverage

check-numpy2: $(INSTALLED_NUMPY2) ## the core alone, on NumPy 2: the tests listed in tests/core.txt
	$(VENV_NUMPY2)/bin/pytest -n $(WORKERS) --dist worksteal -p no:cacheprovider $$(grep -v '^#' tests/core.txt)

$(INSTALLED_NUMPY2): $(INSTALLED)
	$(BIN)/python -m venv $(VENV_NUMPY2)
	sed -E '/^numpy==/d' $(CONSTRAINTS) > $(VENV_NUMPY2)/constraints.txt
	$(VENV_NUMPY2)/bin/pip install --quiet 'pip>=25.1'
	$(VENV_NUMPY2)/bin/pip install --quiet --constraint $(VENV_NUMPY2)/constraints.txt torch
	$(VENV_NUMPY2)/bin/pip install --quiet --constraint $(VENV_NUMPY2)/constraints.txt --group test --editable . 'numpy==2.4.6'
	rm -f $(VENV_NUMPY2)/.installed-*
	touch $@

format: $(INSTALLED) ## rewrite the code in the project's format, mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(INSTALLED) ## measure this machine: every script in benchmarks/
	for script in benchmarks/*.py; do echo "== $$script"; env -u OMP_NUM_THREADS $(BIN)/python "$$script"; done

clean: ## remove the virtual environments and every cache
	rm -rf $(VENV) $(VENV_NUMPY2) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
