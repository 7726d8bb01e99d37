# `make demo` and `make test` set everything up by themselves; nothing but Python 3.11+ and pip is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-all test-ray test-lowest check docs faults soak bench bench-figure paper paper-docs clean

setup: .venv/dev

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/dev: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/core
	$(BIN)/vits run linear --preset figure --out results/demo

.venv/ray: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@touch $@

# All experiments of the paper, until its claims are decided; resumes an interrupted run. `make paper-linear` runs one.
# `make paper ENGINE=ray` computes on the Ray cluster at RAY_ADDRESS, or on a new one on this machine.
ENGINE ?= local
NEEDED := .venv/core $(if $(filter ray,$(ENGINE)),.venv/ray)

paper: $(NEEDED)
	$(BIN)/vits paper --engine $(ENGINE)
	$(MAKE) paper-docs

paper-docs: .venv/core
	$(BIN)/python -m vits.lab.report.paper
	$(BIN)/python -m benchmarks.scaling

paper-%: $(NEEDED)
	$(BIN)/vits paper $* --engine $(ENGINE)
	$(MAKE) paper-docs

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two processes, with one test file each at a time. They share compiled programs, also with the next run. The two already
# use both cores, so linear algebra must not use more threads.
PYTEST := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.venv/xla JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2 \
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

# Most of the time goes into compiling. Without optimisation that takes a quarter of the time; test-all compiles as users do.
test: check
	XLA_FLAGS='--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false' $(PYTEST)

# The Ray engine on clusters of this machine; prints what was measured.
test-ray: .venv/dev .venv/ray
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/test_ray.py -m heavy -rP

test-all: check
	$(PYTEST) -m 'heavy or not heavy'

# The lowest versions of the direct dependencies. Old packages warn about new ones, so warnings are not errors here.
.venv-lowest/done: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[test]'
	@touch $@

test-lowest: .venv-lowest/done
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.venv-lowest/xla JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2 \
	OPENBLAS_NUM_THREADS=1 .venv-lowest/bin/pytest -n 2 --dist loadfile -o filterwarnings=default --disable-warnings \
	tests/test_agent*.py tests/test_simulation.py tests/test_cli.py

docs: .venv/dev
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --builder html docs docs/_build

faults: .venv/dev
	$(BIN)/python -m trust faults

soak: .venv/dev
	$(BIN)/python -m trust soak

.venv-peers/done: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	@touch $@

bench: .venv/dev .venv-peers/done
	$(BIN)/python -m benchmarks

bench-figure: .venv/core
	$(BIN)/python -m benchmarks figure

clean:
	rm -rf .venv .venv-lowest .venv-peers docs/_build results
