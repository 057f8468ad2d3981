# On a fresh clone: `make contracts` runs the contracts on real engines, `make test` runs the tests.
# Both build what they need first; a second run finds it built.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# Tests start hundreds of processes: where this is set, each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
ENGINE_PYTHON := 3.11

.PHONY: help contracts test test-fresh compat gpu-check gpu-rehearsal lint bench environments base

help:
	@echo 'make contracts   run the contracts of this repository on the real engines'
	@echo 'make test        run the tests (test-fresh: with nothing kept of what engines did)'
	@echo 'make compat      run pytest versions and plugins beside ours (MATRIX=--reduced: three of them)'
	@echo 'make gpu-check   run the contracts on a GPU, and print a table (gpu-rehearsal: on a CPU)'
	@echo 'make lint        ruff and mypy --strict'
	@echo 'make bench       measure the budgets'

contracts: environments
	$(BIN)/python -m pytest --contracts

test: environments
	$(BIN)/python -m pytest tests/unit tests/plugin -n 2
	$(BIN)/python -m pytest tests/engines

# A later `make test` reads what the engines did before, as any run does; this asks them again.
test-fresh:
	rm -rf .eagle_contracts/tests
	@$(MAKE) test

compat: $(VENV)/.installed
	$(BIN)/python -m tests.compat.matrix $(MATRIX)

gpu-check: environments
	$(BIN)/python -m tests.gpu.check

gpu-rehearsal: environments
	$(BIN)/python -m tests.gpu.check --rehearse

lint: base
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bench: environments
	$(BIN)/python -m pytest tests/benchmarks -o python_files='bench_*.py' -s

environments: $(VENV)/.installed
	@$(BIN)/eagle-contracts env sync --base $(VENV)

# mypy reads torch's own annotations, so linting needs the base too.
base: $(VENV)/.installed
	@$(BIN)/eagle-contracts env sync base --base $(VENV)

$(VENV)/.installed: contracts/locks/dev.txt pyproject.toml | $(VENV)/.created
	@echo 'Installing the development tools into $(VENV).'
	@$(BIN)/python -m pip install --quiet --quiet --no-deps --requirement contracts/locks/dev.txt
	@$(BIN)/python -m pip install --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# A candidate is run, not only looked up: version managers leave launchers for interpreters that are not installed.
$(VENV)/.created:
	@is_right='import sys; sys.exit(sys.version_info[:2] != tuple(map(int, "$(ENGINE_PYTHON)".split("."))))'; \
	for candidate in python$(ENGINE_PYTHON) python3; do \
		if "$$candidate" -c "$$is_right" 2>/dev/null; then \
			echo "Creating $(VENV) with $$(command -v $$candidate)."; \
			"$$candidate" -m venv $(VENV); \
			touch $@; \
			exit 0; \
		fi; \
	done; \
	found=$$(python3 --version 2>/dev/null || echo 'no python3'); \
	echo "The engines' wheels are built for Python $(ENGINE_PYTHON); this machine has $$found." >&2; \
	echo 'Install Python $(ENGINE_PYTHON) (so that `python$(ENGINE_PYTHON)` runs), then run make again.' >&2; \
	exit 1
