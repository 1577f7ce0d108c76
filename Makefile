# Every target sets up what it needs in .venv; nothing else has to be installed by hand but
# Python 3.11, a C++20 compiler and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native CMakeLists.txt pyproject.toml -type f)
CMAKE := $(shell command -v cmake >/dev/null || echo cmake)

# What an extra of pyproject.toml lists, installed without building Nimble again.
listed = $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb')) \
	['project']['optional-dependencies']['$(1)'], sep='\n')"
extra = $(call listed,$(1)) | $(BIN)/pip install -q -r /dev/stdin torch==2.13.0

.PHONY: demo test native-test test-full test-gpu lint bench burdened bfloat16 overhead figures claims kernels starts steps gpu cluster-speed models zoo examples sanitize clean

demo: $(VENV)/built
	$(BIN)/nimble demo

test: lint native-test $(VENV)/models
	$(BIN)/pytest -m "not full" -n 2 --dist loadfile

test-full: lint $(VENV)/models
	$(BIN)/pytest -n 2 --dist loadfile

# Of the core without Python, with the kernels as they are built.
native-test: $(VENV)/built
	PATH="$(BIN):$$PATH" cmake --build $$(echo build/cp*) --target native_tests >/dev/null
	$$(echo build/cp*)/native/tests/native_tests

# Says what was skipped where there is no GPU.
test-gpu: $(VENV)/dev
	$(BIN)/pytest -m gpu

lint: $(VENV)/dev
	$(BIN)/ruff check src tests examples bench
	$(BIN)/ruff format --check src tests examples bench
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/bench
	$(BIN)/python bench/performance.py

burdened: $(VENV)/bench
	$(BIN)/python bench/burdened.py

bfloat16: $(VENV)/bench
	$(BIN)/python bench/bfloat16.py

overhead: $(VENV)/bench
	$(BIN)/python bench/overhead.py

figures: $(VENV)/built
	$(BIN)/python bench/figures.py

claims: $(VENV)/built
	$(BIN)/python bench/claims.py

kernels: $(VENV)/built
	$(BIN)/python bench/kernels.py

starts: $(VENV)/built
	$(BIN)/python bench/starts.py

steps: $(VENV)/built
	$(BIN)/python bench/steps.py

gpu: $(VENV)/built
	$(BIN)/python bench/gpu.py

cluster-speed: $(VENV)/built
	$(BIN)/python bench/cluster.py growth dally 0.9
	$(BIN)/python bench/cluster.py large

models: $(VENV)/models
	$(BIN)/python bench/models.py

zoo: $(VENV)/built
	$(BIN)/python bench/zoo.py

examples: $(VENV)/examples
	$(BIN)/python examples/train_images.py docs/train_images.svg
	$(BIN)/python examples/train_text.py docs/train_text.svg

sanitize:
	bash native/sanitize.sh

clean:
	rm -rf $(VENV) build

# torch first, by itself and pinned: Nimble's extension is compiled against it.
$(VENV)/torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0 scikit-build-core nanobind ninja $(CMAKE)
	touch $@

$(VENV)/built: $(VENV)/torch $(NATIVE)
	$(BIN)/pip install -q --no-build-isolation -e .
	touch $@

$(VENV)/dev: $(VENV)/built
	$(call extra,dev)
	touch $@

$(VENV)/models: $(VENV)/dev
	$(call extra,models)
# timm needs torchvision, which PyPI has built for CUDA only. Where that cannot load, its presence
# breaks transformers: so the two stand beside the environment, where only the tests look.
	$(call listed,timm) | $(BIN)/pip install -q --no-deps --upgrade --target $(VENV)/timm -r /dev/stdin
	touch $@

$(VENV)/examples: $(VENV)/built
	$(call extra,examples)
	touch $@

$(VENV)/bench: $(VENV)/built
	$(call extra,bench)
	touch $@
