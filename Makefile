# Everything a developer types. `make run` and `make test` set up what they need on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for processes and clocks more than they compute: more workers than cores.
WORKERS ?= 4
quick: WORKERS := 8

# Brokers and commands start a third slower where nothing may be compiled ahead.
unexport PYTHONDONTWRITEBYTECODE

# Runs of the simulation, and the first of them.
SEEDS ?= 1000
FIRST ?= 1

# How long a run of chaos takes.
MINUTES ?= 10

.PHONY: run test quick check spark-classes proof simulate chaos screenshots docs bench format clean

run: $(STAMP) ## the whole story: a website's events, from the broker to the warehouse; ARGS="--seconds 30"
	$(BIN)/skylog demo $(ARGS)

test: $(STAMP) ## lint, types, then every test
	$(MAKE) -j2 check spark-classes
	$(BIN)/python -m pytest -n $(WORKERS)

quick: check ## the same without Spark, JVMs, browsers and whatever else tests/heavy.py names: for the daily loop
	$(BIN)/python -m pytest -n $(WORKERS) --quick

check: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check src tests benchmarks examples docs/*.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/*.py
	$(BIN)/mypy

spark-classes: $(STAMP) ## an archive from which the JVMs of tests start in half the time; tests run without it, too
	-@$(BIN)/python -m tests.spark.class_archive > $(VENV)/spark-classes.log 2>&1

format: $(STAMP) ## reformat the sources to pass `make check`
	$(BIN)/ruff check --fix src tests benchmarks examples docs/*.py
	$(BIN)/ruff format src tests benchmarks examples docs/*.py

proof: $(STAMP) ## every test in its full form: a million events under kills, every pair of clients; takes hours
	SKYLOG_PROOF=full $(BIN)/python -m pytest -v

simulate: $(STAMP) ## whole clusters on virtual time, with faults from seeds: SEEDS=1000 FIRST=1
	$(BIN)/python -m skylog.simulation --seeds $(SEEDS) --first $(FIRST)

chaos: $(STAMP) ## real processes and clients under faults for MINUTES=10; the report is build/chaos.html
	$(BIN)/python -m tests.faults.chaos --minutes $(MINUTES)

screenshots: $(STAMP) ## the pictures of the console in docs/images, taken anew
	SKYLOG_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/console/browser

docs: $(STAMP) ## the docs as a static site, in site/index.html; fails on a broken link or a download at view time
	$(BIN)/pip install --quiet -e '.[docs]'
	$(BIN)/python docs/architecture.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

bench: $(STAMP) ## measure; results go to benchmarks/results
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache

$(STAMP): pyproject.toml hatch_build.py src/skylog/broker/_producer_runs.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	@touch $@
