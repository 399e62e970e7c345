// SPDX-License-Identifier: Apache-2.0
// Attention of ranks that divide the sequences, with each exchange, against attention of whole sequences on
// one rank: results and gradients. Temporaries are exactly as large as in a dry run, and contain NaN before.
#include "coeus/base/random.hpp"
#include "coeus/layers/exchanges/context_parallel.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Case {
    ContextParallel context;
    int64_t batch, length, heads, kv_heads, head_dim;
    bool documents;
    Dtype type = Dtype::f64;
    double tolerance = 1e-11;
    int64_t value_dim = 0, window = 0, chunk = 0;
    bool causal = true;

    std::string name() const {
        constexpr const char* exchanges[] = {"all_gather", "ring", "heads"};
        return fmt::format("{}{}{}, {} sequences of {}, heads {}/{} of {} and {}{}, window {}, chunk {}, {}",
                           causal ? "" : "full, ", exchanges[int(context.exchange)],
                           context.balancing == Balancing::none ? "" : " head-tail", batch, length, heads,
                           kv_heads, head_dim, shape(length).value_width(), documents ? ", documents" : "",
                           window, chunk, name_of(type));
    }
    int64_t q_cols() const { return heads * head_dim; }
    int64_t k_cols() const { return kv_heads * head_dim; }
    int64_t v_cols() const { return kv_heads * shape(length).value_width(); }
    int64_t out_cols() const { return heads * shape(length).value_width(); }
    Dtype acc() const { return type == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
    AttentionShape shape(int64_t sequence) const {
        return {.batch = batch,
                .sequence = sequence,
                .heads = heads,
                .kv_heads = kv_heads,
                .head_dim = head_dim,
                .scale = 1 / std::sqrt(double(head_dim)),
                .value_dim = value_dim,
                .window = window,
                .chunk = chunk,
                .causal = causal};
    }
};

// The tensors of one layer, for some of the tokens of each sequence.
struct Tensors {
    OwnedTensor qkv, out, lse, dout;

    Tensors(const Case& c, int64_t tokens, Dtype type, Dtype acc)
        : qkv(type, {tokens, c.q_cols() + c.k_cols() + c.v_cols()}),
          out(type, {tokens, c.out_cols()}),
          lse(acc, {c.heads, tokens}),
          dout(type, {tokens, c.out_cols()}) {}

    AttentionTensors view(const Case& c, int64_t sequence) const {
        return {.layer = 0,
                .out = out,
                .lse = lse,
                .q = qkv.view.slice_cols(0, c.q_cols()),
                .k = qkv.view.slice_cols(c.q_cols(), c.k_cols()),
                .v = qkv.view.slice_cols(c.q_cols() + c.k_cols(), c.v_cols()),
                .shape = c.shape(sequence)};
    }
};

// Values that the tested type represents exactly.
void draw(const Tensor& t, const char* what, Dtype type) {
    const RandomStream random(7, what);
    OwnedTensor rounded(type, {1});
    for (int64_t i = 0; i < t.count(); ++i) {
        set_element(rounded, 0, normal_quantile(random.uniform(uint64_t(i))));
        set_element(t, i, element(rounded, 0));
    }
}

struct Memory {
    Exec exec;
    Arena temp;
};

// Forward and backward; returns out. The gradients overwrite q, k and v.
std::vector<double> attend(const Case& c, const Kernels& kernels, const KvExchange& exchange, Memory& memory,
                           const Tensors& tensors, Tensor document_start, int64_t sequence) {
    const Batch batch = {.sequences = c.batch, .seq_len = sequence, .document_start = document_start};
    Frame frame;
    StepScalars scalars;
    Ctx ctx{memory.exec, kernels, frame, memory.temp, batch, scalars, exchange};
    exchange.forward(ctx, tensors.view(c, sequence));
    std::vector<double> out;
    if (&kernels == &cpu_kernels()) out = values(tensors.out);
    exchange.backward(ctx, tensors.view(c, sequence), tensors.dout);
    return out;
}

// Documents of about five tokens. For each token: where its document begins in the sequence.
OwnedTensor document_starts(const Case& c) {
    OwnedTensor starts(Dtype::i32, {c.batch * c.length});
    for (int64_t t = 0, first = 0; t < c.batch * c.length; ++t) {
        if (t % c.length == 0) first = 0;
        if ((t * 2654435761u >> 9) % 5 == 0) first = t % c.length;
        starts.view.as<int32_t>()[t] = int32_t(first);
    }
    return starts;
}

// Lines that name the differences, or "".
std::string differs_from_one_rank(const Case& c, const Communicator& cp) {
    Tensors whole(c, c.batch * c.length, Dtype::f64, Dtype::f64);
    draw(whole.qkv, "q, k, v", c.type);
    draw(whole.dout, "dout", c.type);
    const OwnedTensor starts = document_starts(c);
    const Tensor document_start = c.documents ? starts.view : Tensor();
    const SequencePart part = part_of_sequence(c.length, cp.size(), cp.rank(), c.context.balancing);
    const auto own_rows = [&](const std::vector<double>& all) {
        const int64_t cols = int64_t(all.size()) / (c.batch * c.length);
        std::vector<double> own;
        for (int64_t t = 0; t < c.batch * part.count; ++t) {
            const auto row = all.begin() + (t / part.count * c.length + part.index(t % part.count)) * cols;
            own.insert(own.end(), row, row + cols);
        }
        return own;
    };

    Tensors own(c, c.batch * part.count, c.type, c.acc());
    const std::vector<double> own_qkv = own_rows(values(whole.qkv)), own_dout = own_rows(values(whole.dout));
    for (size_t i = 0; i < own_qkv.size(); ++i) set_element(own.qkv, int64_t(i), own_qkv[i]);
    for (size_t i = 0; i < own_dout.size(); ++i) set_element(own.dout, int64_t(i), own_dout[i]);

    Memory alone_memory;
    alone_memory.exec.workspace = Arena(int64_t(8) << 20, "workspace of one rank");
    const std::vector<double> out =
        own_rows(attend(c, cpu_kernels(), local_exchange(), alone_memory, whole, document_start, c.length));

    Memory planned, memory;
    const Communicator ranks = Communicator::planned(cp.rank(), cp.size(), "planned");
    attend(c, dry_kernels(), *make_kv_exchange(c.context, ranks, planned.exec), planned, own, document_start,
           part.count);
    memory.temp = Arena(planned.temp.peak(), "temporaries");
    memory.exec.workspace = Arena(planned.exec.workspace.peak(), "workspace");
    poison(memory.temp, planned.temp.peak());
    poison(memory.exec.workspace, planned.exec.workspace.peak());
    const std::vector<double> own_out =
        attend(c, cpu_kernels(), *make_kv_exchange(c.context, cp, memory.exec), memory, own, document_start,
               part.count);

    std::string lines;
    const auto compare = [&](const char* what, const std::vector<double>& is,
                             const std::vector<double>& should) {
        const double error = normalised_error(is, should);
        if (!(error <= c.tolerance))
            lines += fmt::format("{}: {} differs by {:.2e}\n", c.name(), what, error);
    };
    compare("out", own_out, out);
    const AttentionTensors is = own.view(c, part.count), should = whole.view(c, c.length);
    compare("dq", values(is.q), own_rows(values(should.q)));
    compare("dk", values(is.k), own_rows(values(should.k)));
    compare("dv", values(is.v), own_rows(values(should.v)));
    if (memory.temp.peak() != planned.temp.peak() || memory.temp.mark() != 0 ||
        memory.exec.workspace.peak() != planned.exec.workspace.peak())
        lines += fmt::format("{}: {} bytes of temporaries and {} of workspace were used, {} and {} planned\n",
                             c.name(), memory.temp.peak(), memory.exec.workspace.peak(), planned.temp.peak(),
                             planned.exec.workspace.peak());
    return lines;
}

template <class Check>
void for_each_exchange(const Check& check) {
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads})
        for (const auto balancing : {Balancing::none, Balancing::head_tail})
            check(ContextParallel{exchange, balancing});
}

}  // namespace

TEST_CASE("ranks that divide sequences compute the attention of one rank") {
    const Communicator cp = Communicator::world("cp");
    const int64_t p = cp.size();
    Part part("attention of ranks that divide sequences", cp.size(), {1, cp.size() > 3 ? 2 : 1});
    for_each_exchange([&](const ContextParallel& context) {
        for (const bool documents : {false, true}) {
            std::vector<Case> cases = {{context, 1, 2 * p, p, p, 1, documents},
                                       {context, 2, 6 * p, 2 * p, p, 7, documents},
                                       {context, 3, 58 * p, 3 * p, p, 12, documents},
                                       {context, 1, 106 * p, 2 * p, 2 * p, 5, documents}};
            for (const int64_t value_dim : {3, 9}) {
                cases.push_back({context, 2, 58 * p, 2 * p, p, 5, documents});
                cases.back().value_dim = value_dim;
            }
            if (context.exchange != ContextExchange::heads) {  // which divides the heads
                cases.push_back({context, 2, 10 * p, 3, 1, 6, documents});
                cases.push_back({context, 1, 98 * p, 4, 2, 16, documents});
            }
            if (!documents) {  // full attention
                cases.push_back({context, 2, 58 * p, 2 * p, p, 5, false});
                cases.back().causal = false;
            }
            // they end between the ranks' runs of tokens, and in documents
            for (const auto& [window, chunk] : {std::pair<int64_t, int64_t>(9, 0), {0, 7}, {5, 7}}) {
                cases.push_back({context, 2, 10 * p, 2 * p, p, 5, documents});
                cases.back().window = window;
                cases.back().chunk = chunk;
            }
            for (const Case& c : cases)
                if (part.takes_next()) CHECK(differs_from_one_rank(c, cp) == "");
        }
    });
}

TEST_CASE("ranks that divide sequences compute the attention of one rank, in float32 and bfloat16") {
    const Communicator cp = Communicator::world("cp");
    const int64_t p = cp.size();
    for_each_exchange([&](const ContextParallel& context) {
        CHECK(differs_from_one_rank({context, 2, 58 * p, 2 * p, p, 16, true, Dtype::f32, 4e-6}, cp) == "");
        CHECK(differs_from_one_rank({context, 2, 58 * p, 2 * p, p, 16, true, Dtype::bf16, 1.5e-2}, cp) == "");
    });
}
