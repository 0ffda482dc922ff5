# Every target sets up what it needs first; `make` alone lists them.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup lab test check nightly bench browser lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with the locked dependencies, so that .venv/bin/laps is the program
	@scripts/setup

lab: setup ## LAPS at work on this machine (ARGS="--help" for its options)
	.venv/bin/laps lab $(ARGS)

test: browser check ## the checks and the tests (ARGS="-k wire" narrows the tests)
	@scripts/test $(ARGS)

check: setup ## lint, format, types and import directions
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

nightly: browser ## every test, the long seed sweeps too, with 20 times the generated examples
	.venv/bin/pytest -m "" --hypothesis-profile=nightly $(ARGS)

bench: setup ## how fast the QUIC endpoint is, beside its peers
	.venv/bin/laps bench quic $(ARGS)

browser: setup ## Chromium for the browser tests, where it can be installed
	@scripts/setup --browser

lock: ## requirements/*.txt from pyproject.toml (ARGS="--upgrade" renews every version)
	scripts/lock $(ARGS)

clean: ## remove .venv and everything built
	rm -rf .venv .interop build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
