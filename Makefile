# make demo and make test do all their own set-up: a virtual environment in .venv, exact versions from constraints.txt.
PYTHON ?= python3
VENV := .venv
TABLES := .venv-tables
BIN := $(VENV)/bin
TESTED := src tests papers/src papers/tests studies/tests
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-all without-torch coverage check studies-check bench growth docs clean

# One process per core, one thread each (conftest.py). worksteal keeps the tests of a file together, so that a fixture
# of a file is made once, and still ends with both processes busy.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

help:
	@echo "make demo      metricfit compare on a real table, examples/crashes.csv.gz; its report goes to demo-report/"
	@echo "make test      the tests (a few minutes)"
	@echo "make test-all  the tests, slow ones included"
	@echo "make without-torch  metricfit for tables, in an environment that has no torch"
	@echo "make coverage  the tests, and which lines they reach (slower)"
	@echo "make check     formatting, lint, types, import layers"
	@echo "make studies-check  pages agree with the stored results of the studies and the papers"
	@echo "make bench     the speed table of docs/evidence/speed.md, measured here (25 minutes; make bench BENCH=--quick: 4 minutes)"
	@echo "make growth    how time and memory grow, measured here, and the page docs/evidence/speed.md (3 minutes)"
	@echo "make docs      the documentation, strictly, into site/"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras, renewed when the project's requirements change. Tests and checks
# need both distributions; the site needs metricfit alone.
$(VENV)/.with-%: pyproject.toml papers/pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) with [$*] ..."
	$(PIP) -e '.[$*]' $(if $(filter test check,$*),-e papers)
	@touch $@

# What a person with a table installs. It has no torch, so the demo is set up in less than a minute.
$(TABLES)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(TABLES) with [cli,onnx] ..."
	test -x $(TABLES)/bin/python || $(PYTHON) -m venv $(TABLES)
	$(TABLES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli,onnx]'
	@touch $@

demo: $(TABLES)/.ready
	rm -rf demo-report
	cd examples && ../$(TABLES)/bin/metricfit compare crashes.csv.gz --target outcome --group crash --metric "cost(fp=1, fn=20)" \
		--method crash_models:scikit_learn --method crash_models:our_decision --method metricfit --out ../demo-report --jobs 2

# studies-check has the tests of pages.
test: $(VENV)/.with-test
	$(PYTEST) -m "not slow and not pages" --durations=15 --doctest-modules $(TESTED)

without-torch: $(TABLES)/.ready
	$(TABLES)/bin/python tests/without_torch/walk.py

coverage: $(VENV)/.with-test
	$(PYTEST) -m "not slow" --doctest-modules $(TESTED) \
		--cov --cov-report=term:skip-covered

test-all: $(VENV)/.with-test
	$(PYTEST) --doctest-modules $(TESTED)

check: $(VENV)/.with-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

studies-check: $(VENV)/.with-test
	$(PYTEST) -m pages studies/tests papers/tests/pages

# Options of the measurement: make bench BENCH=--quick
BENCH ?=
# Peers of the benchmarks, without their dependencies: torchvision, among them, must not come near $(VENV).
PEERS := benchmarks/.peers

$(PEERS)/.ready: $(VENV)/.with-test
	$(PIP) --no-deps --upgrade --target $(PEERS) monai==1.6.1 segmentation_models_pytorch==0.6.0 libauc==2.0.1
	@touch $@

bench: $(VENV)/.with-test $(PEERS)/.ready
	PYTHONPATH=$(PEERS) $(BIN)/python -m benchmarks $(BENCH)

growth: $(VENV)/.with-test $(VENV)/.with-docs
	$(BIN)/python -m benchmarks.growth --again --json benchmarks/results/growth/cpu.json
	$(BIN)/python -m benchmarks.growth_processes --json benchmarks/results/growth/processes.json
	$(BIN)/python docs/figures/cost_growth.py

docs: $(VENV)/.with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(TABLES) $(PEERS) site demo-report
