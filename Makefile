# Everything runs in a virtual environment in the checkout, made when it is missing and brought up to date when
# pyproject.toml, the build files or the native core change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard cpp/*) CMakeLists.txt Modelfile.template pyproject.toml

.PHONY: demo test clean

demo: $(VENV)/.installed
	$(BIN)/dflash-gguf demo

test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses=auto --dist=loadfile

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
