# Needs Python 3.11 or newer and make; everything else is set up by the targets themselves.

PYTHON3 ?= python3
# Plain pip takes the CPU build where this platform offers one. Another build: see "Choosing another torch build" in
# README.md, or name any requirement here, for example TORCH="torch==2.13.0 --index-url URL".
TORCH ?= torch==2.13.0
# Worker processes of `make test`, each with whole files, so that fixtures and kernels are made once; more arguments for
# pytest.
JOBS ?= 2
PYTEST_ARGS ?=
# Options of `make run`: --once ends with the report, also in a terminal.
RUN_ARGS ?=

VENV := .venv
PYTHON := $(VENV)/bin/python
UV := VIRTUAL_ENV=$(VENV) $(VENV)/bin/uv
# The set-up is ready when the stamp of just these requirements exists; a stamp is written last.
STAMP := $(VENV)/ready-$(shell { cat pyproject.toml requirements.lock; echo '$(TORCH)'; } | cksum | cut -d' ' -f1)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
BENCHMARKS := $(addprefix benchmarks/,replay.py eviction.py choosing.py prefix_cache.py prefix_eviction.py calibration.py environment.py training.py tuners.py ablation.py placements.py whatif.py streaming.py semantic.py fidelity.py stack.py disk_tier.py freshness.py ledger.py gateway.py routing.py tracing.py faults.py resilience.py experiments.py guardrails.py ticks.py keys.py stream_join.py techniques.py)

# Networks this small gain nothing from a second thread and lose much when both cores are busy.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help setup servers run test check bench docs lock clean distclean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

run: $(STAMP)  ## from nothing to a judged policy, and to a live cache that it is tried on (RUN_ARGS=--once: and end)
	$(PYTHON) examples/first_run.py $(RUN_ARGS)

test: $(STAMP) servers  ## the test suite, without the slow tests
	$(PYTHON) -m pytest -n $(JOBS) --dist loadfile -m "not slow" $(PYTEST_ARGS)

check: $(STAMP)  ## style, types, layers of the packages, documents against the code
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m pytest -q tests/test_architecture.py tests/test_docs.py

bench: $(STAMP)  ## all benchmarks, one after the other
	@set -e; for file in $(BENCHMARKS); do echo "== $$file"; $(PYTHON) $$file; done

docs: $(STAMP)  ## write the pages of docs/ that are generated
	$(PYTHON) -m api.cli.reference docs

lock: $(STAMP)  ## resolve requirements.lock anew (LOCK_ARGS=--upgrade for newer versions)
	$(UV) pip compile pyproject.toml --extra dev --universal --no-emit-package torch --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --quiet $(LOCK_ARGS) --output-file requirements.lock

clean:  ## remove caches and outputs; keeps .venv and mlruns
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf $(VENV)

setup: $(STAMP)  ## only set up .venv

$(STAMP):
	@$(MAKE) --no-print-directory python
	@echo "== setting up $(VENV): about a minute, once"
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON3) -m venv $(VENV) >/dev/null 2>&1 || \
	  $(MAKE) --no-print-directory venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check uv
	$(UV) pip install --quiet --no-deps --requirement requirements.lock
	$(UV) pip install --quiet --no-deps --editable .
	@rm -f $(VENV)/ready-* && touch $@

.PHONY: python venv
python:
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON3) is missing or older than 3.11; name another with PYTHON3=..." >&2; exit 1; }

# Debian and Ubuntu ship Python without the parts that make a virtual environment.
venv:
	@$(call apt_install,python3-venv)
	@$(PYTHON3) -m venv --clear $(VENV)

# The tests talk to real servers and a real browser. Without them those that need one are skipped, or fail where CI=true.
servers:
	@missing=; for name in redis-server prometheus chromium curl; do \
	  command -v $$name >/dev/null || missing="$$missing $$name"; done; \
	[ -z "$$missing" ] || ( $(call apt_install,$$missing) ) || echo "goes on without:$$missing" >&2

define apt_install
command -v apt-get >/dev/null && $(SUDO) apt-get update -qq && \
  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null || \
  { echo "error: could not install $(1) by apt-get: install it as root and try again" >&2; exit 1; }
endef
