// SPDX-License-Identifier: Apache-2.0
// What kernels find out about their results for the quantization that follows: largest magnitudes and rounded
// rows (Tensor::largest, Tensor::rounded).
#pragma once

#include "support/quantized.hpp"
#include "support/support.hpp"

#include <cstring>
#include <vector>

namespace coeus::test {

/// Observes kernels on a CPU.
class WrittenOperands : public KernelObserver {
public:
    void begin(const char* kernel, double, double) override {
        kernel_ = kernel;
        written_ = {};
    }
    void operands(std::span<const Tensor> all) override {
        if (is("largest_magnitudes")) {
            ++passes;
        } else if (is("quantize") || is("quantize_values")) {
            ++quantizations;
            if (all[2] && all[2].count() == 1) note_largest(all[1], all[2]);
        } else if (!all.empty() && all[0].rounded) {
            written_ = all[0];
        }
    }
    void end() override {
        if (!written_) return;
        ++rounded;
        if (!is_rounded(written_)) ++wrongly_rounded;
        written_ = {};
    }

    int passes = 0;           ///< over a tensor, for its largest magnitude
    int quantizations = 0;    ///< by a kernel of their own
    int rounded = 0;          ///< results that a kernel also wrote rounded
    int wrongly_rounded = 0;  ///< of these, not as the separate kernel would have rounded them
    /// The largest magnitudes that quantizations with one scale were given, and those of their operands on
    /// this rank.
    std::vector<int32_t> given, own;

private:
    bool is(const char* name) const { return std::strcmp(kernel_, name) == 0; }
    void note_largest(const Tensor& x, const Tensor& largest) {
        const OwnedTensor bits(Dtype::i32, {1});
        Exec exec;
        cpu_kernels().largest_magnitudes(exec, bits, x, ScaleGroups::one, {});
        own.push_back(bits.view.as<int32_t>()[0]);
        given.push_back(largest.as<const int32_t>()[0]);
    }
    static bool is_rounded(const Tensor& y) {
        Exec exec;
        if (!y.rounded_scale) {
            const OwnedTensor values(Dtype::bf16, {y.rows(), y.cols()});
            cpu_kernels().quantize_values(exec, values, y, {}, rows_form);
            return std::memcmp(values.view.data, y.rounded, size_t(values.view.bytes())) == 0;
        }
        const Quantized q = quantized(cpu_kernels(), exec, y, rows_form);
        return std::memcmp(q.elements.view.data, y.rounded, size_t(y.count())) == 0 &&
               std::memcmp(q.scales.view.data, y.rounded_scale, size_t(q.scales.view.bytes())) == 0;
    }

    const char* kernel_ = "";
    Tensor written_;
};

}  // namespace coeus::test
