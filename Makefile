# Everything from a fresh checkout. `make demo` and `make test` do their own set-up, once.
#
#   make demo ARGS="--to de"       arguments for the command, here and for `make test`
#   make test PYTHON=python3.12    the Python to build .venv with, instead of the first one that fits
#   make demo TORCH_INDEX=URL      one more package index for pip. Where no small build of torch is at hand,
#                                  pip fetches the CUDA build, some GB; name PyTorch's index of CPU builds
#                                  here (or set pip's own PIP_EXTRA_INDEX_URL) to avoid that.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?=
TORCH_INDEX ?=
ARGS ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP_RUN := $(VENV)/.ready-run
STAMP_TEST := $(VENV)/.ready-test
BUSY := $(VENV)/.busy
LOG := $(VENV)/setup.log

# Stamps count only in a whole environment: its Python still exists, it was built in this folder (scripts
# hold absolute paths), and no installation was cut off half-way.
whole := test -x $(BIN)/python && head -n 2 $(BIN)/pip 2>/dev/null | grep -qF '$(CURDIR)/$(BIN)/python' \
	&& test ! -e $(BUSY)
ifneq ($(shell $(whole) && echo yes),yes)
$(STAMP_RUN) $(STAMP_TEST): FORCE
endif

.PHONY: help demo test lint format bench clean FORCE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: $(STAMP_RUN) ## set up, then run the demo
	@$(BIN)/triptych demo $(ARGS)

test: lint ## set up, then run all checks and tests
	@echo "── pytest"
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(STAMP_TEST) ## set up, then check style, types and import order
	@echo "── ruff"
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet . || { echo "not formatted; mend with: make format"; exit 1; }
	echo "── mypy"
	$(BIN)/mypy
	echo "── import-linter"
	words=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$words"; exit 1; }

format: $(STAMP_TEST) ## rewrite the sources in the project's style
	@$(BIN)/ruff check --quiet --fix . || true
	$(BIN)/ruff format .

bench: ## list the benchmarks and how to run one
	@found=$$(find benchmarks -name '*.py' 2>/dev/null | sort)
	[ -n "$$found" ] || { echo "No benchmarks yet."; exit 0; }
	for file in $$found; do
		printf '  %-32s %s\n' "$$file" "$$(sed -nE '0,/^"""/s/^"""(.*[^"])"*$$/\1/p' "$$file")"
	done
	echo "Run one on a quiet machine: $(BIN)/python benchmarks/NAME.py"

clean: ## remove the environment, caches and build leftovers (not your runs)
	@rm -rf $(VENV) build dist src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------- set-up
# Sets $$python to the first Python that fits, or stops with one message that says what to install.
define find_python
range='(3, 11) <= sys.version_info[:2] <= (3, 13)'
tried=''
python=''
for candidate in $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11); do
	version=$$("$$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) \
		|| { tried+="  $$candidate: not found"$$'\n'; continue; }
	"$$candidate" -c "import sys; sys.exit(not $$range)" \
		|| { tried+="  $$candidate: is Python $$version"$$'\n'; continue; }
	"$$candidate" -c 'import venv, ensurepip' 2>/dev/null \
		|| { tried+="  $$candidate: is Python $$version without its venv module (Debian, Ubuntu: sudo apt-get install python$${version%.*}-venv)"$$'\n'; continue; }
	python=$$candidate
	break
done
if [ -z "$$python" ]; then
	echo "Triptych needs Python 3.11, 3.12 or 3.13 with its venv module. Tried:"
	printf '%s' "$$tried"
	echo "Install one and run make again:"
	echo "  Debian, Ubuntu:  sudo apt-get install python3 python3-venv, or python3.11 python3.11-venv where python3 is older"
	echo "  Fedora:          sudo dnf install python3.13"
	echo "  elsewhere:       any Python 3.11-3.13; name it with  make PYTHON=/path/to/python3"
	exit 1
fi >&2
endef

# Installs $(1) into .venv, and builds .venv first if it is missing or not whole. $(BUSY) stands while pip
# works, so that the next make notices a kill at any moment. Where pip stopped before it changed anything
# (no network, no such version), the environment is still good and stays.
define install
if ! { $(whole) && $(BIN)/python -m pip --version >/dev/null 2>&1; }; then
	$(find_python)
	echo "── building $(VENV) with $$python (Python $$version)"
	rm -rf $(VENV)
	"$$python" -m venv $(VENV)
fi
echo "── installing packages; the first time takes a minute or more, most of it for torch"
trap 'exit 130' INT TERM
trap 'grep -q "^Installing collected" $(LOG) || rm -f $(BUSY)' EXIT
touch $(BUSY)
: >$(LOG)
$(BIN)/python -m pip install --no-input --disable-pip-version-check --progress-bar off \
	$(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') -c constraints.txt -e '$(1)' 2>&1 \
	| tee $(LOG) \
	| sed -unE 's/^ *(Downloading|Using cached) ([A-Za-z0-9_.]+-[0-9][^-]*)-.*\(([0-9.]+ [MG]B)\).*/   \2 (\3)/p; s/^Installing collected packages.*/   unpacking/p' \
	|| {
		grep -E '^ *(ERROR|error):' $(LOG) || tail -n 20 $(LOG)
		echo "Installing the packages failed (all of pip's words: $(LOG))."
		echo "Check the network, the proxy settings and the free disk space, then run make again."
		exit 1
	} >&2
rm -f $(BUSY)
endef

$(STAMP_RUN): pyproject.toml constraints.txt
	@$(call install,.)
	touch $@

# What the tests need is more than what the demo needs: one installation makes both ready.
$(STAMP_TEST): pyproject.toml constraints.txt
	@$(call install,.[test])
	touch $(STAMP_RUN) $@
