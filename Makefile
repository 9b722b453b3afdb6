# make demo       a genuine experiment on the embedded default, ending in a leaderboard
# make test       the test suite
# make test-slow  what takes longer: many kill points, fresh virtual environments, the page in a browser
# make lint       style, types, who imports whom, and whether README and docs still show what is so
# make readme     runs the commands of README and docs and puts their output below them; the table of docs/reliability.md
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-slow lint readme clean

# Every method that needs nothing but features; half of the images, to stay below a minute on two cores.
LIMIT ?= 300
METHODS = clip,regions,tda,boostadapter,dmn,dpe,reta,purf
demo: $(VENV)/.installed
	$(BIN)/ttabench run --method $(METHODS) --dataset scenes --backbone tiny --limit $(LIMIT)
	$(BIN)/ttabench leaderboard --dataset scenes --backbone tiny

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-slow: $(VENV)/.installed-dev
	sh tests/install_chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/refresh.py --check
	$(BIN)/python docs/reliability.py --check

readme: $(VENV)/.installed-dev
	$(BIN)/python docs/refresh.py
	$(BIN)/python docs/reliability.py

# A new entry point or another version needs a new installation, hence the dependencies.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
