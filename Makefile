# Every target sets up what it needs by itself: a fresh Debian 12 machine needs nothing but make, and root or sudo.
SHELL := /bin/bash
PY := .venv/bin/python
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARGS ?=

.PHONY: setup demo test bench fuzz sim check fmt clean help

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: .venv/.done ## Debian packages and the virtual environment .venv

.venv/.done: pyproject.toml deploy/setup.sh
	@SUDO="$(SUDO)" bash deploy/setup.sh
	@touch $@

check: .venv/.done ## ruff, mypy --strict, import-linter, the generated reference
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	MYPYPATH=deploy .venv/bin/mypy -p demo -m lab
	.venv/bin/lint-imports
	@$(PY) -m keepalived_compat.manual | cmp -s - docs/reference/keepalived-conf.md || \
	  { echo 'stale: $(PY) -m keepalived_compat.manual > docs/reference/keepalived-conf.md'; exit 1; }

fmt: .venv/.done ## format and fix what can be fixed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

test: check ## everything that CI runs; the netns, bpf and interop parts need root. ARGS=… goes to pytest
	$(PY) -m tests.twice $(ARGS)

demo: .venv/.done ## two directors, three web servers, real traffic, every failure. ARGS=--json for one JSON object
	@$(SUDO) $(PY) deploy/demo/run.py $(ARGS)

bench: .venv/.done ## figures as JSON lines, as ratios inside one run. ARGS=--list names them
	@$(SUDO) $(PY) -m tests.bench $(ARGS)

fuzz: .venv/.done ## a million mutations of real configurations. ARGS="COUNT SEED"
	$(PY) -m tests.fuzz.mutations $(ARGS)

sim: .venv/.done ## random faults on random clusters, 2,000 seeds in the virtual world. ARGS="COUNT SEED"
	$(PY) -m tests.sim.marathon $(ARGS)

clean: ## remove the virtual environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
