# make demo         a genuine experiment on the embedded default, ending in a leaderboard
# make test         the test suite; fails as well if it runs fewer than 92 % of the lines
# make test-slow    what takes longer: many kill points, fresh virtual environments, the page in a browser
# make test-mutants plants small faults in the formulas, one at a time, and lists those that no test notices
# make test-cluster the grids on a real Slurm (apt-get install slurm-wlm munge) and a real Ray, workers killed in mid-work
# make bench        every ratio of speed and memory, in some minutes; PACK=FILE runs its grid over that feature pack
# make latex        installs what the slow tests compile LaTeX tables with (Debian and Ubuntu; needs root)
# make lint         style, types, who imports whom, and whether README and docs still show what is so
# make readme       runs the commands of README and docs and puts their output below them; pages that follow from the code
# make docs         builds the site of docs/ into build/site, and fails at a broken link
# make licences     lists the licences of the dependencies in docs/licences.md
# make audit        asks pip-audit for known holes in the versions of constraints.txt (needs a network)
# make results      checks the committed runs of results/ and writes their table
# make figures      draws the figures of README and docs, of results/ and of the embedded default
# make results-run  runs the embedded default for five seeds and adds it to results/
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-slow test-mutants test-cluster bench latex lint readme docs licences audit results figures results-run clean

demo: $(VENV)/.installed
	$(BIN)/ttabench demo $(if $(LIMIT),--limit $(LIMIT))

# One more than the cores of a small machine: a third of the tests' time they wait for processes of their own. Bytecode
# is kept even where the machine's own setting is not to: each process would compile the tests and the package anew.
TEST_WORKERS ?= 3
test: $(VENV)/.installed-dev
	mkdir -p build
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not cluster" -n $(TEST_WORKERS) --dist worksteal --cov --cov-report=

test-slow: $(VENV)/.installed-dev
	sh tests/install_chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

# Fails when fewer than 88 % are noticed. Writes tests/mutants/survivors.md; `python -m tests.mutants.run --only purf`
# tries the mutants of some files and writes nothing.
test-mutants: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants.run

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
	for page in $(GENERATED); do $(BIN)/python -m docs.$$page --check || exit 1; done
	$(BIN)/python docs/licences.py --check
	$(BIN)/python results/refresh.py --check

# A method's page quotes what `closeness` computes.
GENERATED = commands api closeness method_pages
readme: $(VENV)/.installed-dev
	$(BIN)/python docs/refresh.py
	$(BIN)/python docs/reliability.py
	for page in $(GENERATED); do $(BIN)/python -m docs.$$page || exit 1; done

# Only who builds the site gets its tools. The variable silences an advertisement.
docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

licences: $(VENV)/.installed-dev
	$(BIN)/python docs/licences.py

# In an environment of its own: the tool's dependencies are not ours. What is audited are the versions that we pin.
# Strict: of a package that it can't ask about, pip-audit would say that no hole is known.
AUDIT = build/audit
audit:
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && \
	    $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip-audit; } || \
	    { rm -rf $(AUDIT); echo "make audit: pip-audit can't be installed here: nothing was audited" >&2; exit 1; }
	@$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt || { \
	    echo "make audit: failed. It found holes, if a table names them; otherwise it could not ask about every" >&2; \
	    echo "package (no network, or an index without its database), and nothing is known of any" >&2; exit 1; }

results: $(VENV)/.installed-dev
	$(BIN)/python results/refresh.py

# A .png of few dots where a drawing would hold whole pictures: each stays below 150 kB.
figures: $(VENV)/.installed-dev
	$(BIN)/ttabench plot pareto --results results/runs -o docs/figures/pareto.svg
	$(BIN)/ttabench plot classes --results results/runs --method clip,purf -o docs/figures/classes.svg
	$(BIN)/ttabench plot cache --step 200 -o docs/figures/cache.svg
	$(BIN)/ttabench plot regions --dpi 110 -o docs/figures/regions.png

# All but difftpt and rlcf, which need more than the package. Runs have a folder of their own, so that only they are
# added; what is done there already is skipped.
SEEDS ?= 0-4
PROMPT_METHODS = tpt,mltta
FEATURE_METHODS = clip,regions,tda,boostadapter,dmn,dpe,reta,purf,views,zero,mta,zregions,bca,bcp,dota,sparc
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
