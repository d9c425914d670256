# The one door: every job of the project, by hand and in CI.
# `make` lists the jobs. A job sets up what it needs; nothing is done twice.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
export PATH := $(PATH):$(HOME)/.cargo/bin

VENV := .venv
BIN := $(VENV)/bin
WORKSPACE := backends/rust_core
RUST_FILES := $(shell find $(WORKSPACE) -name '*.rs' -o -name 'Cargo.*')
INSPECTION := build/inspection/_rust_core_inspection.abi3.so
ARGS ?=

# The first interpreter that is new enough; `make PYTHON=...` chooses another one.
PYTHON_IS_NEW = -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	if $$name $(PYTHON_IS_NEW) 2>/dev/null; then echo $$name; break; fi; done)

.PHONY: help
help: ## List the jobs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' \
		| while IFS=$$'\t' read -r job text; do printf '  make %-10s %s\n' "$$job" "$$text"; done

.PHONY: check
check: setup ## Compare our two cores for about a minute: the main job
	@$(BIN)/treedrift check $(ARGS)

.PHONY: test
test: setup ## Run the Python tests; ARGS="-k name" goes to pytest
	@$(BIN)/pytest -n auto -m "not released and not browser" $(ARGS)

.PHONY: test-rust
test-rust: $(VENV)/ready ## Run the Rust tests
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --manifest-path $(WORKSPACE)/Cargo.toml $(ARGS); \
		cargo test --quiet --doc --manifest-path $(WORKSPACE)/Cargo.toml -p tree-core; \
	else \
		cargo test --quiet --manifest-path $(WORKSPACE)/Cargo.toml $(ARGS); \
	fi

.PHONY: lint
lint: setup ## Check form, types, imports and the Rust lints; change nothing
	@failed=; \
	lint() { echo "$$*"; "$$@" || failed=1; }; \
	lint $(BIN)/ruff check --quiet; \
	lint $(BIN)/ruff format --check --quiet; \
	lint $(BIN)/mypy; \
	lint $(BIN)/lint-imports --no-cache pyproject.toml; \
	lint cargo fmt --manifest-path $(WORKSPACE)/Cargo.toml --all --check; \
	lint cargo clippy --quiet --manifest-path $(WORKSPACE)/Cargo.toml --workspace --all-targets \
		-- -D warnings; \
	lint cargo clippy --quiet --manifest-path $(WORKSPACE)/Cargo.toml --workspace --all-targets \
		--all-features -- -D warnings; \
	[ -z "$$failed" ]

.PHONY: format
format: $(VENV)/ready ## Put Python and Rust into their form
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix
	@cargo fmt --manifest-path $(WORKSPACE)/Cargo.toml --all

.PHONY: bench
bench: setup ## Measure the cores on a request log; writes build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: setup
setup: build/native.stamp build/inspection.stamp ## Set the machine up: .venv, dependencies, Rust build

.PHONY: wheel
wheel: $(VENV)/ready ## Build the wheel into build/wheels
	@$(BIN)/maturin build --release --out build/wheels

.PHONY: clean
clean: ## Remove everything generated, except .venv
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	rm -f treedrift/*.so $(VENV)/ready
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# --- What the jobs stand on ----------------------------------------------------------------

.PHONY: toolchain
toolchain:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer is missing. Install it from python.org or your package" >&2; \
		echo "manager, or name one: make PYTHON=/path/to/python3.11" >&2; exit 3; fi
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$(PYTHON) cannot make virtual environments. Install its venv package" >&2; \
		echo "(Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 3; fi
	@if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then \
		echo "Rust is missing. Install cargo and rustc from https://rustup.rs and run make" >&2; \
		echo "again." >&2; exit 3; fi
	@if ! command -v cc >/dev/null; then \
		echo "A C linker is missing (cc), which Rust needs. Install gcc or clang" >&2; \
		echo "(Debian and Ubuntu: apt-get install build-essential)." >&2; exit 3; fi

$(BIN)/maturin: | toolchain
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'maturin>=1.9,<2'

# The package in place, its command and its dependencies.
$(VENV)/ready: pyproject.toml | toolchain $(BIN)/maturin
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --extras dev,torch,reports,hypothesis
	@touch $@

# The production module, which goes to treedrift/.
build/native.stamp: $(RUST_FILES) $(VENV)/ready
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --skip-install
	@mkdir -p $(@D)
	@touch $@

# Inspection is a module of its own, beside the package and in no wheel. It has a target folder
# of its own too: the two builds differ in features and would push each other out of one.
build/inspection.stamp: $(RUST_FILES) build/native.stamp
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo build --release --quiet \
		--manifest-path $(WORKSPACE)/binding/Cargo.toml --target-dir build/cargo-inspection \
		--features pyo3/extension-module,inspection
	@mkdir -p $(dir $(INSPECTION))
	@for built in build/cargo-inspection/release/lib_rust_core.{so,dylib}; do \
		if [ -e $$built ]; then cp $$built $(INSPECTION).new && mv $(INSPECTION).new $(INSPECTION); fi; done
	@touch $@
