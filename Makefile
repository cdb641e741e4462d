# Two commands are enough: `make run` and `make test`. They need Python >= 3.10 and make.
# Both build what they need into .venv once and are quick from then on. `make help` lists the rest.

PYTHON ?= python3
PROMPT ?= Write a Python function for each of the four basic operations: add, subtract, multiply, divide.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# The prompt travels through the environment, literally, so that quotes and dollar signs survive.
override PROMPT := $(value PROMPT)
export PROMPT

# The install is editable: edits under src/ need nothing, these need a new build.
SOURCES := pyproject.toml $(wildcard CMakeLists.txt) $(shell find csrc -type f 2>/dev/null)
INSTALLED := $(VENV)/.stamp-base
INSTALLED_DEV := $(VENV)/.stamp-dev

.PHONY: run test lint check bench sanitize clean help
.DEFAULT_GOAL := help

run: $(INSTALLED) ## Generate from PROMPT="…" with the built-in model (ARGS="…" instead of --compare)
	@$(BIN)/slipstream generate $(or $(ARGS),--compare) -- "$$PROMPT"

test: $(INSTALLED_DEV) ## Run the test suite
	@$(BIN)/python -m pytest $(ARGS)

lint: $(INSTALLED_DEV) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

check: lint test ## Everything that has to be green before a commit

bench: $(INSTALLED_DEV) ## Measure this machine (ARGS="…" go to benchmarks/run.py)
	@$(BIN)/python benchmarks/run.py $(ARGS)

sanitize: $(INSTALLED_DEV) ## Kernel tests under AddressSanitizer and UBSan
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/sanitize.sh $(ARGS)

clean: ## Remove everything that make built; downloaded models stay in the cache
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

$(INSTALLED): $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# The package is here already, so this adds only what the extra names and builds nothing again.
$(INSTALLED_DEV): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'slipstream[dev]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Slipstream needs Python >= 3.10; name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) lacks the venv module (on Debian and Ubuntu: the package python3-venv)." >&2; \
	  echo "Install it or name another Python: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
