# Two commands: `make lab` opens the workbench, `make test` proves it. Both install into .venv, once.
#   make lab ARGS=--no-browser    print the address instead of opening a browser
#   make lab TORCH=cpu            where pip would fetch gigabytes of CUDA for a machine without a GPU
#   make lab PYTHON=python3.12    when python3 is older than 3.11

PYTHON ?= python3
BIN := .venv/bin

ifneq ($(filter-out cpu,$(TORCH)),)
$(error TORCH is "$(TORCH)", but only TORCH=cpu is known; leave it out for the build with CUDA)
endif

# uv is several times faster than pip. It ignores pip's variables: the one that names local files is handed over.
ifneq ($(shell command -v uv 2>/dev/null),)
INSTALL := uv pip install --python $(BIN)/python $(if $(TORCH),--torch-backend cpu)
ifdef PIP_FIND_LINKS
comma := ,
export UV_FIND_LINKS ?= $(subst $() $(),$(comma),$(strip $(PIP_FIND_LINKS)))
endif
else
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check \
  $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/cpu)
endif

.PHONY: lab test test-all check clean

lab: $(BIN)/installed-for-lab
	@$(BIN)/workbench lab $(ARGS)

test: check
	$(BIN)/python -m tests.parts $(if $(ARGS),,--quick) -m "not gpu" $(or $(ARGS),--ignore=tests/house)

# Also all cases of the tests that are marked `slow`: an hour. Run it before a release.
test-all: check
	$(BIN)/python -m tests.parts -m "not gpu" --ignore=tests/house

# The quick half: style, types, and the rules of the house (import contract, sizes, words).
check: $(BIN)/installed-for-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses=2 tests/house

# What make has made; never data/runs.
clean:
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/installed-for-lab: pyproject.toml | $(BIN)/pip
	$(INSTALL) -e .
	@touch $@

$(BIN)/installed-for-test: pyproject.toml | $(BIN)/pip
	$(INSTALL) -e '.[test]'
	@touch $@ $(BIN)/installed-for-lab

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.version_info >= (3, 11) or \
	  sys.exit("$(PYTHON) is Python " + v + ", but the workbench needs 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12")'
	@echo 'First time: the workbench and its libraries are installed into .venv, which takes a minute or a few.'
	@echo 'Downloads: JupyterLab, Dask, Altair, Arrow and the rest 0.3 GB; PyTorch for CPUs 0.2 GB. "make test" adds'
	@echo 'Triton and the test tools, 0.3 GB. On disk 2 GB, with "make test" 3 GB.'
ifneq ($(TORCH),cpu)
	@echo 'On Linux the usual PyTorch brings CUDA, gigabytes more: without a GPU stop here and say "make $(MAKECMDGOALS) TORCH=cpu".'
endif
	$(PYTHON) -m venv .venv
