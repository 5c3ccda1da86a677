# Two commands do everything on a fresh machine: `make demo` and `make test`.
# All they need is a Python 3.11 or newer; everything else goes into .venv.
# The oldest that serves: wheels of all packages exist for it.
PYTHON ?= $(or $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name)))),python3.11)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.installed-demo
JARS   := $(VENV)/.jars
TOOLS  := $(VENV)/release
LANE   := $(wildcard pidgate/gateway/lane/*.[ch])

QUOTA  ?= 100
ROGUES ?= 4
SEED   ?= 1
FUSE   ?=
SEEDS  ?= 1000
FOR    ?= 10m
HOURS  ?= 2
MINUTES ?= 60
PARTS  ?=
PRODUCT := pidgate tools deploy examples

# Tests start hundreds of gateways: each takes a second more where Python may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test tests-of-the-day simulate nightly check format docs demo pipeline-demo pipeline-scale clients faults soak crowd fuzz bench dist audit release-tools lock clean help

help:            ## what there is
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# Install what a lock file lists, and pidgate. $(1): how much, and how long it takes.
define install
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pidgate needs Python 3.11 or newer; set PYTHON=...")'
	@echo "Installing $$(grep -c == $<) packages into $(VENV), $(1):"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r $<
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
endef

$(STAMP): requirements/dev.lock pyproject.toml setup.py $(LANE)
	$(call install,some 1.6 GB; it takes several minutes)

# The demo needs a tenth of what the tests need: no Spark, no browser, no mypy. An environment of the tests serves, too.
$(DEMO): requirements/demo.lock pyproject.toml setup.py $(LANE)
	$(call install,220 MB on the disk; it takes about a minute)

$(JARS): $(STAMP) tools/sandbox/jars.py tests/support/jars.py
	$(BIN)/python -m tests.support.jars
	touch $@

test: $(JARS)    ## style, types, unit tests and tests on a real Kafka (seven minutes on two cores)
	$(MAKE) --no-print-directory --jobs=2 check tests-of-the-day

tests-of-the-day: $(JARS)
	$(BIN)/python -m pytest --collect-only -qq >/dev/null  # compiles the tests once, not once in each process
	$(BIN)/python -m pytest -m "not clients and not faults and not install and not nightly" -n 3 --dist loadgroup --no-loadscope-reorder --durations=10

nightly: check $(JARS) $(TOOLS)/.installed ## all tests there are, to long bounds; writes date, commit and result to docs/nightly.json (hours) [PARTS="faults clients"]
	$(BIN)/python -m tests.support.nightly $(PARTS)

simulate: $(STAMP) ## random schedules of everything together, in virtual time; SEED=n tells the story of one, at its shortest if it fails [SEEDS=1000] [SEED=n]
	$(BIN)/python -m tests.simulator $(if $(filter command line,$(origin SEED)),--seed $(SEED),$(SEEDS))

check: $(STAMP)  ## ruff, mypy and vulture (what nothing uses, what only tests use)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/vulture $(PRODUCT)

format: $(STAMP) ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)   ## the generated parts of docs/, then the site in build/site (strict: each link is checked)
	$(BIN)/python -m tests.support.events_page
	$(BIN)/python -m tests.support.configuration_page
	$(BIN)/python -m tests.support.commands_page
	$(BIN)/python -m tests.support.architecture_page
	$(BIN)/python -m tests.support.clients_page
	$(BIN)/python -m tests.support.faults_page
	$(BIN)/python -m tests.support.logs_page
	$(BIN)/python -m tests.support.metrics_page
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tests.support.rules_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

demo: $(or $(wildcard $(STAMP)),$(DEMO)) ## a broker dies of producer ids, then lives behind the gateway [QUOTA=n|off] [FUSE=1] [ROGUES=n] [SEED=n]
	$(BIN)/python -m tools.sandbox.demo --quota $(QUOTA) --rogues $(ROGUES) --seed $(SEED) $(if $(FUSE),--fuse)

pipeline-demo: $(STAMP) ## who burns ids, and the quota that holds them: real Kafka, the gateway, Spark (needs a Java 17 or 21)
	$(BIN)/python -m tools.sandbox.pipeline_demo

pipeline-scale: $(STAMP) ## measure ingest at 1, the other jobs at 7 and 50 million events (about half an hour, 30 GB of disk)
	$(BIN)/python -m tools.bench.pipeline_scale

clients: $(STAMP) ## the full client matrix, every client refused for 3 s and for 40 s; generates the table in docs/reference/clients.md
	$(BIN)/python -m pytest -m clients; status=$$?; $(BIN)/python -m tests.clients.report && exit $$status

faults: $(STAMP) ## tests that break brokers and gateways (their own)
	$(BIN)/python -m pytest -m faults

soak: $(JARS)    ## a gateway under mixed clients, refusals and restarts for so long: does anything grow [HOURS=2]; writes tools/bench/results/<date>-soak
	$(BIN)/python -m tests.soak --hours $(HOURS)

crowd: $(JARS)   ## 2,000 users with 20,000 connections and rogues for so long, through a reload, a restore and a fail-over: what is lost, who is refused [MINUTES=60]; writes tools/bench/results/<date>-crowd
	$(BIN)/python -m tests.crowd --minutes $(MINUTES)

fuzz: $(JARS)    ## coverage-guided fuzzing of every decoder, so long in all [FOR=10m]; leaves what it finds in .fuzz/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/fuzz.lock
	$(BIN)/python -m tests.fuzz $(FOR)

bench: $(STAMP)  ## measure against direct, a bare pass-through and HAProxy
	$(BIN)/python -m tools.bench

dist: $(TOOLS)/.installed ## the sdist, a wheel for each CPython on this machine, and the SBOM, into dist/ [ARCH="x86_64 aarch64"] [PYTHONS="python3.11"]
	$(TOOLS)/bin/python -m tools.release $(addprefix --python ,$(PYTHONS)) $(addprefix --arch ,$(ARCH))

audit: $(TOOLS)/.installed ## known holes in what pidgate installs (asks PyPI)
	$(TOOLS)/bin/pip-audit --requirement requirements/run.lock --require-hashes --disable-pip --strict

release-tools: $(STAMP) $(TOOLS)/.installed ## what the tests of packages and deploy/ need: helm and actionlint too, where there is a Go
	GOBIN=$(abspath $(TOOLS))/bin go install helm.sh/helm/v3/cmd/helm@v3.18.4
	GOBIN=$(abspath $(TOOLS))/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(TOOLS)/.installed: requirements/release.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --disable-pip-version-check --require-hashes -r $<
	touch $@

lock: $(STAMP)   ## resolve the ranges of pyproject.toml anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --extra dev pyproject.toml -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml -o requirements/run.lock
	echo 'setuptools>=77' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --extra sandbox -c requirements/dev.lock pyproject.toml - -o requirements/demo.lock
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["fuzz"], sep="\n")' \
	| $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header - -o requirements/fuzz.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group release -o requirements/release.lock
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	| $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header - -o requirements/build.lock

clean:           ## remove the environment and what tests left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
