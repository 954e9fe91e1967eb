# Everything works in a fresh clone; `make` alone lists the targets.
PYTHON ?= python3
VENV   := .venv
STAMP  := $(VENV)/.installed
# The package alone: it is installed in seconds.
PLAIN  := $(VENV)/.installed-plain
# Where the demo's changes come from: embedded (a recorded log, without Docker), or an image such as mysql:9.7.
SERVER ?= embedded
# Tests run in as many processes as there are processors, each with servers of its own; PARALLEL= for one after another.
PARALLEL ?= -n auto --maxprocesses 3 --dist worksteal
# Where it is set, as in many images, each process of the tests would compile all modules anew: a third of the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv check images image servers test test-long test-pythons test-versions bench bench-spark demo pipeline release clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

venv: $(STAMP)  ## make .venv and install the project with its test tools

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable '.[test]'
	@touch $@

check: $(STAMP)  ## lint, types and a sample of the unit tests' cases, without servers: in about a minute
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest $(PARALLEL) tests/unit --quick --quiet

images:  ## get Docker running if it can and build the server images that are missing
	docker/up.sh
	docker/images/build.sh

image:  ## build the image of the command mysql-replica: no root, read-only, with a health check
	docker/up.sh
	docker/image.sh

# Where there can be no servers, CI stops here; anybody else is told, and the server tests are skipped.
servers:
	@$(MAKE) --no-print-directory images || { \
	    test "$$CI" != true || exit 1; \
	    echo "No servers can be started here: the server tests will be skipped."; }

test: $(STAMP) servers  ## the test suite but for its long tests, server tests included where Docker can be had
	$(VENV)/bin/pytest $(PARALLEL)

test-long: $(STAMP) servers  ## the whole test suite, in its long forms
	$(VENV)/bin/pytest $(PARALLEL) --long

test-pythons: $(STAMP)  ## the unit tests on each Python from 3.11 to 3.14 that is installed, or is in an image here
	$(VENV)/bin/python -m tests.tools.pythons $(ARGS)

test-versions: $(STAMP)  ## the server tests on MySQL 5.7, 8.0 and 8.4 and MariaDB 10.6; ARGS="mysql:8.0": on one
	docker/up.sh
	$(VENV)/bin/python -m tests.tools.versions $(ARGS) -n auto --maxprocesses 3 --dist worksteal

bench: $(STAMP)  ## ours and its peers over the same logs, side by side; ARGS="--quick" shows that it works
	docker/up.sh
	docker/images/build.sh mysql:9.7 mariadb:11.8
	$(VENV)/bin/pip install --quiet --editable '.[test,bench]'
	$(VENV)/bin/python -m tests.benchmarks $(ARGS)

# The log that bench-spark reads, once a server has written it.
BENCH_SPARK_LOG = $(wildcard .cache/bench/bulk-$(if $(filter --quick,$(ARGS)),10,1)-*.binlog)
bench-spark: $(STAMP)  ## Spark reading binary logs, beside other ways; ARGS="--without-peer" needs no Docker once the log is there
ifeq ($(and $(filter --without-peer,$(ARGS)),$(BENCH_SPARK_LOG)),)
	docker/up.sh
	docker/images/build.sh mysql:9.7
endif
	$(VENV)/bin/pip install --quiet --editable '.[test,bench]'
	$(VENV)/bin/python -m tests.benchmarks.spark $(ARGS)

ifeq ($(SERVER),embedded)
demo: $(if $(wildcard $(STAMP)),,$(PLAIN))  ## what a replica sees, at once; SERVER=mysql:9.7 has it from a real server in Docker
	@$(VENV)/bin/mysql-replica demo
else
demo: $(STAMP)
	docker/up.sh
	docker/images/build.sh $(SERVER)
	@$(VENV)/bin/python -m tests.tools.demo $(SERVER)
endif

ifeq ($(SERVER),embedded)
pipeline: $(STAMP)  ## from a recorded binary log to Delta tables on Spark; SERVER=mysql:9.7 copies a real server's tables first; needs Java 17
	@$(VENV)/bin/python -m replica.spark.jobs.pipeline $(ARGS)
else
pipeline: $(STAMP)
	docker/up.sh
	docker/images/build.sh $(SERVER)
	@$(VENV)/bin/python -m tests.tools.pipeline $(SERVER)
endif

$(PLAIN): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable .
	@touch $@

release: $(STAMP)  ## build the sdist and the wheel into dist/, check them, and say what is left to do by hand
	$(VENV)/bin/python -m tests.tools.release

clean:  ## remove .venv and what tools have left behind; images stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find protocol replica tests -name __pycache__ -type d -prune -exec rm -rf {} +
