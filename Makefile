# Each target sets up .venv by itself; all that is needed beforehand is Python 3.11 or newer.
#
# torch comes at the version that constraints.txt names, from wherever pip is told to look. On Linux the package
# index gives the build with CUDA, some gigabytes; PyTorch's own site says how to ask pip for the CPU build.

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# One thread a process: the tests run in parallel, and small products lose more to threads than they gain.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 MPLBACKEND=agg

.PHONY: demo test test-lab test-all test-gpu lint format docs benchmarks constraints clean

demo: .venv/.installed
	$(BIN)/penn demo

# A file of tests stays on one process: what its tests share (a browser, a run of OpenFOAM) is made once.
test: .venv/.installed-dev
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n auto --dist loadfile $(PYTEST_OPTIONS)

# The laboratory: the paper's tables, generators, and prose against records.
test-lab: .venv/.installed-dev
	$(MAKE) test PYTEST_OPTIONS="lab/tests $(PYTEST_OPTIONS)"

# Also those that take more than some seconds each, and more examples of each property; CI runs these.
test-all: .venv/.installed-dev
	PENN_EXAMPLES=40 $(MAKE) test PYTEST_OPTIONS="tests lab/tests formats/tests sharing/tests -m 'not deep and not gpu' $(PYTEST_OPTIONS)"

test-gpu: .venv/.installed-dev
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		$(TEST_ENVIRONMENT) $(BIN)/python -m pytest tests lab/tests -m gpu $(PYTEST_OPTIONS); \
	else \
		echo "PyTorch finds no CUDA device here: none of the tests that need one was run."; \
	fi

# pyright checks examples and the code of README and docs as it checks ours.
lint: .venv/.installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python tests/support/documents.py docs/_build/code
	$(BIN)/pyright
	$(BIN)/lint-imports

format: .venv/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/.installed-dev
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

benchmarks: .venv/.installed-dev
	for benchmark in lab/benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

# Pins what is installed now; run it after `make clean` and an installation with open versions.
constraints:
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

clean:
	rm -rf .venv

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml lab/pyproject.toml formats/pyproject.toml sharing/pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]' --editable lab --editable formats --editable sharing
	@touch $@ .venv/.installed
