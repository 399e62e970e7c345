// SPDX-License-Identifier: Apache-2.0
// What a run says about its attention kernels at the start, with cuDNN and with stand-ins that lack
// something.
#include "coeus/comm/mpi.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/product_options.hpp"
#include "coeus/session/attention_choice.hpp"
#include "coeus/setup/run_options.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// Training of 2 x 64 tokens in `type`, with document masks or without.
std::vector<AttentionCall> calls_of(Dtype type, bool documents) {
    const AttentionShape s = {2, 64, 4, 2, 16, 0.25};
    const Tensor wide(nullptr, type, {128, 64}), narrow(nullptr, type, {128, 32}),
        start = documents ? Tensor(nullptr, Dtype::i32, {128}) : Tensor();
    return {{s, wide, wide, narrow, narrow, start, {}, {}, {}, {}, false},
            {s, wide, wide, narrow, narrow, start, wide, narrow, narrow, wide, true}};
}

struct Start {
    std::string cudnn = "stand-in", asked = "auto";
    bool deterministic = true, documents = false;
    Dtype type = Dtype::bf16;
};

AttentionReport report_of(const Start& start) {
    setenv("COEUS_CUDNN", start.cudnn.c_str(), 1);
    const Communicator world = Communicator::world("world");
    Config config;
    config.kernels.attention = start.asked;
    const AttentionLibrary library = attention_library(config, world, the_gpu());
    Exec exec(the_gpu());
    exec.cudnn_bytes = library.cudnn ? cudnn_bytes(config) : 0;
    exec.deterministic = start.deterministic;
    return choose_attention(config, world, library, exec, calls_of(start.type, start.documents));
}

}  // namespace

TEST_CASE("attention: cuDNN computes both directions if it can") {
    const AttentionReport report = report_of({});
    CHECK(report.text == "cuDNN 9.19.0, forward and backward");
    CHECK(report.warnings.empty());
    REQUIRE(report.details.size() == 2);
    CHECK_THAT(report.details[1],
               Contains("Attention of 2 x 64 tokens, 4 heads of width 16, backward: cuDNN's engine 1"));
    CHECK(report_of({.asked = "own"}).text == "our own kernels");
    CHECK(report_of({.asked = "mma"}).text == "our own kernels by mma");
    const AttentionReport forward = report_of({.asked = "cudnn_forward"});
    CHECK(forward.text ==
          "cuDNN 9.19.0, forward; our own kernels, backward (kernels.attention = "
          "\"cudnn_forward\")");
    CHECK(forward.warnings.empty());
}

// Ranks beside rank 0 have no folder, and would take cuDNN's backward. The second backward cannot be
// measured, since our own kernels have no room for it: it is cuDNN's, whatever the first one is.
TEST_CASE("attention: all ranks take the backward that rank 0 has measured, if the deck leaves the choice") {
    setenv("COEUS_CUDNN", "stand-in", 1);
    const Communicator world = Communicator::world("world");
    const TemporaryFolder folder;
    const auto call = [](int64_t sequence, bool backward) {
        const AttentionShape s = {2, sequence, 4, 2, 64, 0.125};
        const Tensor wide(nullptr, Dtype::bf16, {2 * sequence, 256}),
            narrow(nullptr, Dtype::bf16, {2 * sequence, 128});
        return backward ? AttentionCall{s, wide, wide, narrow, narrow, {}, wide, narrow, narrow, wide, true}
                        : AttentionCall{s, wide, wide, narrow, narrow, {}, {}, {}, {}, {}, false};
    };
    const std::vector<AttentionCall> calls = {call(64, false), call(64, true), call(1024, true)};
    const int64_t room = int64_t(1) << 20;  // the last call needs this for dq alone, and more
    const auto report = [&](const char* asked) {
        Config config;
        config.kernels.attention = asked;
        const AttentionLibrary library = attention_library(config, world, the_gpu());
        Exec exec(the_gpu());
        exec.cudnn_bytes = cudnn_bytes(config);
        exec.workspace = Arena(room, "workspace", the_gpu().memory());
        set_product_options(exec, {.folder = world.rank() == 0 ? folder.path() : ""});
        return choose_attention(config, world, library, exec, calls);
    };
    report("auto");
    const std::string by_cudnn = "cuDNN 9.19.0, forward and backward";
    for (const uint64_t own : {1, 0}) {
        if (world.rank() == 0)
            for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
                if (auto kept = cuda::KeptAlgorithm::read(entry.path())) {
                    kept->algorithm = {own};
                    std::ofstream(entry.path()) << kept->text();
                }
        const AttentionReport is = report("auto");
        CHECK(is.warnings.empty());
        CHECK_THAT(is.details.back(), Contains("2 x 1024 tokens") && Contains("cuDNN's engine"));
        if (own == 1)
            CHECK_THAT(is.text,
                       Catch::StartsWith("cuDNN 9.19.0, forward and backward (in part) (faster than cuDNN's, "
                                         "as kept in "));
        else
            CHECK(is.text == by_cudnn);
        CHECK(report("cudnn").text == by_cudnn);
    }
}

TEST_CASE("attention: what cuDNN refuses is a warning with the reason") {
    const AttentionReport old = report_of({.cudnn = "stand-in-old"});
    CHECK(old.text == "cuDNN 9.0.0, forward; our own kernels, backward");
    REQUIRE(old.warnings.size() == 1);
    CHECK(old.warnings[0] ==
          "attention of 2 x 64 tokens, 4 heads of width 16, backward, is computed by our own "
          "kernels: the backward needs cuDNN 9.6 or newer");

    const AttentionReport without = report_of({.cudnn = "stand-in-without-nvrtc"});
    CHECK(without.text == "our own kernels");
    REQUIRE(without.warnings.size() == 2);
    CHECK_THAT(without.warnings[0],
               Contains(", forward, is computed by our own kernels: ") && Contains("cannot load libnvrtc") &&
                   Contains("(cuDNN compiles this kernel with NVRTC: install libnvrtc of "
                            "the CUDA version for which cuDNN was built)"));

    const AttentionReport forward = report_of({.cudnn = "stand-in-without-backward"});
    CHECK(forward.text == "cuDNN 9.19.0, forward; our own kernels, backward");
    REQUIRE(forward.warnings.size() == 1);
    CHECK_THAT(forward.warnings[0],
               Contains("backward, is computed by our own kernels: it has no deterministic "
                        "kernel for it"));

    const AttentionReport large = report_of({.cudnn = "stand-in-large"});
    REQUIRE(large.warnings.size() == 1);
    CHECK_THAT(large.warnings[0], Contains("bytes of workspace, more than the planned "));
}

TEST_CASE("attention: kernels that are not deterministic are used only if the deck allows it") {
    const AttentionReport random = report_of({.cudnn = "stand-in-random"});
    CHECK(random.text == "our own kernels");
    CHECK(random.warnings.size() == 2);
    const AttentionReport allowed = report_of({.cudnn = "stand-in-random", .deterministic = false});
    CHECK(allowed.text == "cuDNN 9.19.0, backward; our own kernels, forward");
    CHECK(allowed.warnings.size() == 1);
}

TEST_CASE("attention: Coeus does not warn of what it never asks cuDNN for") {
    const AttentionReport documents = report_of({.documents = true}), f32 = report_of({.type = Dtype::f32});
    CHECK(documents.warnings.empty());
    CHECK(documents.text == "our own kernels: cuDNN is not used with document masks");
    CHECK(f32.warnings.empty());
    CHECK(f32.text == "our own kernels: cuDNN is used for bfloat16 only, and attention is in float32");
}

TEST_CASE("attention: without cuDNN, the reason is given") {
    const AttentionReport report = report_of({.cudnn = "absent"});
    CHECK(report.text == "our own kernels: cuDNN cannot be loaded: the emulated GPU has none");
    CHECK(report.warnings.empty());
    CHECK_THROWS_WITH(
        report_of({.cudnn = "absent", .asked = "cudnn"}),
        "kernels.attention = \"cudnn\": cuDNN cannot be loaded: the emulated GPU has none; set the "
        "environment variable COEUS_CUDNN to the path of the library, or set kernels.attention = "
        "\"own\"");
    CHECK_THROWS_WITH(report_of({.cudnn = "absent", .asked = "cudnn_forward"}),
                      Contains("kernels.attention = \"cudnn_forward\": cuDNN cannot be loaded"));
    Config config;
    config.kernels.attention = "cudnn";
    CHECK_THROWS_WITH(attention_library(config, Communicator::world("world"), host_device()),
                      Contains("is for GPUs, but this run computes on CPUs"));
}
