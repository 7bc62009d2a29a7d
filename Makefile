# Every target sets up what it needs in .venv; only Python >= 3.10 is expected to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
# A stale constraint must not keep a user's own environment: `make demo CONSTRAINTS=` leaves it out.
CONSTRAINTS ?= -c constraints.txt

.PHONY: help demo test check format bench docs clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed, this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing the package with its models (torch is large: several minutes on a slow line) ..."
	$(PIP) $(CONSTRAINTS) -e '.[models,eval]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) $(CONSTRAINTS) --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) $(CONSTRAINTS) --group docs
	@touch $@

demo: $(VENV)/.run ## Ingest the example help centre, answer five questions, print the metrics
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev ## Run the whole suite
	$(BIN)/python -m pytest

check: $(VENV)/.dev ## Check format, lint, types and the unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit tests/test_repository.py -m "not integration and not slow" -q

format: $(VENV)/.dev ## Format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## Run every benchmark side by side (an hour on two cores; QUICK=1 for minutes)
	$(BIN)/python -m benchmarks.run $(if $(QUICK),--quick)

docs: $(VENV)/.docs ## Build the documentation into docs/_build
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) docs/_build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-store
