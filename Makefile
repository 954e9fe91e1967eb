# Everything works in a fresh clone; `make` alone lists the targets.
PYTHON ?= python3
VENV   := .venv
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv check images servers test test-long bench demo clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

venv: $(STAMP)  ## make .venv and install the project with its test tools

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable '.[test]'
	@touch $@

check: $(STAMP)  ## lint, types and unit tests, without servers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest tests/unit --quiet

images:  ## get Docker running if it can and build the server images that are missing
	docker/up.sh
	docker/images/build.sh

# Where there can be no servers, CI stops here; anybody else is told, and the server tests are skipped.
servers:
	@$(MAKE) --no-print-directory images || { \
	    test "$$CI" != true || exit 1; \
	    echo "No servers can be started here: the server tests will be skipped."; }

test: $(STAMP) servers  ## the whole test suite, server tests included where Docker can be had
	$(VENV)/bin/pytest

test-long: $(STAMP) servers  ## the whole test suite in its long forms
	$(VENV)/bin/pytest --long

bench: $(STAMP)  ## ours and its peers over the same logs, side by side; ARGS="--quick" shows that it works
	docker/up.sh
	docker/images/build.sh mysql:9.7 mariadb:11.8
	$(VENV)/bin/pip install --quiet --editable '.[test,bench]'
	$(VENV)/bin/python -m tests.benchmarks $(ARGS)

demo: $(STAMP)  ## start a MySQL in Docker, write rows into it and print the changes as they arrive
	docker/up.sh
	docker/images/build.sh mysql:9.7
	$(VENV)/bin/python -m tests.demo

clean:  ## remove .venv and what tools have left behind; images stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find protocol replica tests -name __pycache__ -type d -prune -exec rm -rf {} +
