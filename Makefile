# Needs make, git and Python 3.11 or later; everything else goes into .venv. The web page also needs Node 20 or later.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RUN := runs/dates
DATA := examples/dates
STATIC := src/dragoman/studio/static/index.html
MODULES := studio/node_modules/.package-lock.json

# One thread a process: the tests run in two processes, and more threads than cores slow each other down.
test test-browser check: export OMP_NUM_THREADS = 1
test test-browser check: export GOMP_SPINCOUNT = 1000

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser check bench docs studio clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name what; do \
		printf '  make %-12s %s\n' "$$name" "$$what"; done

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dragoman needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## train on the shipped dates, measure, predict, draw an alignment (again: goes on where it stopped)
	@sh examples/demo.sh $(BIN)/dragoman $(DATA) $(RUN)

test: $(READY)  ## run the tests, in two processes
	$(BIN)/python -m pytest -n 2 -q

test-browser: $(READY) $(STATIC)  ## drive the web page in a browser (needs Chromium: apt-get install chromium)
	BROWSER_TESTS=required $(BIN)/python -m pytest -q tests/browser

check: $(READY)  ## format, lint, types, links, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/check_links.py
	$(BIN)/python -m pytest -n 2 -q

bench: $(READY)  ## speed and memory, side by side with others (benchmarks/README.md)
	$(BIN)/python benchmarks/run.py $(ARGS)

studio: $(STATIC)  ## build the web page of studio, inspect and report (needs Node 20 or later)

$(MODULES): studio/package.json studio/package-lock.json
	cd studio && npm install --no-save --no-audit --no-fund
	@touch $@

$(STATIC): $(MODULES) studio/index.html studio/vite.config.ts studio/tsconfig.json $(shell find studio/src -type f)
	cd studio && npm run build

docs: $(READY)  ## check that every link between the pages leads somewhere
	$(BIN)/python docs/check_links.py

clean:  ## remove the environment, caches and the demo's run
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist studio/node_modules $(dir $(STATIC)) $(RUN)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
