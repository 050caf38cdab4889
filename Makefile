# Needs make, git and Python 3.11 or later; everything else goes into .venv. Building the web page needs Node 20.19.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TOOLS := .venv/.tools
ZIG := .zig/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Only files with the hashes of the lock, and only wheels: what builds a package would come without hashes.
LOCKED := $(PIP) --require-hashes --only-binary :all: -r
RUN := runs/dates
DATES := examples/dates/test.tsv
SCENES := examples/scenes/data/train.tsv
TONES := examples/tones/data/test.tsv
MODULES := studio/node_modules/.package-lock.json
SEEDS := native/build-asan/seeds

# One thread for each process: the tests run in two, and more threads than cores slow each other down.
test test-all test-browser faults: export OMP_NUM_THREADS = 1
test test-all test-browser faults: export GOMP_SPINCOUNT = 1000

.DEFAULT_GOAL := help
.PHONY: help demo examples test faults fuzz-tokenizers fuzz-native test-all test-browser native native-all native-if-possible wheels runtime check format page-if-possible page page-lock studio docs bench bench-processes bench-decoding serve-load serve-schema parity parity-page scale lock licences release clean docs-test

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name what; do \
		printf '  make %-15s %s\n' "$$name" "$$what"; done

# torch is pinned without hashes, because its builds differ (requirements/torch.txt); what it needs is in the lock. The
# package itself is built by the hatchling of the lock. Where all of this is installed already, nothing is fetched.
$(READY): pyproject.toml requirements/dev.txt requirements/torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dragoman needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(LOCKED) requirements/dev.txt
	$(PIP) -r requirements/torch.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(TOOLS): $(READY) requirements/release.txt
	$(LOCKED) requirements/release.txt
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

fuzz-tokenizers: $(READY)  ## compare the native and WebAssembly tokenisers with Python's on 20,000 texts for each kind
	DRAGOMAN_FUZZ_TOKENIZERS=20000 $(BIN)/python -m pytest -q tests/native/test_tokenizers.py tests/native/test_wasm.py -k 'not pictures'

fuzz-native: $(READY)  ## try 100,000 changed model files, tables and inputs on the native library under gcc's AddressSanitizer
	$(MAKE) -s -C native fuzz
	$(BIN)/python native/fuzz/seeds.py $(SEEDS)
	native/build-asan/fuzz 1 0 50000 $(SEEDS)/* & one=$$!; native/build-asan/fuzz 2 0 50000 $(SEEDS)/* && wait $$one

test-browser: $(READY)  ## drive the web page in a browser (needs Chromium: apt-get install chromium)
	BROWSER_TESTS=required $(BIN)/python -m pytest -q tests/browser

check: $(READY)  ## what a change must pass: format, lint, types, pages, tests with their coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory page-if-possible
	@$(MAKE) --no-print-directory native-if-possible
	@$(MAKE) --no-print-directory test PYTEST="--cov --cov-report="
	@printf 'Lines of the package that the tests run: %s %%\n' "$$($(BIN)/coverage report --format=total)"

# The page is committed as an archive, so that nobody needs Node to use it. Its sources are compared by their digest in
# the tests; where npm is there, the page is also built anew and compared.
page-if-possible:
	@if ! command -v npm > /dev/null; then echo 'npm is missing: the page is not built again'; \
	elif ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then \
		echo 'Node is older than 20.19: the page is not built again'; \
	elif ! $(MAKE) --no-print-directory $(MODULES); then echo 'npm cannot install: the page is not built again'; \
	else $(MAKE) --no-print-directory page && $(BIN)/python studio/pack.py --check && \
		cd studio && npm run build:runtime && cd .. && $(BIN)/python studio/pack_runtime.py --check; fi

native:  ## build the native library with the system's C compiler (native/README.md)
	$(MAKE) -s -C native

# zig has an environment of its own: it is large, and nothing else needs it.
$(ZIG): requirements/zig.txt
	$(PYTHON) -m venv .zig
	.zig/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	@touch $@

native-all: $(ZIG)  ## build the native library for Linux, macOS, Windows and WebAssembly with zig into native/dist/
	.zig/bin/python native/build_all.py $(ARGS)

wheels: $(READY) native-all  ## build a wheel for each system, with its native library, into dist/
	for target in x86_64-linux aarch64-linux x86_64-macos aarch64-macos x86_64-windows; do \
		DRAGOMAN_TARGET=$$target $(BIN)/python -m hatchling build -t wheel -d dist || exit 1; done

runtime: $(ZIG) $(MODULES)  ## build and pack what exported pages and Node run (needs Node 20.19 or later, fetches zig)
	.zig/bin/python native/build_all.py wasm32-wasi
	cd studio && npm run build:runtime
	$(PYTHON) studio/pack_runtime.py

native-if-possible:
	@if command -v $(CC) > /dev/null; then $(MAKE) --no-print-directory native; \
	else echo 'there is no C compiler: the native library is not built, and its tests are skipped'; fi

format: $(READY)  ## format the code and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure training speed beside other toolkits (benchmarks/README.md)
	$(BIN)/python benchmarks/run.py $(ARGS)

scale: $(READY)  ## measure check, train and predict on ten million made-up pairs (ARGS="--rows 1000000" for fewer)
	$(BIN)/python benchmarks/scale.py $(ARGS)

bench-decoding: $(READY)  ## measure decoding beside CTranslate2 (ARGS="RUN FILE"; benchmarks/README.md)
	$(BIN)/python benchmarks/decode.py $(ARGS)

serve-load: $(READY) native-if-possible  ## measure dragoman serve: 200 clients, SIGTERM, throughput (ARGS="--run RUN"; ten minutes)
	$(BIN)/python benchmarks/serve.py $(ARGS)

serve-schema: $(READY)  ## try 5,000 requests made from the description of dragoman serve
	DRAGOMAN_SCHEMA_CASES=5000 $(BIN)/python -m pytest -q -s tests/serving/test_schema.py

parity: $(READY) native-if-possible  ## compare all engines with torch for every preset (ARGS="--runs FOLDER"; two minutes)
	$(BIN)/python experiments/parity/run.py $(or $(ARGS),--runs runs/parity)

parity-page: $(READY)  ## compare exported pages in Chromium with torch (ARGS="RUN FILE …"; experiments/page)
	$(BIN)/python experiments/page/run.py $(ARGS)

bench-processes: $(READY)  ## measure training in two processes beside one (benchmarks/processes.py)
	$(BIN)/python benchmarks/processes.py $(ARGS)

studio: $(READY) page  ## build the web page of studio, inspect and report and pack it (needs Node 20.19 or later)
	$(BIN)/python studio/pack.py

# Exactly the packages of package-lock.json, by their hashes, and none of their scripts. The lock has the binaries of
# every system. For that, package.json holds vite and rolldown at versions whose binaries are all published.
$(MODULES): studio/package.json studio/package-lock.json
	cd studio && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

page-lock:  ## remake the lock of the web page's packages after a change of studio/package.json
	cd studio && rm -rf node_modules package-lock.json && npm install --package-lock-only --no-audit --no-fund

page: $(MODULES)
	cd studio && npm run build

docs: $(READY)  ## check the pages: links, figures against the result files, the traced way of a sentence, licences
	$(BIN)/python docs/check_links.py
	$(BIN)/python docs/figures.py --check
	OMP_NUM_THREADS=1 $(BIN)/python docs/walk.py --check
	$(BIN)/python requirements/licences.py --check

docs-test: $(READY)  ## execute the example notebook (installs Jupyter's nbconvert; about two minutes)
	$(LOCKED) requirements/notebook.txt
	$(BIN)/python examples/make_notebook.py --check

lock: $(TOOLS)  ## remake the locks of the Python packages after a change of pyproject.toml (ARGS=--upgrade for new versions)
	$(BIN)/python requirements/locks.py $(ARGS)

licences: $(READY)  ## rewrite docs/licences.md from the locks and the installed packages
	$(LOCKED) requirements/umap.txt
	$(BIN)/python requirements/licences.py

# Hatchling gives the same bytes for the same files, so everything but the commit is kept out.
release: $(TOOLS)  ## build wheel, source distribution and bill of materials of this commit into dist/
	@test -z "$$(git status --porcelain)" || { echo 'there are changes that are not committed: a release is built from a commit'; exit 1; }
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python requirements/sbom.py dist

clean:  ## remove what make has made: environment, caches, page, example data, run of the demo
	rm -rf native/build native/dist .zig .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist studio/node_modules studio/dist studio/dist-runtime
	rm -rf $(RUN) examples/*/data examples/dates/*.tsv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
