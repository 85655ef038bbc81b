# Everything runs in a virtual environment in the checkout, made when it is missing and brought up to date when
# pyproject.toml, the build files or the native core change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DRAFTER := build/demo-drafter
DRAFTER_RECIPE := --steps 6000 --max-tokens 128 --sampled 0.2 --temperature 0.7 -c 512 --parallel 48
NATIVE := $(wildcard cpp/*) CMakeLists.txt Modelfile.template pyproject.toml

.PHONY: demo demo-drafter test test-serve test-train clean

demo: $(VENV)/.installed
	$(BIN)/dflash-gguf demo

test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses=auto --dist=loadfile

# With real clients and a browser: OpenAI's package, llm, curl, z-lab's dflash, schemathesis, Chromium.
test-serve: $(VENV)/.installed-serve
	$(BIN)/pytest tests/serve

test-train: $(VENV)/.installed-train
	$(BIN)/mypy
	$(BIN)/pytest tests/train

# The demo's drafter anew: 46 minutes on 2 cores with nothing else running (docs/train.md); goes on where it stopped.
demo-drafter: $(VENV)/.installed-train
	mkdir -p $(DRAFTER)
	$(BIN)/python benchmarks/demo_prompts.py > $(DRAFTER)/prompts.jsonl
	$(BIN)/dflash-gguf train -m "$$($(BIN)/python -c 'from dflash_gguf.demo.pair import target_file as f; print(f())')" \
		$$($(BIN)/python -c 'from dflash_gguf.demo.prompts import HELD_OUT, SEED; print("--seed", SEED, "--held-out", HELD_OUT)') \
		--prompts $(DRAFTER)/prompts.jsonl -o $(DRAFTER)/checkpoint --cache $(DRAFTER)/corpus --resume $(DRAFTER_RECIPE)
	$(BIN)/python benchmarks/demo_drafter.py $(DRAFTER)/checkpoint

$(VENV)/.installed-serve: $(VENV)/.installed tests/serve/install.sh
	tests/serve/install.sh $(VENV)
	touch $@

$(VENV)/.installed-train: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group train
	$(BIN)/python -m pip install --quiet --no-deps dflash==0.1.0
	touch $@

$(VENV)/.installed: $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit("dflash-gguf needs Python 3.11 or newer: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@echo "installing into $(VENV); the first time this builds llama-cpp-python, which takes several minutes"
	$(BIN)/python -m pip install --quiet --group build
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[demo]" --group dev
	touch $@

clean:
	rm -rf $(VENV) build
