# Needs make, git and Python 3.11 or later; everything else goes into .venv. Building the web page needs Node 20.19.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RUN := runs/dates
DATES := examples/dates/test.tsv
SCENES := examples/scenes/data/train.tsv
TONES := examples/tones/data/test.tsv
MODULES := studio/node_modules/.package-lock.json

# One thread for each process: the tests run in two, and more threads than cores slow each other down.
test test-all test-browser faults: export OMP_NUM_THREADS = 1
test test-all test-browser faults: export GOMP_SPINCOUNT = 1000

.DEFAULT_GOAL := help
.PHONY: help demo examples test faults test-all test-browser check format page-if-possible page studio docs bench bench-processes scale clean docs-test

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name what; do \
		printf '  make %-13s %s\n' "$$name" "$$what"; done

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dragoman needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

examples: $(DATES) $(SCENES) $(TONES)  ## generate the data of the examples: dates, drawn scenes, dialled tones

# The table that each script writes last says that its data are complete.
$(DATES) $(SCENES) $(TONES): $(READY)
$(DATES): examples/dates/make.py
$(SCENES): examples/scenes/make.py
$(TONES): examples/tones/make.py
$(DATES) $(SCENES) $(TONES):
	$(BIN)/python $(filter %/make.py,$^)
	@touch $@

demo: $(READY) $(DATES)  ## train on the example dates, evaluate, predict, draw an alignment, write a report; run again, it resumes
	@sh examples/demo.sh $(BIN)/dragoman examples/dates $(RUN)

test: $(READY)  ## run the tests, in two processes
	$(BIN)/python -m pytest -n 2 -q $(PYTEST)

test-all: $(READY)  ## run all tests: every combination of parts, where `make test` covers every pair
	$(BIN)/python -m pytest -n 2 -q -m ''

faults: $(READY)  ## damage, fail, kill and fuzz at full length (half an hour); figures: tests/faults/results.json
	DRAGOMAN_FAULTS=long $(BIN)/python -m pytest -q -s tests/faults

test-browser: $(READY)  ## drive the web page in a browser (needs Chromium: apt-get install chromium)
	BROWSER_TESTS=required $(BIN)/python -m pytest -q tests/browser

check: $(READY)  ## what a change must pass: format, lint, types, pages, tests with their coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory page-if-possible
	@$(MAKE) --no-print-directory test PYTEST="--cov --cov-report="
	@printf 'Lines of the package that the tests run: %s %%\n' "$$($(BIN)/coverage report --format=total)"

# The page is committed as an archive, so that nobody needs Node to use it. Its sources are compared by their digest in
# the tests; where npm is there, the page is also built anew and compared.
page-if-possible:
	@if ! command -v npm > /dev/null; then echo 'npm is missing: the page is not built again'; \
	elif ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then \
		echo 'Node is older than 20.19: the page is not built again'; \
	elif ! $(MAKE) --no-print-directory $(MODULES); then echo 'npm cannot install: the page is not built again'; \
	else $(MAKE) --no-print-directory page && $(BIN)/python studio/pack.py --check; fi

format: $(READY)  ## format the code and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure training speed beside other toolkits (benchmarks/README.md)
	$(BIN)/python benchmarks/run.py $(ARGS)

scale: $(READY)  ## measure check, train and predict on ten million made-up pairs (ARGS="--rows 1000000" for fewer)
	$(BIN)/python benchmarks/scale.py $(ARGS)

bench-processes: $(READY)  ## measure training in two processes beside one (benchmarks/processes.py)
	$(BIN)/python benchmarks/processes.py $(ARGS)

studio: $(READY) page  ## build the web page of studio, inspect and report and pack it (needs Node 20.19 or later)
	$(BIN)/python studio/pack.py

$(MODULES): studio/package.json studio/package-lock.json
	cd studio && npm install --no-save --no-audit --no-fund
	@touch $@

page: $(MODULES)
	cd studio && npm run build

docs: $(READY)  ## check the pages: links, figures against the result files, the traced way of a sentence
	$(BIN)/python docs/check_links.py
	$(BIN)/python docs/figures.py --check
	OMP_NUM_THREADS=1 $(BIN)/python docs/walk.py --check

docs-test: $(READY)  ## execute the example notebook (installs Jupyter's nbconvert; about two minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebook]'
	$(BIN)/python examples/make_notebook.py --check

clean:  ## remove what make has made: environment, caches, page, example data, run of the demo
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist studio/node_modules studio/dist
	rm -rf $(RUN) examples/*/data examples/dates/*.tsv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
