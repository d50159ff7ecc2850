# `make demo` and `make test` are all a fresh machine needs: Python >= 3.11, git, make, internet.
# Everything is installed into .venv; `make clean` removes what was made.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
SHELL := /bin/bash
.PHONY: help demo demo-chat demo-devices demo-replication demo-social test test-all test-timelines quick lint bench native wheels generate vendor clean
# Steps of the targets above.
.PHONY: fix format-check ruff types wheel broker-cache tools native-asan

# The first of these that serves well (cli/built_python.py): a distribution's Python needs a quarter
# less time than one that pyenv has compiled without optimisation.
PYTHON ?= $(shell for python in python3 /usr/bin/python3; do \
	$$python -I cli/built_python.py 2> /dev/null && echo $$python && exit; done; echo python3)
ROWS ?= january
ONCE ?=
CHANGES ?= 50000
BENCH ?=
INPUTS ?= 1000000
FIX ?=
ASAN ?=
HELM := v3.22.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# uv installs with a sixth of pip's CPU time. It reads no configuration of pip: where uv is not to be
# had, or fails, pip installs.
UV := $(BIN)/uv pip install -q --python
GET_UV := test -x $(BIN)/uv || $(PIP) install -q --only-binary :all: uv || echo "Without uv: pip takes longer."
DEMO := $(VENV)/.demo
REPLICATION := $(VENV)/.replication
TEST := $(VENV)/.test
# Python keeps what it compiled, also where the environment forbids it: without that, each process
# that a test starts compiles all that it imports, and pytest rewrites all tests in each of its own.
export PYTHONDONTWRITEBYTECODE :=
# Kernels are compiled by the install: in place, where there is a compiler.
NATIVE := hatch_build.py $(wildcard core/native/*.[ch])
# The suite runs once, on the built wheel, from an empty folder in an environment of its own: it
# borrows the installed dependencies of .venv by a plain path, so that .venv's link to the source
# tree does not follow.
WHEEL := build/wheel
PYTEST := $(CURDIR)/$(WHEEL)/venv/bin/python -m pytest -q -rs -c $(CURDIR)/pyproject.toml \
	--rootdir $(CURDIR) -p no:cacheprovider
# -rs prints why a test was skipped: a missing tool must not pass for a check that was made.
SERVER := kafka or system
# Files without a server's mark are not even imported where servers are tested (tests/conftest.py),
# nor are files all of whose tests have such a mark where the others are.
SERVED = $(shell grep -rlE "mark\.(kafka|system)" $(CURDIR)/tests --include="test_*.py")
UNSERVED = $(shell grep -rLE "^pytestmark = .*mark\.(kafka|system)" $(CURDIR)/tests --include="test_*.py")
SHARED := $(addsuffix /%,$(addprefix $(CURDIR)/tests/,api changes cli conformance connectors console model))
# These tests run on a local log, and with ROWTIDE_TEST_LOG=kafka on Kafka. That run signs requests
# with version 4, the other with version 2.
EITHER := $(addprefix $(CURDIR)/tests/,api cli conformance connectors model system/test_fuzz.py)
# tests/support/parts.py tells what each part took, and which part grew.
TIMED := $(BIN)/python -m tests.support.parts
PART := $(TIMED) run --in $(WHEEL)/empty
# Three parts: tests of one server, four files at once, each with servers of its own; then tests
# that kill, count or time servers, three at once, except those that share servers (marked
# xdist_group). Both wait half of the time, so two processors are enough. Beside them, at a low
# priority, types and then the tests without a server take the processor time that is left; what they
# print is shown when they have ended. $(1) chooses tests, $(2) is what else is run. BESIDE names
# targets made before the types.
BESIDE ?=
define SUITE
@$(TIMED) begin
@$(TIMED) run "checks and wheel" -- $(MAKE) --no-print-directory format-check ruff wheel broker-cache
@parts=0; \
	set -m; { low=0; \
		$(if $(BESIDE),$(TIMED) run --beside "$(BESIDE)" -- $(MAKE) --no-print-directory $(BESIDE) \
			|| echo "Without $(BESIDE): tests that need it are skipped.";) \
		$(TIMED) run --beside "types" -- $(MAKE) --no-print-directory types || low=1; \
		$(PART) --beside "without servers" -- $(PYTEST) -n auto --dist worksteal \
			-m "$(1)not ($(SERVER))" $(UNSERVED) || low=1; \
		exit $$low; } > $(WHEEL)/beside.txt 2>&1 < /dev/null & beside=$$!; set +m; \
	trap "kill -- -$$beside 2> /dev/null" EXIT; \
	$(PART) "one server" -- $(PYTEST) -n 4 --dist loadfile -m "$(1)($(SERVER))" \
		$(filter $(SHARED),$(SERVED)) || parts=1; \
	$(PART) "several servers and faults" -- $(PYTEST) -n 3 --dist loadgroup -m "$(1)($(SERVER))" \
		$(filter-out $(SHARED),$(SERVED)) || parts=1; \
	$(2) \
	wait $$beside || parts=1; \
	cat $(WHEEL)/beside.txt; \
	$(TIMED) report; exit $$parts
endef
ON_KAFKA = $(PART) "one server, on Kafka" -- env ROWTIDE_TEST_LOG=kafka \
	ROWTIDE_TEST_SIGNATURE=v4 $(PYTEST) -n 2 --dist loadfile -m "not slow and ($(SERVER))" $(EITHER) || parts=1;

help:
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1	\2/p' Makefile | expand -t 18

demo: $(DEMO) ## Load a month's flights, follow the stream, compare (ROWS=all: a whole year, ONCE=1: stop at the end); also demo-chat, demo-social, demo-devices
	ROWS=$(ROWS) ONCE=$(ONCE) $(BIN)/python -m demo.flights

demo-replication: $(REPLICATION) ## MariaDB to a search index, an analytics file, another MariaDB; everything is killed; compare
	ROWS=$(ROWS) CHANGES=$(CHANGES) $(BIN)/python -m demo.replication

# Examples on timelines: a group chat with a page in the browser (ONCE=1: stop at the end), a social
# feed, messages of devices.
demo-chat demo-social demo-devices: $(DEMO)
	ONCE=$(ONCE) $(BIN)/python -m demo.timeline.$(@:demo-%=%)

test: $(TEST) ## The gate: format, lint, types, then all tests on the built wheel
	$(call SUITE,not slow and ,)

test-all: export ROWTIDE_TEST_SEARCH := long
test-all: $(TEST) ## The gate with the long fault and property runs, and API tests on Kafka, too; test-timelines: 1,000 users
	$(call SUITE,,$(ON_KAFKA))

# Timelines of 1,000 users on a cluster that is killed, split, merged and moved (minutes;
# ROWTIDE_SEED=n).
test-timelines: $(TEST)
	$(BIN)/python -m pytest -q -s -n 0 -m slow tests/workers/timelines

quick: lint ## An answer in under two minutes: lint, and the tests that start no server, without the simulation
	$(BIN)/python -m pytest -q -n auto -m "not slow and not ($(SERVER))" --ignore tests/simulation

wheel: $(TEST)
	rm -rf $(WHEEL)
	$(BIN)/python -m build --wheel --no-isolation --outdir $(WHEEL)/dist . > /dev/null
	$(BIN)/python -m venv --without-pip $(WHEEL)/venv
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(WHEEL)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	$(UV) $(WHEEL)/venv/bin/python --no-deps --compile-bytecode $(WHEEL)/dist/*.whl || \
		$(PIP) -q --python $(WHEEL)/venv/bin/python install --no-deps --ignore-installed $(WHEEL)/dist/*.whl
	mkdir $(WHEEL)/empty

# Java's cache of what Kafka loads: some tens of brokers start with half of the CPU time.
broker-cache: $(TEST)
	$(BIN)/python -m tests.support.broker_cache

wheels: $(TEST) ## Build the wheels of all platforms into dist/, and judge them (minutes, once)
	$(PIP) install -q -e '.[wheels]'
	rm -rf dist
	$(BIN)/python hatch_wheels.py dist
	ROWTIDE_WHEELS=$(CURDIR)/dist $(BIN)/python -m pytest -q -rs -n 0 tests/test_wheels.py

bench: $(TEST) ## Measure speed (BENCH="--batch-rows 1000000 --json results.json")
	$(BIN)/python -m tests.bench.codec
	$(BIN)/python -m tests.bench.run $(BENCH)
	@if command -v go > /dev/null; then $(BIN)/python -m tests.bench.sdk && $(BIN)/python -m tests.bench.modes; \
		else echo "NOT MEASURED: the official Go SDK, as go is not on the PATH"; fi
	$(BIN)/python -m tests.bench.changes
	$(BIN)/python -m tests.bench.console
	$(BIN)/python -m tests.bench.feed
	$(BIN)/python -m tests.bench.live_page
	$(BIN)/python -m tests.bench.search
	$(BIN)/python -m tests.bench.sinks
	$(BIN)/python -m tests.bench.sink_analytics
	$(BIN)/python -m tests.bench.mysql_source
	$(BIN)/python -m tests.bench.dashboards
	$(BIN)/python -m tests.bench.dashboard_fold
	$(BIN)/python -m tests.bench.timeline

native: $(if $(ASAN),native-asan,$(TEST)) ## Compile the kernels of core/native in place (ASAN=1: test them under AddressSanitizer)
	$(BIN)/python hatch_build.py core/native/_kernels.abi3.so -Wall -Wextra -Werror

# A second copy of the kernels, which stops at the first byte that it should not have touched.
native-asan: $(TEST)
	mkdir -p build/asan
	$(BIN)/python hatch_build.py build/asan/_kernels.abi3.so -g -Wall -Wextra -Werror \
		-fsanitize=address,undefined -fno-sanitize-recover=all
	LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so) $$($${CC:-cc} -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc ROWTIDE_INPUTS=$(INPUTS) \
		ROWTIDE_KERNELS=$(CURDIR)/build/asan/_kernels.abi3.so \
		$(BIN)/python -m pytest -q -s -n auto --dist worksteal tests/core/native

# Helm judges the chart. Building it takes minutes, once, and Go.
tools:
	GOBIN=$(CURDIR)/build/tools go install helm.sh/helm/v3/cmd/helm@$(HELM)

lint: $(if $(FIX),fix) format-check ruff types ## Check the format, ruff's rules and types (FIX=1: correct what can be, first)

fix: $(TEST)
	$(BIN)/ruff check -q --fix --exit-zero .
	$(BIN)/ruff format .

format-check: $(TEST)
	$(BIN)/ruff format --check .

ruff: $(TEST)
	$(BIN)/ruff check .

types: $(TEST)
	$(BIN)/mypy

generate: $(TEST) ## Generate again what is generated: the protocol's messages, the reference pages
	$(BIN)/python -m grpc_tools.protoc -I .src --python_out=.src --pyi_out=.src rowtide/core/protocol/wire/ots.proto
	$(BIN)/python -m rowtide.cli.reference cli > docs/reference/cli.md
	$(BIN)/python -m rowtide.cli.reference configuration > docs/reference/configuration.md

vendor: ## Make console/static/vendor from the packages of its lock (node and npm; after a change of the lock)
	mkdir -p build/javascript
	cp console/javascript/package.json console/javascript/package-lock.json build/javascript
	cd build/javascript && npm ci --ignore-scripts --no-audit --no-fund
	node console/javascript/vendor.mjs build/javascript/node_modules console/static/vendor

clean: ## Remove what was made
	rm -rf $(VENV) build dist core/native/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "rowtide needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "$(VENV) is made with $$($(PYTHON) --version) ($(PYTHON))"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) can't make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(DEMO): pyproject.toml $(NATIVE) | $(BIN)/python
	@$(GET_UV)
	$(UV) $(BIN)/python -e '.[demo]' || $(PIP) install -q -e '.[demo]'
	@touch $@

$(REPLICATION): pyproject.toml $(NATIVE) | $(BIN)/python
	@$(GET_UV)
	$(UV) $(BIN)/python -e '.[demo,connectors]' || $(PIP) install -q -e '.[demo,connectors]'
	@touch $@

$(TEST): pyproject.toml $(NATIVE) | $(BIN)/python
	@$(GET_UV)
	$(UV) $(BIN)/python -e '.[test,linters]' || { $(PIP) install -q -e '.[test]' && \
		{ $(PIP) install -q -e '.[linters]' || echo "Without linters: files under deploy/ are not judged."; }; }
	@touch $@
