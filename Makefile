# The commands of this project. Needs GNU make and Python 3.11 or later; everything else goes to .venv.
#
#   make serve            set up, then serve on 127.0.0.1:8000    HOST=… PORT=… MODEL=… ARGS="…"
#   make test             set up, then run the tests              TESTS=tests/harmony
#   make check            what CI runs: lint, types, docs, wheel, both Harmony libraries, tests
#   make docs             write the generated docs
#   make clients          install real clients (Codex, agent SDKs, …) and run them against the server
#   make bench            measure the server's overhead beside the reference server's
#   make wheel-test       install the wheel alone in an empty environment, serve, ask
#   make harmony-compat   the tests with openai-harmony in place of oss-harmony
#   make gpu              on a machine with a card: its tests and the bench, with $(PYTHON) as it is
#   make clean            remove what was set up and built

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?= tiny
ARGS ?=
TESTS ?= tests

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt
PACKAGES := gpt_oss_server inference tools
SOURCES := $(PACKAGES) recipe tests examples docs

# One order of sets in every test process: pytest-xdist compares what its workers have collected.
export PYTHONHASHSEED ?= 0

# One thread per test process: two OpenMP teams on the same cores run at a tenth of their speed.
export OMP_NUM_THREADS ?= 1

.DELETE_ON_ERROR:
.PHONY: serve test check lint types docs docs-check wheel wheel-test harmony-compat clients bench gpu clean help

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

# --- set-up: stamps, so that the second time costs nothing ---

serve: $(VENV)/.installed
	@unset OMP_NUM_THREADS; exec $(BIN)/gpt-oss-server serve --host $(HOST) --port $(PORT) --model $(MODEL) $(ARGS)

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or older than Python 3.11. Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# setuptools first and no build isolation: nothing is built with a version that was not chosen.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (minutes the first time) …" >&2
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# --- checks ---

test: $(VENV)/.developing
	@$(BIN)/python -m pytest -n 2 $(TESTS)

# The tests come last, so that the last line is pytest's.
check: lint types docs-check wheel-test harmony-compat
	@$(MAKE) --no-print-directory test

lint: $(VENV)/.developing
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/ruff format --quiet --check $(SOURCES)

types: $(VENV)/.developing
	@$(BIN)/mypy --no-error-summary

docs: $(VENV)/.developing
	@$(BIN)/python docs/generate.py

docs-check: $(VENV)/.developing
	@$(BIN)/python docs/generate.py --check

wheel: $(VENV)/.developing
	@rm -rf build dist
	@$(BIN)/python -m build --wheel --no-isolation . > $(VENV)/wheel.log 2>&1 || { cat $(VENV)/wheel.log >&2; exit 1; }

wheel-test: wheel
	@$(BIN)/python tests/meta/wheel.py dist/*.whl

# openai-harmony shares its import name with oss-harmony: put first on the path it takes its place. Its
# vocabulary, which it would download, is written out from oss-harmony; openai-harmony checks its sha256. One module
# of the server imports the library: tested are the format and both APIs, and left out is what lies around them.
AROUND := inference recipe tools meta cli clients gpu published turns/test_background_runs.py
$(VENV)/openai-harmony/.installed: $(VENV)/.developing
	@rm -rf $(@D)
	@$(PIP) --no-deps --target $(@D) openai-harmony
	@touch $@

harmony-compat: $(VENV)/openai-harmony/.installed
	@$(BIN)/python tests/harmony/export_vocabulary.py $(VENV)/vocabulary
	@PYTHONPATH=$(CURDIR)/$(VENV)/openai-harmony TIKTOKEN_ENCODINGS_BASE=$(CURDIR)/$(VENV)/vocabulary \
		$(BIN)/python -m pytest -n 2 $(AROUND:%=--ignore=tests/%) $(TESTS)

# Real clients, in folders of their own: their requirements and ours do not agree. npm may be missing; then the
# tests of its clients are skipped.
CLIENTS := $(VENV)/clients
$(CLIENTS)/.installed: $(VENV)/.developing tests/clients/package.json tests/clients/requirements.txt
	@mkdir -p $(CLIENTS)
	@cp tests/clients/package.json $(CLIENTS)/
	@npm install --prefix $(CLIENTS) --no-package-lock --no-audit --no-fund --loglevel error || echo "npm failed; its clients are skipped" >&2
	@$(PYTHON) -m venv $(CLIENTS)/python
	@$(CLIENTS)/python/bin/python -m pip --disable-pip-version-check install -qq -r tests/clients/requirements.txt
	@touch $@

clients: $(CLIENTS)/.installed
	@$(BIN)/python -m pytest -m clients tests/clients

bench: $(VENV)/.developing
	@$(BIN)/python -m pytest -s -m benchmark tests/benchmarks

# Nothing is installed: the machines that have a card have a torch that fits it.
gpu:
	@unset OMP_NUM_THREADS; PYTHONPATH=$(CURDIR) $(PYTHON) tests/gpu/run.py gpu.json

clean:
	rm -rf $(VENV) build dist *.egg-info
