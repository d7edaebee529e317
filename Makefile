# make lab    JupyterLab on the first notebook (sets .venv up first; needs only Python and make)
# make test   every test, the notebooks and the browser included
# make lint   style, types, import order
# make fix    what lint can repair by itself
# make bench  speed, printed
# make env    .venv with every extra; the others call it when they need it

PYTHON ?= python3
VENV ?= .venv
PORT ?= 8888
NOTEBOOK ?= 00-start-here.ipynb
# Whole files are dealt out, so that what a file sets up is set up once; in their order, since the
# browser's, few tests but long ones, would otherwise come last and on one processor.
PYTEST_ARGS ?= --numprocesses=2 --dist=loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles what it imports, a small part of all that is installed.
INSTALL := $(PIP) install --no-compile --editable
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
HAS_SCREEN := $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname))
NO_BROWSER := $(if $(HAS_SCREEN),,--no-browser)

.PHONY: lab test lint fix bench env

lab: $(VENV)/.lab
	$(BIN)/jupyter lab $(AS_ROOT) $(NO_BROWSER) --port=$(PORT) \
	  --ServerApp.root_dir=notebooks --LabApp.default_url=/lab/tree/$(NOTEBOOK)

test: env
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright --pythonpath $(BIN)/python

fix: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find notebooks -name '*.ipynb' -exec $(BIN)/nbstripout {} +

bench: env
	set -e; for bench in tests/bench/bench_*.py; do $(BIN)/python $$bench; done

env: $(VENV)/.env

# The stamps are rebuilt only when pyproject.toml changes.
$(VENV)/.lab: pyproject.toml | $(BIN)/python
	$(INSTALL) .
	touch $@

$(VENV)/.env: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test,peers]'
	touch $(VENV)/.lab $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo 'Python lacks venv: on Debian or Ubuntu, apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
