# make demo         a genuine experiment on the embedded default, ending in a leaderboard
# make test         the test suite
# make test-slow    what takes longer: many kill points, fresh virtual environments, the page in a browser
# make test-cluster the grids on a real Slurm (apt-get install slurm-wlm munge) and a real Ray, workers killed in mid-work
# make bench        every ratio of speed and memory, in some minutes; PACK=FILE runs its grid over that feature pack
# make latex        installs what the slow tests compile LaTeX tables with (Debian and Ubuntu; needs root)
# make lint         style, types, who imports whom, and whether README and docs still show what is so
# make readme       runs the commands of README and docs and puts their output below them; the table of docs/reliability.md
# make results      checks the committed runs of results/ and writes their table
# make results-run  runs the embedded default for five seeds and adds it to results/
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-slow test-cluster bench latex lint readme results results-run clean

# Every method that needs nothing but features; half of the images, to stay below a minute on two cores.
LIMIT ?= 300
METHODS = clip,regions,tda,boostadapter,dmn,dpe,reta,purf
demo: $(VENV)/.installed
	$(BIN)/ttabench run --method $(METHODS) --dataset scenes --backbone tiny --limit $(LIMIT)
	$(BIN)/ttabench leaderboard --dataset scenes --backbone tiny

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not cluster" -n 2 --dist loadfile

test-slow: $(VENV)/.installed-dev
	sh tests/install_chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

latex:
	command -v pdflatex || apt-get install -y --no-install-recommends texlive-latex-base texlive-latex-recommended

# The engines are large, so only those who test them get them. A test of one that can't start fails and says why.
test-cluster: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,slurm,ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/cluster

# On a machine with nothing else to do. Writes benchmarks/results.json.
bench: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.all $(PACK)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/refresh.py --check
	$(BIN)/python docs/reliability.py --check
	$(BIN)/python results/refresh.py --check

readme: $(VENV)/.installed-dev
	$(BIN)/python docs/refresh.py
	$(BIN)/python docs/reliability.py

results: $(VENV)/.installed-dev
	$(BIN)/python results/refresh.py

# All but difftpt and rlcf, which need more than the package. Runs have a folder of their own, so that only they are
# added; what is done there already is skipped.
SEEDS ?= 0-4
PROMPT_METHODS = tpt,mltta
FEATURE_METHODS = $(METHODS),views,zero,mta,zregions,bca,bcp,dota,sparc
results-run: $(VENV)/.installed-dev
	$(BIN)/ttabench run --method $(FEATURE_METHODS),$(PROMPT_METHODS) --dataset scenes --backbone tiny --seed $(SEEDS) \
	    --jobs 2 --results build/results
	$(BIN)/ttabench results add $$(dirname build/results/*/run.json)
	$(BIN)/python results/refresh.py

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
