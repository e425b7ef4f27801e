# Everything a developer types. `make run` and `make test` set up what they need on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for processes and clocks more than they compute: more workers than cores.
WORKERS ?= 4

# Brokers and commands start a third slower where nothing may be compiled ahead.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test quick check proof screenshots bench format clean

run: $(STAMP) ## the whole story: a website's events, from the broker to the warehouse; ARGS="--seconds 30"
	$(BIN)/skylog demo $(ARGS)

test: check ## lint, types, then every test
	$(BIN)/python -m pytest -n $(WORKERS)

quick: check ## the same without Spark, JVMs, browsers and whatever else tests/heavy.py names: for the daily loop
	$(BIN)/python -m pytest -n $(WORKERS) --quick

check: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(STAMP) ## rewrite the sources the way `make check` wants them
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

proof: $(STAMP) ## every test in its full form: a million events under kills, every pair of clients; takes hours
	SKYLOG_PROOF=full $(BIN)/python -m pytest -v

screenshots: $(STAMP) ## the pictures of the console in docs/images, taken anew
	SKYLOG_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/console/browser

bench: $(STAMP) ## measure; results go to benchmarks/results
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	@touch $@
