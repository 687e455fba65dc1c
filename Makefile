# Everything runs in .venv, made from requirements.lock; only make and Python 3.11 are needed.

PYTHON ?= $(shell command -v python3.11 || echo python3)
SCALE ?= quick
BIN := .venv/bin
STAMP := .venv/installed

export PYTHONPATH := src

.DEFAULT_GOAL := help
.PHONY: help setup reproduce report status bench test lint format lock lock-check image-test slurm-test

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv from requirements.lock (PYTHON=... names another Python 3.11)

$(STAMP): requirements.lock requirements-cuda.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 is needed, and $(PYTHON) is not one:" \
	    "install it, or name it with 'make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11'." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) lacks the venv module: on Debian and Ubuntu, install python3.11-venv." >&2; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --requirement requirements.lock --constraint requirements-cuda.lock
	@touch $@

reproduce: setup  ## train, evaluate and draw everything of SCALE (quick)
	$(BIN)/snakemake --cores all --config scale=$(SCALE)

report: setup  ## one HTML page with every result of SCALE
	$(BIN)/snakemake --cores all --config scale=$(SCALE) -- pages
	$(BIN)/snakemake --config scale=$(SCALE) --report results/$(SCALE)/report.html -- pages

status: setup  ## what of SCALE is done, running, failed or stale, and the time left
	$(BIN)/python -m inverse_depth --scale $(SCALE) status

bench: setup  ## time the hot paths on this machine
	$(BIN)/python -m inverse_depth bench

# One thread a worker: the workers already share the cores.
test: export OMP_NUM_THREADS = 1
test: setup  ## run the tests
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8

lint: setup  ## check style: Python, Snakefiles, the workflow, the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/hadolint Dockerfile

format: setup  ## bring Python and Snakefiles into style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

lock: setup  ## resolve requirements*.in into the locks and envs/*.yaml
	$(BIN)/python scripts/lock.py

lock-check: setup  ## check that the locks and envs/*.yaml are in step with requirements.in
	$(BIN)/python scripts/lock.py --check

image-test: setup  ## build the image on a plain Debian base and run scale tiny in it (root, Debian)
	scripts/image_test.sh

slurm-test: setup  ## run scale tiny through a one-node SLURM, killing a job (root, Debian)
	scripts/slurm_test.sh
