# Two commands do everything on a fresh machine with Python 3.11 or newer and pip:
#   make demo   sets up, then decodes real prompts and shows how much faster it was
#   make test   sets up, then runs the tests
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
DEMO := $(VENV)/.demo

.PHONY: demo test check clean

demo: $(DEMO)
	$(VENV)/bin/paceline demo

test: $(INSTALLED)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" scripts/test

check: $(INSTALLED)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" scripts/check

clean:
	rm -rf $(VENV)

# Installed again when the dependencies change; the demo needs no tools for tests.
$(DEMO) $(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Paceline needs Python 3.11 or newer: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet -e '.$(if $(filter %.installed,$@),[dev])'
	@touch $@
