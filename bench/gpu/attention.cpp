// SPDX-License-Identifier: Apache-2.0
// gpu_attention [BATCH SEQUENCE HEADS KV_HEADS WIDTH]: attention in bfloat16 on the first GPU, forward and
// backward, by our own kernels (the backward also by mma) and by cuDNN, with queries, keys and values in one
// matrix. Without arguments it measures 1 x 8192 and 4 x 1024 tokens, 32 heads, 8 key/value heads of width
// 128. gpu_attention parts SEQUENCE RANKS [HEADS KV_HEADS WIDTH]: what context-parallel ranks compute of such
// a sequence, with the runs of Balancing::head_tail: in a ring with its own keys, those of an earlier rank
// and those of a later one (results and gradients in float32, merged and added as the ring does); and the
// first rank with all keys. Its last lines add up the milliseconds of a ring: of the first rank, which has no
// earlier one, and of the last. Results are compared with the gradients in the memory of queries, keys and
// values, as the model calls the kernels. It prints one JSON object per line: kernels, TFLOP/s of the best
// and of the median run (causal operations), planned workspace, the largest difference from our own kernels
// relative to the largest element, whether two runs gave the same bits, and cuDNN's kernel, or why it has
// none.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/own_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace coeus;

namespace {

enum class By { own, cudnn, cudnn_in_any_order, mma };
const char* name_of(By by) {
    switch (by) {
        case By::own: return "own";
        case By::mma: return "own, by mma";
        case By::cudnn: return "cudnn";
        default: return "cudnn, sums in any order";
    }
}

bool is_own(By by) {
    return by == By::own || by == By::mma;
}

using Values = std::vector<bf16>;

Values random_values(int64_t count, uint32_t bits) {
    Values values(static_cast<size_t>(count));
    for (bf16& value : values) {
        float sum = 0;  // of four uniform numbers: nearly normal
        for (int i = 0; i < 4; ++i) {
            bits = bits * 1664525 + 1013904223;
            sum += float(bits >> 8) / float(1 << 24) - 0.5f;
        }
        value = bf16(sum * 1.73f);
    }
    return values;
}

/// A matrix in the GPU's memory.
class Matrix {
public:
    Matrix(const Device& device, Dtype type, int64_t rows, int64_t cols)
        : device_(device), memory_(type, {rows, cols}, "matrix", device.memory()) {}
    Matrix(const Device& device, int64_t rows, int64_t cols, const Values& values)
        : Matrix(device, Dtype::bf16, rows, cols) {
        put(values);
    }
    Tensor view() const { return memory_.view; }
    void put(const Values& values) { device_.copy(view().data, values.data(), view().bytes()); }
    template <class T>
    std::vector<T> values() const {
        std::vector<T> values(static_cast<size_t>(view().count()));
        device_.copy(values.data(), view().data, view().bytes());
        return values;
    }

private:
    const Device& device_;
    OwnedTensor memory_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
double difference(const std::vector<T>& a, const std::vector<T>& b) {
    double most = 0, largest = 1e-30;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = std::abs(double(float(a[i])) - double(float(b[i])));
        most = d <= most ? most : d;  // NaN counts
        largest = std::max(largest, std::abs(double(float(b[i]))));
    }
    return most / largest;
}

struct Rates {
    double median = 0, best = 0;  // TFLOP/s
};

struct Result {
    std::vector<bf16> values;
    std::vector<float> lse;
};

constexpr int runs = 7, calls = 5;

// Seconds of a call, by turns of some calls: in ascending order.
template <class Call>
std::vector<double> seconds_of(Exec& exec, const Call& call) {
    std::vector<double> seconds;
    for (int run = 0; run < runs; ++run) {
        const Timer timer;
        for (int i = 0; i < calls; ++i) call();
        exec.queue->finish();
        seconds.push_back(timer.seconds() / calls);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds;
}

// A planning Exec, and one that computes.
struct Execs {
    Exec planning, exec;
    Execs(const Device& device, By by) : exec(device) {
        planning.architecture = exec.architecture;
        planning.cudnn_bytes = exec.cudnn_bytes = is_own(by) ? 0 : most_cudnn_bytes;
        planning.deterministic = exec.deterministic = by != By::cudnn_in_any_order;
    }
    // After the planning: cuDNN's kernels for all calls, or "own".
    std::string choose(By by) {
        if (is_own(by)) {
            choose_own_attention(exec, by == By::mma ? OwnAttention::mma : OwnAttention::usual);
            return "own";
        }
        std::string kernel = use_cudnn(exec);
        for (const AttentionCall& call : planned_attention(planning)) {
            const AttentionKernel chosen = choose_kernel(exec, call);
            if (chosen.by_cudnn.empty()) throw SystemError(kernel + ": " + chosen.why);
            kernel += ": " + chosen.by_cudnn;
        }
        return kernel;
    }
};

void print_error(bool backward, By by, const std::exception& error) {
    fmt::print(R"({{"pass": "{}", "kernels": "{}", "error": "{}"}})"
               "\n",
               backward ? "backward" : "forward", name_of(by), error.what());
}

class Bench {
public:
    Bench(const Device& device, const AttentionShape& shape)
        : device_(device),
          s_(shape),
          values_(random_values(rows() * columns(), 1)),
          qkv_(device, rows(), columns(), values_),
          gradients_(device, Dtype::bf16, rows(), columns()),
          out_(device, Dtype::bf16, rows(), s_.heads * s_.head_dim),
          dout_(device, rows(), s_.heads * s_.head_dim, random_values(rows() * s_.heads * s_.head_dim, 2)),
          lse_(device, Dtype::f32, s_.heads, rows()) {}

    void run() {
        for (const bool backward : {false, true}) {
            const Result own = measure(By::own, backward, nullptr);
            for (const By by : {By::mma, By::cudnn, By::cudnn_in_any_order}) {
                if (!backward && by != By::cudnn) continue;
                try {
                    measure(by, backward, &own);
                } catch (const std::exception& error) {
                    print_error(backward, by, error);
                }
                std::fflush(stdout);
            }
            // the backward begins with the results of our own forward
            qkv_.put(values_);
        }
    }

private:
    int64_t rows() const { return s_.batch * s_.sequence; }
    int64_t columns() const { return (s_.heads + 2 * s_.kv_heads) * s_.head_dim; }
    // Columns of a matrix of queries, keys and values, or of their gradients.
    Tensor part(const Matrix& m, int64_t first, int64_t heads) const {
        return m.view().slice_cols(first * s_.head_dim, heads * s_.head_dim);
    }
    Tensor q(const Matrix& m) const { return part(m, 0, s_.heads); }
    Tensor k(const Matrix& m) const { return part(m, s_.heads, s_.kv_heads); }
    Tensor v(const Matrix& m) const { return part(m, s_.heads + s_.kv_heads, s_.kv_heads); }

    void call(const Kernels& kernels, Exec& exec, bool backward, const Matrix& gradients) const {
        const Tensor keys = k(qkv_), values = v(qkv_), queries = q(qkv_);
        if (backward)
            kernels.attention_backward(exec, q(gradients), k(gradients), v(gradients), dout_.view(),
                                       out_.view(), lse_.view(), queries, keys, values, {}, s_, false);
        else
            kernels.attention(exec, out_.view(), lse_.view(), queries, keys, values, {}, s_);
    }

    Result result(const Kernels& kernels, Exec& exec, bool backward) {
        qkv_.put(values_);
        call(kernels, exec, backward, qkv_);
        exec.queue->finish();
        return {backward ? qkv_.values<bf16>() : out_.values<bf16>(),
                backward ? std::vector<float>{} : lse_.values<float>()};
    }

    Rates rates(const Kernels& kernels, Exec& exec, bool backward) {
        qkv_.put(values_);
        const std::vector<double> seconds =
            seconds_of(exec, [&] { call(kernels, exec, backward, gradients_); });
        const double pairs = double(s_.batch * s_.heads) * double(s_.sequence) * double(s_.sequence + 1) / 2;
        const double flops = pairs * double(s_.head_dim) * (backward ? 10 : 4);
        return {flops / seconds[runs / 2] / 1e12, flops / seconds[0] / 1e12};
    }

    Result measure(By by, bool backward, const Result* own) {
        Execs execs(device_, by);
        auto& [planning, exec] = execs;
        call(dry_kernels_of(device_.backend()), planning, backward, qkv_);
        const std::string kernel = execs.choose(by);
        exec.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        const Kernels& kernels = kernels_of(device_.backend());
        const Result first = result(kernels, exec, backward), second = result(kernels, exec, backward);
        const Rates rate = rates(kernels, exec, backward);
        fmt::print(
            R"({{"pass": "{}", "batch": {}, "sequence": {}, "heads": {}, "kv_heads": {}, "width": {}, )"
            R"("kernels": "{}", "tflops": {:.1f}, "tflops_best": {:.1f}, "workspace_mib": {:.1f}, )"
            R"("difference": {:.2e}, "lse_difference": {:.2e}, "same_bits": {}, "kernel": "{}"}})"
            "\n",
            backward ? "backward" : "forward", s_.batch, s_.sequence, s_.heads, s_.kv_heads, s_.head_dim,
            name_of(by), rate.median, rate.best, double(planning.workspace.peak()) / (1 << 20),
            own ? difference(first.values, own->values) : 0,
            own && !backward ? difference(first.lse, own->lse) : 0,
            same_bits(first.values, second.values) && same_bits(first.lse, second.lse), kernel);
        std::fflush(stdout);
        if (!backward && !is_own(by)) {  // the backward's inputs are those of our own kernel
            Exec again(device_);
            result(kernels, again, false);
        }
        return first;
    }

    const Device& device_;
    AttentionShape s_;
    Values values_;
    Matrix qkv_, gradients_, out_, dout_, lse_;
};

// One step of a rank: its queries with the keys of a part.
class Part {
public:
    /// `ring`: results and gradients are in float32; `merges`: they are merged with others, and added to
    /// them.
    Part(const Device& device, const AttentionShape& shape, bool ring, bool merges)
        : device_(device),
          s_(shape),
          merges_(merges),
          q_(device, queries(), s_.heads * s_.head_dim, random_values(queries() * s_.heads * s_.head_dim, 1)),
          kv_(device, keys(), 2 * kv_columns(), random_values(keys() * 2 * kv_columns(), 3)),
          dout_(device, queries(), s_.heads * s_.head_dim,
                random_values(queries() * s_.heads * s_.head_dim, 2)),
          whole_out_(device, Dtype::bf16, queries(), s_.heads * s_.head_dim),
          out_(device, ring ? Dtype::f32 : Dtype::bf16, queries(), s_.heads * s_.head_dim),
          lse_(device, Dtype::f32, s_.heads, queries()),
          dq_(device, ring ? Dtype::f32 : Dtype::bf16, queries(), s_.heads * s_.head_dim),
          dkv_(device, Dtype::f32, keys(), 2 * kv_columns()) {
        whole_out_.put(random_values(queries() * s_.heads * s_.head_dim, 4));
    }

    /// Milliseconds by our own kernels and by cuDNN's, in a fixed order and in any; 0 if it has none.
    std::array<double, 3> run(bool backward, int64_t rank) {
        std::array<double, 3> all = {};
        Results own;
        for (const By by : {By::own, By::cudnn, By::cudnn_in_any_order}) {
            if (!backward && by == By::cudnn_in_any_order) continue;
            try {
                all[size_t(by)] = measure(by, backward, rank, own);
            } catch (const std::exception& error) {
                print_error(backward, by, error);
            }
            std::fflush(stdout);
        }
        return all;
    }

private:
    using Results = std::vector<std::vector<float>>;

    int64_t queries() const { return s_.batch * s_.sequence; }
    int64_t keys() const { return s_.batch * s_.keys().count; }
    int64_t kv_columns() const { return s_.kv_heads * s_.head_dim; }
    Tensor k(const Matrix& m) const { return m.view().slice_cols(0, kv_columns()); }
    Tensor v(const Matrix& m) const { return m.view().slice_cols(kv_columns(), kv_columns()); }

    void call(const Kernels& kernels, Exec& exec, bool backward) const {
        if (backward) {
            kernels.attention_backward(exec, dq_.view(), k(dkv_), v(dkv_), dout_.view(), whole_out_.view(),
                                       lse_.view(), q_.view(), k(kv_), v(kv_), {}, s_, merges_);
        } else {
            const auto attend = merges_ ? kernels.merge_attention : kernels.attention;
            attend(exec, out_.view(), lse_.view(), q_.view(), k(kv_), v(kv_), {}, s_);
        }
    }
    // With the same contents before.
    Results results(const Kernels& kernels, Exec& exec, bool backward) const {
        kernels.zero(exec, backward ? dq_.view() : out_.view());
        kernels.zero(exec, lse_.view());
        call(kernels, exec, backward);
        exec.queue->finish();
        const auto floats = [](const Matrix& m) {
            if (m.view().dtype == Dtype::f32) return m.values<float>();
            const Values values = m.values<bf16>();
            return std::vector<float>(values.begin(), values.end());
        };
        return backward ? Results{floats(dq_), floats(dkv_)} : Results{floats(out_), floats(lse_)};
    }
    double pairs() const {
        double sum = 0;
        for (int64_t i = 0; i < s_.sequence; ++i) sum += double(s_.keys().below(s_.queries().index(i) + 1));
        return sum * double(s_.batch * s_.heads);
    }

    double measure(By by, bool backward, int64_t rank, Results& own) const {
        Execs execs(device_, by);
        auto& [planning, exec] = execs;
        call(dry_kernels_of(device_.backend()), planning, backward);
        const std::string kernel = execs.choose(by);
        exec.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        const Kernels& kernels = kernels_of(device_.backend());
        const Results first = results(kernels, exec, backward), second = results(kernels, exec, backward);
        if (by == By::own) own = first;
        const double seconds = seconds_of(exec, [&] { call(kernels, exec, backward); })[runs / 2],
                     flops = pairs() * double(s_.head_dim) * (backward ? 10 : 4);
        double most = 0;
        for (size_t i = 0; i < own.size(); ++i) most = std::max(most, difference(first[i], own[i]));
        const AttentionCall text = {.shape = s_, .is_backward = backward};
        fmt::print(
            R"({{"pass": "{}", "rank": {}, "part": "{}", "kernels": "{}", "ms": {:.3f}, "tflops": {:.1f}, )"
            R"("workspace_mib": {:.1f}, "difference": {:.2e}, "same_bits": {}, "kernel": "{}"}})"
            "\n",
            backward ? "backward" : "forward", rank, text.text(), name_of(by), 1e3 * seconds,
            flops / seconds / 1e12, double(planning.workspace.peak()) / (1 << 20), most,
            same_bits(first[0], second[0]) && same_bits(first[1], second[1]), kernel);
        return 1e3 * seconds;
    }

    const Device& device_;
    AttentionShape s_;
    bool merges_;
    Matrix q_, kv_, dout_, whole_out_, out_, lse_, dq_, dkv_;
};

void run_parts(const Device& device, const AttentionShape& whole, int64_t ranks) {
    const int64_t run = whole.sequence / (2 * ranks);
    const auto part_of = [&](int64_t rank) {
        return SequencePart{2 * run, rank * run, 2 * (ranks - 1 - rank) * run};
    };
    AttentionShape s = whole;
    s.sequence = 2 * run;
    for (const bool backward : {false, true}) {
        // the last rank with its own keys and those of an earlier one, and the first with those of a later
        // one
        const auto in_a_ring = [&](int64_t rank, int64_t other) {
            s.query_part = part_of(rank);
            s.key_part = part_of(other);
            return Part(device, s, true, rank != other).run(backward, rank);
        };
        const auto own = in_a_ring(0, 0), later = in_a_ring(0, ranks - 1), earlier = in_a_ring(ranks - 1, 0);
        s.query_part = part_of(0);
        s.key_part = {whole.sequence};
        Part(device, s, false, false).run(backward, 0);
        for (const By by : {By::own, By::cudnn, By::cudnn_in_any_order}) {
            const auto sum = [&](const auto& others) {
                return own[size_t(by)] + double(ranks - 1) * others[size_t(by)];
            };
            if (own[size_t(by)] == 0 || later[size_t(by)] == 0 || earlier[size_t(by)] == 0) continue;
            fmt::print(
                R"({{"pass": "{}", "ring": {}, "kernels": "{}", "ms_first_rank": {:.3f}, "ms_last_rank": {:.3f}}})"
                "\n",
                backward ? "backward" : "forward", ranks, name_of(by), sum(later), sum(earlier));
        }
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) try {
    constexpr int numbers = 5, least_of_parts = 4, most_of_parts = 7;
    const bool parts = argc > 1 && std::strcmp(argv[1], "parts") == 0;
    if (parts ? argc != least_of_parts && argc != most_of_parts : argc != 1 && argc != 1 + numbers)
        throw ConfigError(
            "usage: gpu_attention [BATCH SEQUENCE HEADS KV_HEADS WIDTH], or gpu_attention parts SEQUENCE "
            "RANKS "
            "[HEADS KV_HEADS WIDTH]");
    std::vector<AttentionShape> shapes = {{1, 8192, 32, 8, 128}, {4, 1024, 32, 8, 128}};
    const auto number = [&](int i) { return int64_t(std::max(1, std::atoi(argv[i]))); };
    if (parts) {
        shapes = {{1, number(2), 32, 8, 128}};
        if (argc == most_of_parts) shapes = {{1, number(2), number(4), number(5), number(6)}};
        if (const int64_t ranks = number(3); ranks < 2 || number(2) % (2 * ranks) != 0)
            throw ConfigError(
                "gpu_attention parts: SEQUENCE is {}; it must be a multiple of 2 RANKS, of which there "
                "must be at least 2 and are {}",
                number(2), ranks);
    } else if (argc > 1) {
        shapes = {{number(1), number(2), number(3), number(4), number(5)}};
    }
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    for (AttentionShape& shape : shapes) {
        shape.scale = 1 / std::sqrt(double(shape.head_dim));
        if (parts)
            run_parts(*gpu, shape, number(3));
        else
            Bench(*gpu, shape).run();
    }
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_attention: {}\n", error.what());
    return 3;
}
