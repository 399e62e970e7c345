// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN and by our own kernels on ranks that divide the sequences, with each exchange of keys
// and values, against attention of whole sequences on one rank in double.
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/own_attention.hpp"
#include "coeus/layers/exchanges/context_parallel.hpp"
#include "gpu/gpu.hpp"
#include "gpu/launches.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Case {
    ContextParallel context;
    int64_t run = 16;  // tokens of each of the 2P runs
    bool documents = false, deterministic = true;
    int64_t width = 16;  // of a head
    int64_t cudnn_bytes = most_cudnn_bytes;
};
constexpr int64_t batch = 2, kv_heads = 4, heads = 8;

// One layer's tensors for some tokens of each sequence.
struct Layer {
    Tensor qkv, out, lse, dout;
    AttentionTensors view(int64_t sequence) const {
        const int64_t q_cols = out.cols(), width = q_cols / heads, k_cols = kv_heads * width;
        return {.layer = 0,
                .out = out,
                .lse = lse,
                .q = qkv.slice_cols(0, q_cols),
                .k = qkv.slice_cols(q_cols, k_cols),
                .v = qkv.slice_cols(q_cols + k_cols, k_cols),
                .shape = {batch, sequence, heads, kv_heads, width, 1 / std::sqrt(double(width))}};
    }
};

void forward_and_backward(const KvExchange& exchange, const Kernels& kernels, Exec& exec, Arena& temp,
                          const Layer& layer, Tensor document_start, int64_t sequence) {
    const Batch of_rank = {.sequences = batch, .seq_len = sequence, .document_start = document_start};
    Frame frame;
    StepScalars scalars;
    Ctx c{exec, kernels, frame, temp, of_rank, scalars, exchange};
    exchange.forward(c, layer.view(sequence));
    exchange.backward(c, layer.view(sequence), layer.dout);
}

struct Results {
    std::vector<double> out, gradients;
};

// A whole layer in double, with values that bfloat16 has.
struct Whole {
    int64_t length;
    OwnedTensor qkv, out, lse, dout, start;

    Whole(int64_t tokens, int64_t width)
        : length(tokens),
          qkv(Dtype::f64, {batch * length, (heads + 2 * kv_heads) * width}),
          out(Dtype::f64, {batch * length, heads * width}),
          lse(Dtype::f64, {heads, batch * length}),
          dout(Dtype::f64, {batch * length, heads * width}),
          start(Dtype::i32, {batch * length}) {
        uint32_t bits = 1;
        for (const Tensor& t : {qkv.view, dout.view})
            for (int64_t i = 0; i < t.count(); ++i) {
                bits = bits * 1664525 + 1013904223;
                set_element(t, i, double(int(bits >> 25) - 64) / 32);
            }
        // documents of nine tokens
        for (int64_t t = 0; t < batch * length; ++t) set_element(start, t, double(t % length / 9 * 9));
    }
    Results results(const Case& c) const {
        Exec exec;
        exec.workspace = Arena(int64_t(16) << 20, "workspace of one rank");
        Arena temp;
        forward_and_backward(local_exchange(), cpu_kernels(), exec, temp, {qkv, out, lse, dout},
                             c.documents ? start.view : Tensor(), length);
        return {values(out), values(qkv)};
    }
};

/// The rows of this rank's tokens.
OwnedTensor own_rows(Tensor whole, const SequencePart& part, int64_t length) {
    OwnedTensor own(Dtype::bf16, {batch * part.count, whole.cols()});
    for (int64_t t = 0; t < batch * part.count; ++t)
        copy_converting(own.view.slice_rows(t, 1),
                        whole.slice_rows(t / part.count * length + part.index(t % part.count), 1));
    return own;
}
OwnedTensor own_rows(const std::vector<double>& whole, const SequencePart& part, int64_t length) {
    OwnedTensor all(Dtype::f64, {batch * length, int64_t(whole.size()) / (batch * length)});
    for (size_t i = 0; i < whole.size(); ++i) set_element(all, int64_t(i), whole[i]);
    return own_rows(all.view, part, length);
}

OwnedTensor on_gpu(const OwnedTensor& host) {
    OwnedTensor there(host.view.dtype, host.view.shape, "tensor", the_gpu().memory());
    the_gpu().copy(there.view.data, host.view.data, host.view.bytes());
    return there;
}
std::vector<double> from_gpu(Tensor there) {
    OwnedTensor host(there.dtype, there.shape);
    the_gpu().copy(host.view.data, there.data, there.bytes());
    return values(host);
}

/// Names of the kernels that a GPU was given, unless the results differ.
std::set<std::string> launches_if_equal(const Case& c, const Communicator& cp) {
    const int64_t length = 2 * cp.size() * c.run;
    const Whole whole(length, c.width);
    const SequencePart part = part_of_sequence(length, cp.size(), cp.rank(), c.context.balancing);
    const OwnedTensor qkv = on_gpu(own_rows(whole.qkv, part, length)),
                      dout = on_gpu(own_rows(whole.dout, part, length)), start = on_gpu(whole.start),
                      out(Dtype::bf16, dout.view.shape, "out", the_gpu().memory()),
                      lse(Dtype::f32, {heads, batch * part.count}, "lse", the_gpu().memory());
    const Layer layer = {qkv, out, lse, dout};
    const Tensor document_start = c.documents ? start.view : Tensor();
    const Results truth = whole.results(c);

    Exec planning, exec(the_gpu());
    planning.architecture = exec.architecture;
    planning.cudnn_bytes = exec.cudnn_bytes = c.cudnn_bytes;
    planning.deterministic = exec.deterministic = c.deterministic;
    Arena planned;
    const Communicator ranks = Communicator::planned(cp.rank(), cp.size(), "planned");
    forward_and_backward(*make_kv_exchange(c.context, ranks, planning), dry_kernels_of(the_gpu().backend()),
                         planning, planned, layer, document_start, part.count);
    use_cudnn(exec);
    exec.workspace = Arena(planning.workspace.peak(), "workspace", the_gpu().memory());
    Arena temp(planned.peak(), "temporaries", the_gpu().memory());
    Launches launches;
    {
        const Observation observation = exec.observers.add(launches);
        forward_and_backward(*make_kv_exchange(c.context, cp, exec), kernels_of(the_gpu().backend()), exec,
                             temp, layer, document_start, part.count);
        exec.queue->finish();
    }
    CHECK(exec.workspace.peak() <= planning.workspace.peak());
    constexpr double bound = 1.5e-2;
    CHECK(normalised_error(from_gpu(out), values(own_rows(truth.out, part, length))) <= bound);
    CHECK(normalised_error(from_gpu(qkv), values(own_rows(truth.gradients, part, length))) <= bound);
    return launches.names;
}

}  // namespace

TEST_CASE("GPU: attention by cuDNN on ranks that divide sequences is that of one rank") {
    choose_cudnn();
    const Communicator cp = Communicator::world("cp");
    try {
        find_cudnn();
    } catch (const ConfigError& error) {
        return skip(error.what());
    }
    const auto is_own = [](const std::set<std::string>& names) {
        return names.contains("attention_mma") || names.contains("attention_key_gradients_mma");
    };
    const char* const of_wide_keys =
        the_gpu().architecture() == 90 ? "attention_key_gradients_wgmma" : "attention_key_gradients_mma";
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
        const bool whole = exchange == ContextExchange::heads;
        for (const auto balancing : {Balancing::head_tail, Balancing::none}) {
            CAPTURE(int(exchange), int(balancing));
            const std::set<std::string> names = launches_if_equal({{exchange, balancing}}, cp);
            CHECK_FALSE(is_own(names));
            CHECK(names.contains("sum_blocks"));
            if (!whole && balancing == Balancing::head_tail) CHECK(names.contains("merge_blocks"));
        }
        CAPTURE(int(exchange));
        launches_if_equal({.context = {exchange}, .deterministic = false}, cp);
        // whole sequences are not concerned by the length of runs
        CHECK(is_own(launches_if_equal({.context = {exchange}, .run = 12}, cp)) == !whole);
        const std::set<std::string> documents =
            launches_if_equal({.context = {exchange}, .documents = true, .width = 64}, cp);
        CHECK(documents.contains("attention_mma"));
        CHECK(documents.contains(of_wide_keys));
        const std::set<std::string> forward =
            launches_if_equal({.context = {exchange}, .width = 64, .cudnn_bytes = cudnn_forward_bytes}, cp);
        CHECK_FALSE(forward.contains("attention_mma"));
        CHECK(forward.contains(of_wide_keys));
        CHECK(forward.contains("merge_blocks") == !whole);
    }
}
