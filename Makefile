# Two commands are all that there is to know:
#   make run MODEL=bert DEVICE=auto      the main job, in an environment of its own
#   make test                            tests of this checkout, in less than ten minutes on two cores
#   make test-core                       the fast ones, in less than a minute: run them while you work
#   make test-all                        the rest: devices, browsers, clusters, hostile input
#   make nightly                         `test-all` and the newest transformers: .ci/run leaves parts of them out
#   make test-extended                   before a release: more ways in which a cluster, a lab machine and ranks fail
#   make setup-qnn                       the environment of target qnn (.venv-qnn)
#   make setup-xla                       the environment of target tpu (.venv-xla)
#   make setup-web                       the environment of targets webgpu and webnn (.venv-web)
#   make setup-mcp                       hwcompat mcp with its client (.venv-mcp)
#   make setup-ray                       what running cells on a cluster needs (docs/FLEETS.md), into .venv
#   make release VERSION=0.2.0           checks, builds, commits and tags here (docs/RELEASING.md); DRY_RUN=1 looks alone
#   make mesh                            which model types can be split over four ranks (docs/measured/mesh.md)
#   make setup-upstream                  what transformers' own tests import (docs/UPSTREAM.md), into .venv
#   make setup-object-storage            what reads s3:// (docs/measured/evidence-at-scale.md), into .venv
#   make coverage                        which lines and branches the tests reach (docs/measured/coverage.md)
#   make setup-s3-server                 a server that speaks S3, for tests on this machine (.venv-s3)
# More: make lint | axe | test-gpu | gpu-session | fuzz | fuzz-inventory | test-threads | mutants | mutants-drawn | mutants-all | crashes | openvino-all | test-versions | test-newest | bench | profiles | recipes | audit | constraints | package | test-package | clean
# make run PYTHON=/path/to/python ... uses that environment as it is and installs nothing.
# ARGS="..." hands on further options, BASE_PYTHON=... makes .venv from another interpreter.

export MODEL ?= bert
export DEVICE ?= auto
ARGS ?=
VENV := .venv
BUNDLE := .venv-bundle
OWN := $(VENV)/bin/python
BASE_PYTHON ?= python3
VERSIONS ?= 5.23.0 4.57.6
# What requirements bring along is pinned too: without hashes, since the same pins serve other systems, Pythons and builds.
PIP := -m pip install --quiet --disable-pip-version-check
PINNED := $(PIP) -c constraints.txt
# What `--group` of dependency groups needs in each environment.
GROUPS := $(PIP) --no-deps pip==26.3

# The environment of a target `FOLDER/.ready`, and the line that lets it use the packages of .venv too.
define NEW_VENV
	@test -x $(@D)/bin/python || $(BASE_PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(GROUPS)
endef
define ON_TOP
	@$(OWN) -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	    > "$$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
endef

.PHONY: .types help run axe test test-core test-all test-change nightly test-extended coverage test-gpu gpu-session fuzz fuzz-inventory test-threads lint mutants mutants-drawn mutants-all mutants-code mutants-again \
    mutants-deceits mutants-forgeries mutants-page crashes bench docs docs-check recipes test-versions test-newest setup \
    report-model setup-qnn run-qnn setup-rivals setup-profiles profiles setup-xla setup-tensorflow setup-mcp run-xla setup-web run-web openvino-all setup-upstream setup-ray \
    setup-object-storage setup-s3-server evidence-growth mesh pool \
    bundle-environment audit constraints package test-package release clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

ifdef PYTHON
run:
	@"$(PYTHON)" -m hardware.requirements requirements.txt
	@"$(PYTHON)" run_test_generation.py --model "$$MODEL" --device "$$DEVICE" --run $(ARGS)
else
run: $(VENV)/.ready
	@$(OWN) run_test_generation.py --model "$$MODEL" --device "$$DEVICE" --run $(ARGS)
endif

# Two workers with a thread each: with more threads than cores, torch's threads wait for one another (four times as long).
PYTEST := OMP_NUM_THREADS=1 $(OWN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.ready-dev
	$(PYTEST) test/core test/unit test/meta test/recorded -m "not extended" $(ARGS)

test-core: $(VENV)/.ready-dev
	$(PYTEST) test/core $(ARGS)

# What neither of these runs: whole commands on real devices, browsers, clusters, and hostile input.
test-all: $(VENV)/.ready-dev bundle-environment
	$(PYTEST) test/device test/browser test/fuzz test/gpu -m "not extended" $(ARGS)

# Of these, what each change must pass.
test-change: $(VENV)/.ready-dev bundle-environment
	$(PYTEST) test/device test/browser test/fuzz test/gpu -m "not extended and not nightly" $(ARGS)

# With what `.ci/run` leaves out because it takes long.
nightly: test-newest test-all

# What takes long and is asked before a release: more ways in which a cluster, a lab machine, ranks and browsers fail.
test-extended: $(VENV)/.ready-dev
	$(PYTEST) test -m extended $(ARGS)

# Models on this machine's GPU; ARGS="--backend cuda" asks one target alone. Skipped by name where there is none.
ifdef PYTHON
test-gpu:
	"$(PYTHON)" -m pytest test/gpu -W default $(ARGS)
else
test-gpu: $(VENV)/.ready-dev
	$(OWN) -m pytest test/gpu $(ARGS)
endif

# On a machine with one GPU, with its own Python (torch, transformers): all that is proven there, in one packed folder.
gpu-session:
	"$(or $(PYTHON),python3)" -m benchmarks.gpu_session $(ARGS)

# Accessibility of the product's pages and, after `make docs`, of the site: in light, dark and 400 pixels. Needs npm and Chromium.
axe: $(VENV)/.ready-dev
	@mkdir -p .venv-axe && cp test/browser/axe/package*.json .venv-axe/
	@cd .venv-axe && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	AXE=.venv-axe/node_modules/axe-core/axe.min.js $(PYTEST) test/browser/test_axe.py $(ARGS)

# Hostile and broken input of every kind (docs/SECURITY.md): so many in all; `make test-all` tries over 5,000.
FUZZ_EXAMPLES ?= 50000
fuzz: $(VENV)/.ready-dev
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(OWN) -m pytest test/fuzz -n 2 --dist loadfile $(ARGS)

# Of these 2,000 broken outputs of tools for each of eight vendors.
fuzz-inventory: $(VENV)/.ready-dev
	FUZZ_EXAMPLES=16000 $(OWN) -m pytest test/fuzz/test_tool_outputs.py -n 2 $(ARGS)

# Sixteen threads over eight simulated devices for a minute, NVIDIA's and AMD's.
test-threads: $(VENV)/.ready-dev
	THREAD_SECONDS=60 $(OWN) -m pytest test/unit/test_vendor_libraries.py -k threads -rP $(ARGS)

# Lines and branches that the tests of this machine reach, children included (docs/measured/coverage.md): three quarters of an hour.
coverage: $(VENV)/.ready-dev bundle-environment
	rm -rf .coverage && mkdir .coverage
	-$(OWN) -m coverage run -m pytest test -n 2 --dist loadfile --no-loadscope-reorder -q $(ARGS) | tee .coverage/said
	$(OWN) -m coverage combine --quiet
	$(OWN) -m coverage json --quiet -o .coverage/report.json
	$(OWN) -m benchmarks.covered keep .coverage/report.json --tests "$$(tail -1 .coverage/said | tr -d '=' | sed 's/ in .*//;s/^ *//')"
	$(OWN) -m benchmarks.covered page

lint: $(VENV)/.ready-dev .types
	$(OWN) -m ruff check .
	$(OWN) -m ruff format --check .
	$(OWN) -m mypy
	cd .types && ../$(VENV)/bin/lint-imports --no-logo ../pyproject.toml --cache-dir ../.import_linter_cache
	$(OWN) -m hardware.evidence.revisions check
	$(OWN) test/support/banned_words.py
	$(OWN) -m benchmarks.budget

# The packages as the wheel has them, in links: mypy and import-linter read `hwcompat` from the files of one folder.
.types:
	@rm -rf $@ && mkdir -p $@/hwcompat
	@ln -s $(addprefix ../../,hardware generators reports $(wildcard hwcompat/*)) $@/hwcompat

mutants: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants $(ARGS)

mutants-drawn: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants --draw 60 $(ARGS)

mutants-all: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants --all --clean 20 $(ARGS)

# Our own code, evidence and runs with one fault each; the results go into docs/evidence, `make mutants-page` tells them.
FOUND := docs/evidence
mutants-code: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants.code cover .mutants-covering.json
	-$(OWN) -m benchmarks.mutants.code run .mutants-covering.json --out $(FOUND)/mutants-code.jsonl --near $(ARGS)
	$(OWN) -m benchmarks.mutants.code run .mutants-covering.json --out $(FOUND)/mutants-code.jsonl --survivors --clean 20

# Some of these again, each put to the test that saw it before.
mutants-again: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants.code again $(FOUND)/mutants-code.jsonl $(ARGS)

mutants-deceits: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants.deceits --out $(FOUND)/mutants-deceits.jsonl $(ARGS)

mutants-forgeries: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants.forgeries --out $(FOUND)/mutants-forgeries.jsonl $(ARGS)

mutants-page: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mutants.page $(wildcard $(FOUND)/mutants-*.json $(FOUND)/mutants-*.jsonl) > docs/measured/mutants.md

# Kills, full disks, dying suites, folders that two runs share; cut off, it goes on where it was. An hour or two.
crashes: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.crashes --page docs/measured/crashes.md $(ARGS)

# Ours beside rivals of the package index, each in an environment of its own: docs/measured/benchmarks.md. A quarter of an hour, on
# an idle machine; ARGS="inventory" measures one part.
bench: $(VENV)/.ready-dev setup-rivals
	$(OWN) -m benchmarks.side_by_side run $(ARGS)
	$(OWN) -m benchmarks.side_by_side page

setup-rivals: .venv-rival-warpt/.ready .venv-rival-torchbridge/.ready .venv-rival-optimum-benchmark/.ready

.venv-rival-warpt/.ready: pyproject.toml
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --group rival-warpt
	@touch $@

.venv-rival-torchbridge/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group rival-torchbridge
	@touch $@

.venv-rival-optimum-benchmark/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group rival-optimum-benchmark
	@$(@D)/bin/python $(PIP) --no-deps transformers==4.57.6 huggingface-hub==0.36.2
	@touch $@

# What the slowest commands spend their time on: docs/measured/profiles.md. Ten minutes; ARGS="--before DIR" times a checkout of an
# earlier version too, ARGS="cpu memory" measures these alone.
profiles: $(VENV)/.ready-dev setup-profiles
	$(OWN) -m benchmarks.profiles measure $(ARGS)
	$(OWN) -m benchmarks.profiles page

setup-profiles: .venv-profiles/.ready

.venv-profiles/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group profiles
	@touch $@

# The model that ranks error types of reports, from test/fixtures/reports: reports/report_model.npz. One minute.
report-model: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.report_model train

# The documentation as a site, in hwcompat-out/site: nothing is fetched, links are checked.
docs: .venv-docs/.ready $(VENV)/.ready .types
	$(OWN) -m benchmarks.pictures # after commands that made pages anew
	$(OWN) -m benchmarks.documentation links
	@mkdir -p hwcompat-out
	$(OWN) -m benchmarks.published_matrix html hwcompat-out
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build # not --quiet, which would hide warnings from strict

# All code in the documentation, run: does it print what the pages say? ARGS="docs/tutorial.md" asks one page.
docs-check: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.documentation check $(ARGS)

.venv-docs/.ready: pyproject.toml
	$(NEW_VENV)
	@$(@D)/bin/python $(PINNED) --group docs
	@touch $@

# Every type that transformers has a tensor plan for; an hour on two cores, and cut off it goes on where it was.
mesh: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.mesh run --out $(FOUND)/mesh.json $(ARGS)
	$(OWN) -m benchmarks.mesh figures --out $(FOUND)/mesh.json
	$(OWN) -m benchmarks.mesh page $(FOUND)/mesh.json > docs/measured/mesh.md

# 64 threads on the resource pool, seen from outside (docs/measured/resource-pool.md): a minute or two.
pool: $(VENV)/.ready-dev
	$(OWN) benchmarks/resource_pool.py --page docs/measured/resource-pool.md $(ARGS)

# What ships for the pinned version: read the diff.
recipes: $(VENV)/.ready-dev
	$(OWN) -m generators.recipes --ship

# Other versions of transformers with no file edited for them: a sample of model types on each, and the types whose numbers
# aren't those of the version that recipes ship for.
test-versions: $(VERSIONS:%=$(VENV)-transformers-%/.ready)
	@for version in $(VERSIONS); do \
	    $(VENV)-transformers-$$version/bin/python -m benchmarks.versions --sample 40 $(ARGS) || exit 1; \
	    $(VENV)-transformers-$$version/bin/python -m benchmarks.upgrades || exit 1; done

# The newest alone, and of its types those that the pinned version doesn't have.
test-newest: $(VENV)-transformers-$(firstword $(VERSIONS))/.ready
	$(VENV)-transformers-$(firstword $(VERSIONS))/bin/python -m benchmarks.versions --new --sample 8 $(ARGS)

setup: $(VENV)/.ready-dev

$(VENV)/.ready: requirements.txt constraints.txt
	@echo "Setting up $(VENV): about 2 GB and some minutes, once" >&2
	@test -x $(OWN) || $(BASE_PYTHON) -m venv $(VENV)
	@$(OWN) $(GROUPS)
	@$(OWN) $(PINNED) -r requirements.txt
	@touch $@

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.ready
	@$(OWN) $(PINNED) -r requirements.txt --group dev
	@touch $@

# An environment for another version of transformers: it holds that and what it needs otherwise, the rest is .venv's.
$(VENV)-transformers-%/.ready: $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) transformers==$*
	@touch $@

# The environment of target qnn, and what exporting to ONNX needs in .venv: 450 MB, a minute on a fast line.
setup-qnn: .venv-qnn/.ready

.venv-qnn/.ready: pyproject.toml $(VENV)/.ready
	@$(OWN) $(PINNED) --group onnx
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --no-deps --group qnn-environment
	@touch $@

# What transformers' own tests import beyond the library: a second, and no more than a few hundred kB.
setup-upstream: $(VENV)/.ready
	@$(OWN) $(PINNED) --group upstream

# What running cells on a cluster needs: Ray shares .venv with the suites that it runs. 230 MB.
setup-ray: $(VENV)/.ready
	@$(OWN) $(PINNED) --group ray

# What reads evidence in buckets that speak S3: 30 MB. It changes no version of what is there.
setup-object-storage: $(VENV)/.ready
	@$(OWN) $(PIP) --no-deps --group object-storage

# A server that speaks S3, for tests and benchmarks: bound to 127.0.0.1, on top of .venv.
setup-s3-server: .venv-s3/.ready

.venv-s3/.ready: pyproject.toml $(VENV)/.ready
	@$(OWN) $(PIP) --no-deps --group object-storage
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group s3-server
	@touch $@

# How commands grow from one to ten million lines of evidence: 14 GB of disk, an hour.
GROWTH_OUT ?= hwcompat-out/growth
evidence-growth: setup-s3-server
	$(OWN) -m benchmarks.evidence_growth --folder $(GROWTH_OUT) --server .venv-s3/bin/moto_server \
	    --out $(FOUND)/growth.json --page docs/measured/evidence-at-scale.md $(ARGS)

# Two models on QNN's emulator, strictly: 1 where a check fails or anything would run on the host.
run-qnn: setup-qnn
	$(OWN) run_test_generation.py --model bert --model vit --device qnn:emulator --run $(ARGS)

# The environment of target tpu: 450 MB on top of .venv, whose torch it takes.
setup-xla: .venv-xla/.ready

.venv-xla/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group xla-environment
	@touch $@

# TensorFlow for hwcompat devices stress --library tensorflow.
setup-tensorflow: .venv-tensorflow/.ready

.venv-tensorflow/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group tensorflow-environment
	@touch $@

# The server of hwcompat mcp and its client, on top of .venv.
setup-mcp: .venv-mcp/.ready

.venv-mcp/.ready: pyproject.toml $(VENV)/.ready
	$(NEW_VENV)
	$(ON_TOP)
	@$(@D)/bin/python $(PIP) --no-deps --group mcp-environment
	@touch $@

# Two models on XLA's CPU client, which stands for no TPU: 1 where a check fails or anything would run beside XLA.
run-xla: setup-xla
	$(OWN) run_test_generation.py --model bert --model vit --device tpu:xla-cpu --run $(ARGS)

# The environment of targets webgpu and webnn: Playwright, ONNX Runtime's WebGPU build, and from npm ONNX Runtime Web and
# the Chromium that has WebNN. WebGPU's Chromium is the system's, or what HWCOMPAT_CHROMIUM names. 600 MB.
WEB := hardware/workers/web

setup-web: .venv-web/.ready

.venv-web/.ready: pyproject.toml $(WEB)/package-lock.json $(WEB)/unpack.mjs $(VENV)/.ready
	@$(OWN) $(PINNED) --group onnx
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --no-deps --group web-environment
	@mkdir -p .venv-web/web && cp $(WEB)/package.json $(WEB)/package-lock.json .venv-web/web/
	@cd .venv-web/web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@node $(WEB)/unpack.mjs .venv-web/web/node_modules/@sparticuz/chromium .venv-web/web/chromium-webnn
	@touch $@

# Two models in each of the two browsers: 1 where a check fails.
run-web: setup-web
	$(OWN) run_test_generation.py --model bert --model vit --device webgpu --device webnn --run $(ARGS)

# Every type on OpenVINO, what its precisions cost and which devices it takes, and docs/measured/openvino.md from that: hours.
# Cut off, it goes on where it was when started again.
OPENVINO_OUT ?= hwcompat-out/openvino
OPENVINO_RUN = $(OWN) run_test_generation.py --run --resume --output-dir $(OPENVINO_OUT)/$@/suites \
    --evidence $(OPENVINO_OUT)/$@/evidence --report-dir $(OPENVINO_OUT)/$@/reports $(ARGS)
TEN := $(foreach type,bert gpt2 llama t5 vit clip whisper resnet mixtral mamba,--model $(type))
OPENVINO_PARTS := openvino-types openvino-float16 openvino-int8 openvino-devices

.PHONY: $(OPENVINO_PARTS)

openvino-all: $(OPENVINO_PARTS)
	$(OWN) -m benchmarks.target_table openvino --keep $(OPENVINO_PARTS:%=--evidence $(OPENVINO_OUT)/%/evidence) > docs/measured/openvino.md

# Failing cells are what is looked for: exit code 1 says that there are some.
openvino-types: $(VENV)/.ready
	$(OPENVINO_RUN) --priority all --device openvino || test $$? -eq 1

openvino-float16 openvino-int8: openvino-%: $(VENV)/.ready
	$(OPENVINO_RUN) $(TEN) --device openvino --precision $* || test $$? -eq 1

openvino-devices: $(VENV)/.ready
	$(OPENVINO_RUN) --model bert --model vit $(foreach name,CPU GPU NPU AUTO HETERO,--device openvino:$(name)) || test $$? -eq 1

# torch, transformers and pytest alone, as on a machine that a bundle is carried to
bundle-environment: $(BUNDLE)/.ready

$(BUNDLE)/.ready: pyproject.toml
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --group bundle
	@touch $@

# Advisories about what we depend on. Exit code of the command: 0 none, 1 some, 5 a service couldn't be asked about all.
audit: $(VENV)/.ready .venv-audit/.ready
	$(OWN) -m benchmarks.dependencies audit --pip-audit .venv-audit/bin/pip-audit

.venv-audit/.ready: pyproject.toml
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --group audit
	@touch $@

# After a change of requirements: empty constraints.txt and remove .venv first, and read the diff.
constraints: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.dependencies constraints > constraints.txt.new && mv constraints.txt.new constraints.txt

# The wheel and the sdist, in dist/: built in an environment of their own, looked at by twine and by our tests.
package: $(VENV)/.ready-dev .venv-package/.ready
	@rm -rf dist
	@PIP_CONSTRAINT="$(CURDIR)/constraints.txt" .venv-package/bin/python -m build --outdir dist
	@.venv-package/bin/python -m twine check --strict dist/*
	$(OWN) -m pytest test/device/test_package.py --built=dist

.venv-package/.ready: pyproject.toml
	$(NEW_VENV)
	@$(@D)/bin/python $(PIP) --group package
	@touch $@

# The wheel with its extra in a clean environment away from the repository, and a user's commands there. 2 GB, minutes;
# kept for the next time in CLEAN.
CLEAN ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hwcompat-clean-environment
test-package: package
	@test -x "$(CLEAN)/bin/python" || $(BASE_PYTHON) -m venv "$(CLEAN)"
	@"$(CLEAN)/bin/python" $(PINNED) -c requirements.txt "$$(ls dist/*.whl)[openvino]"
	@"$(CLEAN)/bin/python" $(PINNED) --no-deps --force-reinstall dist/*.whl
	$(OWN) -m pytest test/device/test_installed.py --clean-environment="$(CLEAN)" -rP

release: $(VENV)/.ready-dev
	$(OWN) -m benchmarks.release $(if $(DRY_RUN),--dry-run) "$(VERSION)"

clean:
	rm -rf .types .import_linter_cache .mypy_cache .ruff_cache .pytest_cache test/.pytest_cache dist
