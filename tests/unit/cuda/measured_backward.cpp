// SPDX-License-Identifier: Apache-2.0
// The choice between cuDNN's backward of attention and our own, by a measurement that is kept.
#include "coeus/kernels/measured_backward.hpp"

#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/product_options.hpp"
#include "gpu/gpu.hpp"
#include "gpu/launches.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <filesystem>
#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

/// A backward of 64 tokens and two heads, without memory.
AttentionCall backward_call(int64_t head_dim = 64) {
    const AttentionShape s = {1, 64, 2, 2, head_dim, 0.125};
    const Tensor t(nullptr, Dtype::bf16, {64, 2 * head_dim});
    return {s, t, t, t, t, {}, t, t, t, t, true};
}

/// Measures in an Exec of its own, with this folder of kept algorithms.
struct Measuring {
    Exec exec{the_gpu()};

    explicit Measuring(const std::string& folder) {
        exec.cudnn_bytes = most_cudnn_bytes;
        exec.workspace = Arena(int64_t(32) << 20, "workspace", the_gpu().memory());
        set_product_options(exec, {.folder = folder});
        use_cudnn(exec);
    }
    std::optional<MeasuredBackward> choice(const AttentionCall& call = backward_call()) {
        return measured_backward(exec, call);
    }
    /// Whether our kernel by wgmma computes a backward.
    bool computes_by_wgmma() {
        AttentionCall call = backward_call();
        const Memory& memory = the_gpu().memory();
        std::vector<OwnedTensor> all;
        for (Tensor* t : {&call.out, &call.q, &call.k, &call.v, &call.dq, &call.dk, &call.dv, &call.dout})
            *t = all.emplace_back(t->dtype, t->shape, "an operand", memory).view;
        const OwnedTensor lse(Dtype::f32, {2, 64}, "lse", memory);
        Launches launches;
        const Observation observed = exec.observers.add(launches);
        cuda_kernels().attention_backward(exec, call.dq, call.dk, call.dv, call.dout, call.out, lse, call.q,
                                          call.k, call.v, {}, call.shape, false);
        exec.queue->finish();
        return launches.names.contains("attention_query_gradients_wgmma");
    }
};

fs::path file_in(const fs::path& folder) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() != cuda::timing_suffix) return entry.path();
    return {};
}

}  // namespace

TEST_CASE("backwards of attention: the faster one is kept beside the algorithms of products") {
    choose_cudnn();
    const TemporaryFolder folder;
    const auto measured = Measuring(folder.path()).choice();
    REQUIRE(measured);
    CHECK_THAT(measured->text, Contains("measured: ") && Contains(" ms, cuDNN's "));
    const fs::path file = file_in(folder.path());
    CHECK_THAT(file.parent_path().filename().string(), Contains("-cuDNN_9.19.0"));
    auto kept = cuda::KeptAlgorithm::read(file);
    REQUIRE(kept);
    CHECK(kept->timing);
    CHECK_THAT(kept->problem, Contains("attention of 1 x 64 tokens, 2 heads of width 64, backward") &&
                                  Contains("in a fixed order") && Catch::Matches(".*, kernels [0-9]+"));
    CHECK(cuda::backward_in(*kept) == (measured->is_own ? "own" : "cuDNN"));
    // the file decides, whatever was faster
    for (const uint64_t number : {1, 0, 1}) {
        kept->algorithm = {number};
        std::ofstream(file) << kept->text();
        const auto again = Measuring(folder.path()).choice();
        REQUIRE(again);
        CHECK(again->is_own == (number == 1));
        CHECK(again->text == "as kept in " + file.string());
    }
    // a file that names no backward is replaced
    kept->algorithm = {7};
    std::ofstream(file) << kept->text();
    CHECK_THAT(Measuring(folder.path()).choice()->text, Contains("measured: "));
    CHECK_THAT(Measuring(folder.path()).choice()->text, Contains("as kept in "));
}

TEST_CASE("backwards of attention: the chosen one computes, and the other one as before") {
    choose_cudnn();
    Measuring run("");
    CHECK(has_two_backwards(run.exec, backward_call()));
    CHECK_FALSE(run.computes_by_wgmma());
    take_own_backward(run.exec, backward_call(128), "for another call");
    CHECK_FALSE(run.computes_by_wgmma());
    take_own_backward(run.exec, backward_call(), "it is faster");
    CHECK(run.computes_by_wgmma());
    const AttentionKernel kernel = choose_kernel(run.exec, backward_call());
    CHECK(kernel.by_cudnn.empty());
    CHECK(kernel.why == "it is faster");
    CHECK_FALSE(kernel.is_refused);
    CHECK_FALSE(has_two_backwards(run.exec, backward_call()));
}

TEST_CASE("backwards of attention: nothing is measured if there is one, or nothing can be kept") {
    choose_cudnn();
    const TemporaryFolder folder;
    CHECK_FALSE(Measuring("").choice());
    Measuring run(folder.path());
    CHECK_FALSE(run.choice(backward_call(16)));  // not by wgmma
    AttentionCall forward = backward_call();
    forward.is_backward = false;
    CHECK_FALSE(run.choice(forward));
    AttentionCall documents = backward_call();
    documents.document_start = Tensor(nullptr, Dtype::i32, {64});
    CHECK_FALSE(run.choice(documents));  // not by cuDNN
    run.exec.workspace = Arena(1024, "workspace", the_gpu().memory());
    CHECK_FALSE(run.choice());
    CHECK(file_in(folder.path()).empty());
}
