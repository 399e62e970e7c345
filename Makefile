# SPDX-License-Identifier: Apache-2.0
# The project's commands, built on the presets of CMakePresets.json. On Debian they install missing packages.
.DEFAULT_GOAL := release
.PHONY: help release debug cuda cuda-matrix bundle run test test-programs check check-all soak fuzz mutants sanitize sanitize-all sanitize-threads lint format bench install deps clean

PREFIX ?= /usr/local
COEUS_ARCH ?=
# openmpi or mpich, on a Debian that has both
COEUS_MPI ?=
export COEUS_MPI
# for `make cuda`: a folder with a complete build, such as build, whose libraries are linked instead of built again
COEUS_LIBRARIES_OF ?=
# $(call configure,FOLDER,PRESET,OPTIONS) runs CMake for a new folder or new options: Ninja runs it again by itself when
# CMake's files change
configure = if [ ! -f $(1)/build.ninja ] || [ -n '$(COEUS_ARCH)$(COEUS_MPI)$(COEUS_WARNINGS_AS_ERRORS)$(3)' ]; then tools/check_cmake.sh && \
    cmake --preset $(2) $(if $(COEUS_ARCH),-DCOEUS_ARCH=$(COEUS_ARCH)) $(if $(COEUS_MPI),-DCOEUS_MPI=$(COEUS_MPI)) \
    $(3) > /dev/null; fi

help:
	@echo 'make             build the program, build/coeus (release)'
	@echo 'make run         build, then pre-train a small Llama on real English text and show text that it generates'
	@echo 'make test        build the tests and run the short list (10 to 25 minutes); SEED=N draws another part of the costly ones'
	@echo 'make check       what continuous integration runs, on this working tree: lint, the tests that the changes reach and'
	@echo '                 a part of the others, GPU code, sanitizers (5 to 45 minutes)'
	@echo 'make check-all   the same, and nothing is left out (an hour); if all is green it writes tests/checked.txt'
	@echo 'make soak        the long tests (hours): every mesh with every combination of options, restarts from each mesh on each other;'
	@echo '                 runs that are killed, stopped, started twice or out of disk space; disturbed Slurm jobs'
	@echo 'make fuzz        run the file readers under libFuzzer, each for FUZZ_SECONDS (default 600)'
	@echo 'make mutants     plant each bug of tests/mutants/list.txt in a copy and check that the tests find it (hours)'
	@echo 'make sanitize    run the unit tests under the address and undefined-behaviour sanitizers, of the costly ones a part;'
	@echo '                 SANITIZE_FOLDERS="io data": only these folders of tests/unit'
	@echo 'make sanitize-all       run all unit tests under these sanitizers'
	@echo 'make sanitize-threads   run the unit tests of data loading, which uses several threads, under the thread sanitizer'
	@echo 'make lint        check format, layering, file rules, prose and documents, and run clang-tidy'
	@echo 'make format      format the sources with clang-format'
	@echo 'make bench       measure training steps, compared with PyTorch, and the kernels'
	@echo 'make debug       build with checks and symbols, build-debug/coeus'
	@echo 'make cuda        build with the kernels for NVIDIA GPUs, build-cuda/coeus (doc/gpu.md)'
	@echo 'make bundle      pack such a build as a folder and .tar.zst, for machines with only driver and CUDA libraries'
	@echo 'make cuda-matrix compile the kernels for five GPUs (4 minutes)'
	@echo 'make install     copy program, library, man page, decks and documents to PREFIX (default /usr/local)'
	@echo 'make deps        install the packages that all these commands need (Debian)'
	@echo 'make clean       delete the build folders, but not runs and checkpoints'
	@echo
	@echo 'COEUS_ARCH=x86-64-v3 (or x86-64-v4) builds for nodes with different CPUs instead of for this machine;'
	@echo 'a build folder keeps the last value that was given'

release:
	@tools/deps.sh build
	@$(call configure,build,release)
	@cmake --build --preset release

debug:
	@tools/deps.sh build
	@$(call configure,build-debug,debug)
	@cmake --build --preset debug

cuda:
	@tools/deps.sh build test
	@$(call configure,build-cuda,cuda,-DCOEUS_LIBRARIES_OF=$(abspath $(COEUS_LIBRARIES_OF)))
	@cmake --build --preset cuda --target all coeus_gpu_tests gpu_rows gpu_gemm gpu_attention gpu_grouped gpu_collectives
	@# the tables are of these objects, not of those that files left behind which moved
	@ninja -C build-cuda -t cleandead >/dev/null
	@tools/kernel_resources.py build-cuda || [ $$? = 77 ]
	@tools/kernel_instructions.py build-cuda || [ $$? = 77 ]

# with TOOLKITS="FOLDER ...": the files that call CUDA's libraries for these versions of CUDA too; GPUS="89 120" chooses
# the GPUs
TOOLKITS ?=
GPUS ?=
export GPUS
cuda-matrix:
	@tools/deps.sh build
	@tools/compile_matrix.sh $(TOOLKITS) || [ $$? = 77 ]

# the scripts for GPUs start these, and coeus
BUNDLE_PROGRAMS = tests/test_gpu tests/mpi_gpu tests/test_gpu_program bench/gpu_rows bench/gpu_gemm bench/gpu_attention \
    bench/gpu_grouped bench/gpu_collectives
bundle: BUNDLE = build-bundle-cuda$(shell tools/find_nvcc.sh --major)
bundle:
	@tools/deps.sh build test bundle
	@tools/bundle.sh --check
	@$(call configure,$(BUNDLE),bundle,-B $(BUNDLE))
	@cmake --build $(BUNDLE) --target coeus_program $(notdir $(BUNDLE_PROGRAMS))
	@tools/bundle.sh $(BUNDLE) $(addprefix $(BUNDLE)/,$(BUNDLE_PROGRAMS))

run:
	@tools/deps.sh build run
	@$(call configure,build,release)
	@cmake --build --preset release --target coeus_program
	@tools/run.sh

test: test-programs
	@tools/test.sh build

TEST_PROGRAMS ?= coeus_tests
test-programs:
	@tools/deps.sh build test
	@$(call configure,build,release)
	@cmake --build --preset release --target $(TEST_PROGRAMS)

check:
	@.ci/run

check-all:
	@.ci/run all

# SOAK_RANKS=4: only the tests with 4 ranks
soak:
	@tools/deps.sh build test
	@$(call configure,build,release)
	@cmake --build --preset release --target coeus_soak_tests
	@tools/test.sh build --build-config Soak --label-regex soak --tests-regex '$(SOAK_RANKS) ranks'

with_clang = -DCMAKE_CXX_COMPILER=$$(tools/clang.sh clang++) -DCMAKE_C_COMPILER=$$(tools/clang.sh clang)
FUZZ_SECONDS ?= 600
fuzz:
	@tools/deps.sh build sanitize
	@$(call configure,build-fuzz,fuzz,$(with_clang))
	@cmake --build --preset fuzz --target coeus_fuzzers
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

# MUTANTS=REGEX: only the bugs whose names match; HOW='--ci --sample 120': of these 120, each with the tests that
# .ci/run would choose
MUTANTS ?=
HOW ?=
mutants:
	@tools/deps.sh build test
	@tests/mutants/plant.py --run build-mutants --only '$(MUTANTS)' $(HOW)

# `make sanitize` runs a part of the costly tests of tests/sanitized.txt, and kernels in one of their types each.
# SANITIZE_SEED=N chooses another one.
SANITIZE_SEED ?= 1
sanitize: export COEUS_CASES_SEED = $(SANITIZE_SEED)
sanitize: left_out = --exclude-regex "$$(tools/sanitized.py --seed '$(SANITIZE_SEED)')"
sanitize: sanitize-all
# of these folders of tests/unit, or of all
SANITIZE_FOLDERS ?=
empty :=
any_of = $(subst $(empty) $(empty),|,$(strip $(1)))
sanitize-all:
	@tools/deps.sh build test sanitize
	@$(call configure,build-asan,asan-ubsan,$(with_clang))
	@cmake --build --preset asan-ubsan --target $(if $(strip $(SANITIZE_FOLDERS)),$(addprefix test_,$(SANITIZE_FOLDERS)),coeus_unit_tests)
	@COEUS_REACH= COEUS_CHECK_ALL=1 tools/test.sh build-asan \
	    --tests-regex '^unit/$(if $(strip $(SANITIZE_FOLDERS)),($(call any_of,$(SANITIZE_FOLDERS))):)' $(left_out)

# OpenMP's own library is not instrumented, so the kernels' tests would give false alarms
sanitize-threads:
	@tools/deps.sh build test
	@$(call configure,build-tsan,tsan)
	@cmake --build --preset tsan --target test_data
	@TSAN_OPTIONS=ignore_noninstrumented_modules=1 build-tsan/tests/test_data

lint:
	@tools/deps.sh build test lint
	@$(call configure,build,release)
	@tools/lint.sh

format:
	@tools/deps.sh lint
	@command -v clang-format-14 > /dev/null || { echo 'make format: the sources are formatted with clang-format 14 (Debian 12), which was not found'; exit 2; }
	@find include src tests bench \( -name '*.?pp' -o -name '*.cu' -o -name '*.h' \) -print0 | xargs -0 clang-format-14 -i

bench:
	@tools/deps.sh build bench
	@$(call configure,build,release)
	@cmake --build --preset release --target coeus_program coeus_benchmarks
	@bench/run.sh

install: release
	@cmake --install build --prefix $(PREFIX)

deps:
	@tools/deps.sh

clean:
	rm -rf build build-debug build-cuda build-cuda-matrix build-bundle-cuda* build-asan build-tsan build-fuzz build-mutants
