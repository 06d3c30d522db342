# make repro   sets everything up and runs the graph          make test   sets everything up and runs the tests
# make lint    format, lint and types                          make graph  mends the lists in dvc.yaml
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export DVC_NO_ANALYTICS := true

.PHONY: setup repro test lint graph clean

setup: $(VENV)/.installed

# torch first and alone: asked for beside the others, pip may take a build with several GB of CUDA packages.
$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "editjudge needs Python 3.11: none found as $(PYTHON); say make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

repro: setup
	dvc repro
	@echo && dvc metrics show metrics/*.json && dvc plots show -o dvc_plots >/dev/null
	@echo && echo "Metrics: metrics/   Plots: dvc_plots/index.html   Leaderboard: metrics/leaderboard.json   Judge: models/judge/"

# Two processes: one runs the whole graph, the other all else.
test: setup
	python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=5

lint: setup
	ruff format --check .
	ruff check .
	mypy
	python -m editjudge.commands.graph

graph: setup
	python -m editjudge.commands.graph --write

clean:
	rm -rf $(VENV) work dvc_plots
