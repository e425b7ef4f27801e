# Everything a developer types. `make run` and `make test` set up what they need on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check proof screenshots bench format clean

run: $(STAMP) ## the whole story: a website's events, from the broker to the warehouse; ARGS="--seconds 30"
	$(BIN)/skylog demo $(ARGS)

# What fails is run once more and reported as such: clients with limits of their own are tested on a busy machine.
test: check ## lint, types, then every test
	$(BIN)/python -m pytest -n 2 --reruns 1

check: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(STAMP) ## rewrite the sources the way `make check` wants them
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

proof: $(STAMP) ## the tests that kill everything, with a million events each
	SKYLOG_PROOF=full $(BIN)/python -m pytest -v tests/spark/jobs/land/test_kills.py tests/spark/jobs/visits/test_killed.py tests/spark/writing/kills tests/spark/peers/test_apache_kafka.py

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
