// SPDX-License-Identifier: Apache-2.0
// gpu_attention [BATCH SEQUENCE HEADS KV_HEADS WIDTH]: attention in bfloat16 on the first GPU, forward and
// backward, by our own kernels (the backward also by mma) and by cuDNN, with queries, keys and values in one
// matrix. Without arguments it measures 1 x 8192 and 4 x 1024 tokens, 32 heads, 8 key/value heads of width
// 128. Results are compared with the gradients in the memory of queries, keys and values, as the model calls
// the kernels. It prints one JSON object per line: kernels, TFLOP/s of the best and of the median run (causal
// operations), planned workspace, the largest difference from our own kernels relative to the largest
// element, whether two runs gave the same bits, and cuDNN's kernel, or why it has none.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace coeus;

namespace {

enum class By { own, mma, cudnn, cudnn_in_any_order };
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
                    fmt::print(R"({{"pass": "{}", "kernels": "{}", "error": "{}"}})"
                               "\n",
                               backward ? "backward" : "forward", name_of(by), error.what());
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
        constexpr int runs = 7, calls = 5;
        std::vector<double> seconds;
        qkv_.put(values_);
        for (int run = 0; run < runs; ++run) {
            const Timer timer;
            for (int i = 0; i < calls; ++i) call(kernels, exec, backward, gradients_);
            exec.queue->finish();
            seconds.push_back(timer.seconds() / calls);
        }
        std::sort(seconds.begin(), seconds.end());
        const double pairs = double(s_.batch * s_.heads) * double(s_.sequence) * double(s_.sequence + 1) / 2;
        const double flops = pairs * double(s_.head_dim) * (backward ? 10 : 4);
        return {flops / seconds[runs / 2] / 1e12, flops / seconds[0] / 1e12};
    }

    Result measure(By by, bool backward, const Result* own) {
        Exec planning, exec(device_);
        planning.architecture = exec.architecture;
        planning.cudnn_bytes = exec.cudnn_bytes = is_own(by) ? 0 : most_cudnn_bytes;
        planning.deterministic = exec.deterministic = by != By::cudnn_in_any_order;
        call(dry_kernels_of(device_.backend()), planning, backward, qkv_);
        std::string kernel = "own";
        if (is_own(by)) {
            use_own_attention(exec, by == By::mma ? OwnAttention::mma : OwnAttention::usual);
        } else {
            const std::string version = use_cudnn(exec);
            const AttentionKernel chosen = choose_kernel(exec, planned_attention(planning).front());
            if (chosen.by_cudnn.empty()) throw SystemError(version + ": " + chosen.why);
            kernel = version + ": " + chosen.by_cudnn;
        }
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

}  // namespace

int main(int argc, char** argv) try {
    constexpr int numbers = 5;
    if (argc != 1 && argc != 1 + numbers)
        throw ConfigError("usage: gpu_attention [BATCH SEQUENCE HEADS KV_HEADS WIDTH]");
    std::vector<AttentionShape> shapes = {{1, 8192, 32, 8, 128}, {4, 1024, 32, 8, 128}};
    if (argc > 1) {
        const auto number = [&](int i) { return int64_t(std::max(1, std::atoi(argv[i]))); };
        shapes = {{number(1), number(2), number(3), number(4), number(5)}};
    }
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    for (AttentionShape& shape : shapes) {
        shape.scale = 1 / std::sqrt(double(shape.head_dim));
        Bench(*gpu, shape).run();
    }
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_attention: {}\n", error.what());
    return 3;
}
