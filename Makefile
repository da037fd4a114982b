# Shunter: every recipe does the set-up it needs. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || { echo 'Shunter needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

setup: $(VENV)/.ready ## create .venv and install everything

demo: setup ## train a small language model end to end on this machine
	$(RUN)/python examples/demo.py

test: setup ## the tests
	$(RUN)/python -m pytest -m 'not slow' -n auto --maxprocesses 4 --dist loadfile

nightly: setup ## the tests that take many minutes, and those that need vendors' own clients
	$(RUN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[vendors]'
	$(RUN)/python -m pytest -m nightly

fmt: setup ## format the code
	$(RUN)/ruff format . && $(RUN)/ruff check --fix .

lint: setup ## ruff, import contracts
	$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/lint-imports

type: setup ## mypy strict and pyright
	$(RUN)/mypy && $(RUN)/pyright

generate: setup ## write openapi.json, the JSON Schemas and the generated pages anew
	$(RUN)/python -m shunter_schemas.generate && $(RUN)/python -m shunter_service.openapi && $(RUN)/python docs/generate

docs: setup ## build the documentation into site/, without the network
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --quiet
	@echo 'site/ is built; read it: $(RUN)/python -m http.server --directory site --bind 127.0.0.1'

clean: ## remove the environment and the demo's data
	rm -rf $(VENV) .shunter dist build site

.PHONY: help setup demo test nightly fmt lint type generate docs clean
