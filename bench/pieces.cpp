// SPDX-License-Identifier: Apache-2.0
// The time that the pieces of open decoders take in a layer, beside layers of Llama of the same arithmetic:
//     build/bench/bench_pieces [TURNS, default 15] [THREADS, default 1]
// Forward and backward of two layers, without the optimizer. The models of a pair take steps in turns, the
// second one last and then first, and a ratio is the median over the turns. If a piece has more
// arithmetic than the other model, or less, the bytes of it are counted at the rate of the other model's
// norms: "counted" is the ratio that follows from them. The figure is the ratio divided by it. Times of one
// thread are those of the processor, so that other programs disturb them little.
#include "coeus/base/clock.hpp"
#include "coeus/base/random.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/decoder_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

using namespace coeus;

namespace {

constexpr int64_t seq_len = 512, sequences = 2;
constexpr double goal = 1.03;

double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

double processor_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double seconds_of(int threads) {
    return threads == 1 ? processor_seconds() : steady_seconds();
}

// The bytes of all kernels, and the rate of RMSNorms.
class Costs final : public KernelObserver {
public:
    explicit Costs(int threads) : threads_(threads) {}
    void begin(const char* kernel, double /*flops*/, double bytes) override {
        bytes_ += bytes;
        in_norm_ = std::string_view(kernel).starts_with("rms_norm");
        if (!in_norm_) return;
        norm_bytes_ += bytes;
        norm_seconds_ -= seconds_of(threads_);
    }
    void end() override {
        if (in_norm_) norm_seconds_ += seconds_of(threads_);
        in_norm_ = false;
    }
    double bytes() const { return bytes_; }
    double seconds_per_byte_of_norms() const { return norm_seconds_ / norm_bytes_; }

private:
    double bytes_ = 0, norm_bytes_ = 0, norm_seconds_ = 0;
    bool in_norm_ = false;
    int threads_;
};

// A model that takes the same step again and again.
class Case {
public:
    Case(const DecoderConfig& model, Dtype compute, int threads)
        : threads_(threads),
          engine_(model, {.types = {.compute = compute},
                          .training = {.sequences = sequences, .seq_len = seq_len},
                          .machine = {.threads = threads}}) {
        model.validate();
        engine_.allocate();
        engine_.model().parameters().initialise(1, threads);
        engine_.renew_weights();
        const RandomStream random(1, "tokens");
        for (int64_t t = 0; t < sequences * seq_len; ++t)
            ids_.push_back(int32_t(random.u64(uint64_t(t)) % uint64_t(model.vocab)));
        take_step();
    }

    // Returns the seconds of forward and backward. The weights remain as they are.
    double take_step() {
        const double begin = seconds_of(threads_);
        engine_.compute_gradients(1, 0, sequences * seq_len, [&](int64_t) {
            return SampleRows{.sequences = sequences, .seq_len = seq_len, .tokens = ids_, .labels = ids_};
        });
        const double seconds = seconds_of(threads_) - begin;
        engine_.update();
        return seconds;
    }

    // The costs of as many steps, with the optimizer's.
    Costs observe(int steps) {
        Costs costs(threads_);
        const Observation seen = engine_.observe(costs);
        for (int i = 0; i < steps; ++i) take_step();
        return costs;
    }

private:
    int threads_;
    Engine engine_;
    std::vector<int32_t> ids_;
};

struct Piece {
    const char *name, *beside;
    DecoderConfig with, without;
    bool is_counted = false;  // its arithmetic is not that of the model beside it
};

DecoderConfig llama() {
    return {.family = "llama3",
            .flavor = "layers",
            .dim = 512,
            .layers = 2,
            .vocab = 256,
            .attention = GroupedAttentionConfig{.heads = 8, .kv_heads = 4, .head_dim = 64},
            .feed_forward = {.hidden = 1536},
            .rope = {.layout = RopeLayout::half_split}};
}

template <class Change>
DecoderConfig changed(DecoderConfig model, const Change& change) {
    change(model);
    return model;
}

std::vector<Piece> all_pieces() {
    const DecoderConfig plain = llama();
    const DecoderConfig head_norms =
        changed(plain, [](auto& m) { m.grouped().qk_norm = QkNorm::before_rope; });
    const DecoderConfig windowed = changed(plain, [](auto& m) {
        m.grouped().window = 128;
        m.windowed = {.period = 2};
    });
    const DecoderConfig experts = changed(plain, [](auto& m) {
        m.feed_forward = {};
        m.moe = {.experts = 8, .top_k = 2, .hidden = 512, .shared_hidden = 1024};
    });
    return {
        {"norms after the sublayers", "Llama",
         changed(plain, [](auto& m) { m.norm_placement = NormPlacement::after; }), plain},
        {"norms around the sublayers", "Llama",
         changed(plain, [](auto& m) { m.norm_placement = NormPlacement::around; }), plain, true},
        {"norms that multiply by 1 + w", "Llama", changed(plain, [](auto& m) { m.norm_offset = true; }),
         plain},
        {"GELU gate", "Llama",
         changed(plain, [](auto& m) { m.feed_forward.activation = Activation::gelu_tanh; }), plain},
        {"sublayers side by side", "Llama", changed(plain, [](auto& m) { m.parallel_block = true; }), plain,
         true},
        {"four factors", "Llama",
         changed(plain,
                 [](auto& m) {
                     m.embedding_scale = 12;
                     m.residual_scale = 0.22;
                     m.logits_scale = 0.125;
                     m.grouped().scale = 1.0 / 64;
                 }),
         plain},
        {"norms of all heads", "norms of each head",
         changed(plain, [](auto& m) { m.grouped().qk_norm = QkNorm::all_heads; }), head_norms},
        {"norms after RoPE, with weights", "norms before RoPE",
         changed(plain, [](auto& m) { m.grouped().qk_norm = QkNorm::weighted_after_rope; }), head_norms},
        {"two RoPEs", "one RoPE",
         changed(windowed,
                 [](auto& m) { m.window_rope = {.theta = 5000, .scaling = LinearScaling{.factor = 2}}; }),
         windowed},
        {"gate of shared experts", "shared experts",
         changed(experts, [](auto& m) { m.moe.shared_gate = true; }), experts, true},
    };
}

void compare(const Piece& piece, Dtype compute, int turns, int threads) {
    Case with(piece.with, compute, threads), without(piece.without, compute, threads);
    std::vector<double> seconds, ratios;
    for (int turn = 0; turn < turns; ++turn) {
        const double first = without.take_step(), second = with.take_step(), third = with.take_step(),
                     fourth = without.take_step();
        seconds.push_back((first + fourth) / 2);
        ratios.push_back((second + third) / (first + fourth));
    }
    double counted = 1;
    if (piece.is_counted) {
        constexpr int steps = 3;
        const Costs usual = without.observe(steps), its = with.observe(steps);
        counted +=
            (its.bytes() - usual.bytes()) / steps * usual.seconds_per_byte_of_norms() / median(seconds);
    }
    const double ratio = median(ratios);
    fmt::print("| {} | {} | {} | {:.1f} | {:.3f} | {:.3f} | {:.3f} | {}: {} |\n", piece.name, piece.beside,
               name_of(compute), 1e3 * median(seconds), ratio, counted, ratio / counted, goal,
               ratio / counted <= goal ? "reached" : "MISSED");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int turns = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15,
              threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
    const DecoderConfig model = llama();
    fmt::print("{} layers of {} columns, {} tokens, {} threads; medians of {} turns\n", model.layers,
               model.dim, sequences * seq_len, threads, turns);
    fmt::print(
        "| piece | beside | type | beside, ms | ratio | counted | figure | goal |\n"
        "|---|---|---|---:|---:|---:|---:|---|\n");
    for (const Dtype compute : {Dtype::f32, Dtype::bf16})
        for (const Piece& piece : all_pieces()) compare(piece, compute, turns, threads);
}
