# On a new machine, run `make demo` or `make test`. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CMAKE := $(BIN)/cmake
CTEST := $(BIN)/ctest
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600

# CMake uses ccache if it is installed. The cache is outside the checkout and its paths
# are relative, so that several checkouts can share it. The other settings allow
# precompiled headers, and skip the preprocessor on a cache miss.
export CCACHE_DIR ?= $(HOME)/.cache/millstream/ccache
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime
export CCACHE_DEPEND ?= true
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= true

.PHONY: demo test build cpp asan tsan statistics python integrations tutorial soak \
    lint layers fuzz bench bench-against engine-bench clean

demo: build
	tools/system_packages.sh dataset-fashion-mnist
	$(BIN)/python examples/fashion_mnist.py

test: cpp python

# The virtual environment for building and testing. compileall compiles its modules on
# all cores; pip would use one.
$(VENV)/.ready: requirements-dev.txt tools/system_packages.sh
	tools/system_packages.sh build-essential ccache python3-venv python3-dev zlib1g-dev
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	    -r requirements-dev.txt
	-$(BIN)/python -m compileall -q -j $(JOBS) $(VENV)/lib >/dev/null 2>&1
	touch $@

# Builds the package in build/wheel and installs it into the environment.
build: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-build-isolation --no-deps .

# Runs the C++ tests with AddressSanitizer and UBSan.
cpp asan: PRESET := asan
# Runs the C++ tests that start threads, with ThreadSanitizer.
tsan: PRESET := tsan
cpp asan tsan: $(VENV)/.ready
	tools/system_packages.sh libgtest-dev zlib1g-dev
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --preset $(PRESET) \
	    -DMILLSTREAM_XLA_INCLUDE="$$($(BIN)/python tools/xla_include.py)"
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --build --preset $(PRESET) -j $(JOBS)
	$(CTEST) --preset $(PRESET) -j $(JOBS)

# Runs the statistical tests of the random orders, in a release build.
statistics: $(VENV)/.ready
	tools/system_packages.sh libgtest-dev zlib1g-dev
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --preset release
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --build --preset release -j $(JOBS) \
	    --target engine_statistics
	$(CTEST) --preset release -R engine_statistics --no-tests=error

# Runs the Python tests, the examples and the code in README.md.
python: build
	tools/system_packages.sh dataset-fashion-mnist
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Compares Millstream with the packages in integrations/, each in an environment of its
# own. The environments are kept in ~/.cache/millstream unless MILLSTREAM_ENVIRONMENTS is
# set.
integrations: build
	tools/system_packages.sh dataset-fashion-mnist
	integrations/run.sh

# Trains the network of the tutorial through four libraries, with their own loaders and
# with Millstream, and writes the tables and the chart of docs/tutorial.md.
tutorial: build
	tools/system_packages.sh dataset-fashion-mnist
	examples/tutorial/run.sh

# Runs thousands of epochs, loaders and interrupts to find leaks and rare failures.
soak: build
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m soak

lint: build layers
	tools/system_packages.sh clang-format
	clang-format --dry-run --Werror $$(git ls-files '*.cc' '*.h')
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p millstream
	$(PYTHON) benchmarks/report.py benchmarks/results/latest.json --check

layers:
	$(PYTHON) tools/layers.py
	$(PYTHON) tools/words.py

# Runs every fuzz target for FUZZ_SECONDS seconds.
fuzz: $(VENV)/.ready
	tools/system_packages.sh clang libclang-rt-14-dev zlib1g-dev
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --preset fuzz
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --build --preset fuzz -j $(JOBS)
	tools/fuzz.sh build/fuzz/engine/fuzz $(FUZZ_SECONDS) $(JOBS)

# Benchmarks the engine without Python.
engine-bench: $(VENV)/.ready
	tools/system_packages.sh libbenchmark-dev zlib1g-dev
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --preset bench
	PATH="$(abspath $(BIN)):$$PATH" $(CMAKE) --build --preset bench -j $(JOBS)
	build/bench/engine/benchmarks/engine_benchmarks

# Benchmarks Millstream against other loaders. `WORKLOAD=` and `CONTENDER=` select some by
# name or pattern. Only a run of everything updates the pages and the chart.
WORKLOAD ?= *
CONTENDER ?= *
bench: build
	tools/system_packages.sh dataset-fashion-mnist
	benchmarks/setup.sh
ifeq ($(WORKLOAD)$(CONTENDER),**)
	$(BIN)/python benchmarks/run.py --output benchmarks/results/latest.json
	$(BIN)/python benchmarks/report.py benchmarks/results/latest.json
	benchmarks/.venvs/plot/bin/python benchmarks/chart.py \
	    benchmarks/results/latest.json docs/images/benchmarks.svg
else
	$(BIN)/python benchmarks/run.py --workloads $(foreach w,$(WORKLOAD),'$(w)') \
	    --contenders $(foreach c,$(CONTENDER),'$(c)')
endif

# Benchmarks this checkout against another commit: `make bench-against COMMIT=69fe0cd`.
bench-against: build
	tools/system_packages.sh dataset-fashion-mnist
	$(BIN)/python benchmarks/against.py $(COMMIT) \
	    --workloads $(foreach w,$(WORKLOAD),'$(w)')

clean:
	rm -rf build $(VENV)
