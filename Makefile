# `make demo` and `make test` are all a fresh machine needs: Python >= 3.11, git, make, internet.
# Everything is installed into .venv; `make clean` removes what was made.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo demo-replication test test-all test-wheel bench tools lint format format-check types proto clean

PYTHON ?= python3
ROWS ?= january
ONCE ?=
CHANGES ?= 50000
BENCH ?=
HELM := v3.22.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO := $(VENV)/.demo
REPLICATION := $(VENV)/.replication
TEST := $(VENV)/.test
# The wheel is tested from an empty folder in an environment of its own: it borrows the installed
# dependencies of .venv by a plain path, so that .venv's link to the source tree does not follow.
WHEEL := build/wheel
# Tests that start no server run on all processors, the others one after another. What is skipped
# is told with its reason: a tool that is missing must not pass for a check that was made.
ALONE := kafka or system
SPLIT = $(BIN)/python -m pytest -q -rs -n auto -m "$(1)not ($(ALONE))"; alone=$$?; \
	$(BIN)/python -m pytest -q -rs -m "$(1)($(ALONE))" && exit $$alone

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(DEMO) ## Load a month's flights, follow the stream, compare (ROWS=all: a whole year, ONCE=1: stop at the end)
	ROWS=$(ROWS) ONCE=$(ONCE) $(BIN)/python -m demo.flights

demo-replication: $(REPLICATION) ## MariaDB to a search index, an analytics file, another MariaDB; everything is killed; compare
	ROWS=$(ROWS) CHANGES=$(CHANGES) $(BIN)/python -m demo.replication

test: format-check lint types ## The gate: format, lint, types, tests, then tests on the built wheel
	$(call SPLIT,not slow and )
	@$(MAKE) --no-print-directory test-wheel

test-all: format-check lint types ## The gate with the long fault and property runs
	$(call SPLIT,)
	@$(MAKE) --no-print-directory test-wheel

# Simulated runs are the same there, and two thirds of the time.
test-wheel: $(TEST) ## Tests on the built wheel, from an empty folder
	rm -rf $(WHEEL)
	$(BIN)/python -m build --wheel --no-isolation --outdir $(WHEEL)/dist . > /dev/null
	$(BIN)/python -m venv --without-pip $(WHEEL)/venv
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(WHEEL)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	$(PIP) -q --python $(WHEEL)/venv/bin/python install --no-deps --ignore-installed $(WHEEL)/dist/*.whl
	mkdir $(WHEEL)/empty
	cd $(WHEEL)/empty && ../venv/bin/python -m pytest -q -rs -c $(CURDIR)/pyproject.toml \
		--rootdir $(CURDIR) -p no:cacheprovider -n auto -m "not slow and not ($(ALONE))" \
		--ignore $(CURDIR)/tests/simulation $(CURDIR)/tests

bench: $(TEST) ## Measure speed (BENCH="--batch-rows 1000000 --json results.json")
	$(BIN)/python -m tests.bench.codec
	$(BIN)/python -m tests.bench.run $(BENCH)
	$(BIN)/python -m tests.bench.changes
	$(BIN)/python -m tests.bench.sinks
	$(BIN)/python -m tests.bench.sink_analytics
	$(BIN)/python -m tests.bench.mysql_source

tools: ## Build helm, which judges the chart, into build/tools (Go; minutes, once)
	GOBIN=$(CURDIR)/build/tools go install helm.sh/helm/v3/cmd/helm@$(HELM)

format: $(TEST) ## Format the code in place
	$(BIN)/ruff check -q --fix --exit-zero .
	$(BIN)/ruff format .

format-check: $(TEST)
	$(BIN)/ruff format --check .

lint: $(TEST) ## ruff
	$(BIN)/ruff check .

types: $(TEST) ## mypy --strict
	$(BIN)/mypy

proto: $(TEST) ## Generate the protocol's message classes from core/wire/ots.proto
	$(BIN)/python -m grpc_tools.protoc -I .src --python_out=.src --pyi_out=.src rowtide/core/wire/ots.proto

clean: ## Remove what was made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "rowtide needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) can't make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(DEMO): pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[demo]'
	@touch $@

$(REPLICATION): pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[demo,connectors]'
	@touch $@

$(TEST): pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[test]'
	@$(PIP) install -q -e '.[linters]' || echo "Without linters: files under deploy/ are not judged."
	@touch $@
