// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/log.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "cuda.hpp"
#include "fastest.hpp"
#include "grouped_choice.hpp"
#include "grouped_gemm_wgmma.hpp"
#include "matrix_difference.hpp"
#include "saved_matrix.hpp"

#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace coeus::cuda {

namespace {

enum class Setting : uint8_t { never, search, always };

Setting setting_of(const char* text) {
    const std::string_view value = text ? text : "";
    return value == "search" ? Setting::search : value == "1" ? Setting::always : Setting::never;
}

/// A GPU that cannot do what the user asks for is a warning.
Setting setting_for(const Device& device) {
    const char* const asked = std::getenv("COEUS_EXPERTS_WGMMA");
    const Setting setting = setting_of(asked);
    if (setting == Setting::never) return setting;
    const std::string reason = why_no_wgmma(device);
    if (reason.empty()) return setting;
    log::warn("COEUS_EXPERTS_WGMMA={}: products of experts are computed by mma, not by wgmma: {}", asked,
              reason);
    return Setting::never;
}

/// The candidates by number. The first one is used unless the other is faster.
enum Candidate : uint8_t { mma, wgmma };

/// Both sum in float32, in the same order of 16 elements of the depth, but round differently within these. A
/// result in bfloat16 is rounded once more.
double bound_of(Dtype result) {
    return result == Dtype::bf16 ? 0x1p-8 : 0x1p-12;
}

/// A result as bytes on the host.
class HostCopy {
public:
    HostCopy(const Tensor& t, cudaStream_t stream)
        : bytes_(size_t(t.rows() * t.cols() * size_of(t.dtype))), view_(bytes_.data(), t.dtype, t.shape) {
        const auto row = size_t(t.cols() * size_of(t.dtype));
        COEUS_CHECK_CUDA(cudaMemcpy2DAsync(bytes_.data(), row, t.data, size_t(t.ld * size_of(t.dtype)), row,
                                           size_t(t.rows()), cudaMemcpyDefault, stream));
        COEUS_CHECK_CUDA(cudaStreamSynchronize(stream));
    }
    const Tensor& view() const { return view_; }

private:
    std::vector<std::byte> bytes_;
    Tensor view_;
};

class GroupedChoices : public BackendState {
public:
    GroupedChoices(const Device& device, const ProductOptions& options)
        : setting_(setting_for(device)),
          cache_(options.folder),
          begin_(device.make_timed_event()),
          end_(device.make_timed_event()) {}

    bool chooses_wgmma(Exec& exec, const GroupedCandidates& c) {
        const bool is_possible = setting_ == Setting::always || (setting_ == Setting::search && c.is_large);
        if (!is_possible) return false;
        const auto decided = choices_.find(c.problem);
        if (decided != choices_.end()) return decided->second == wgmma;
        if (is_recording(exec)) return false;  // nothing can be compared then
        const std::optional<Candidate> choice = first_choice(exec, c);
        if (!choice) return false;
        choices_.emplace(c.problem, *choice);
        log::debug("{} is computed by {}", c.problem, *choice == wgmma ? "wgmma" : "mma");
        return *choice == wgmma;
    }

private:
    /// Absent if these operands do not show whether wgmma is right: a later call decides.
    std::optional<Candidate> first_choice(Exec& exec, const GroupedCandidates& c) {
        const bool is_always = setting_ == Setting::always;
        if (!is_always && !cache_.keeps()) return mma;
        const auto earlier = is_always ? std::nullopt : cache_.find(c.problem);
        if (earlier && choice_in(*earlier) == mma) return mma;
        const std::optional<bool> right = is_right(exec, c);
        if (!right) return std::nullopt;
        const bool may_be_chosen = *right;
        if (is_always || earlier) return may_be_chosen ? wgmma : mma;
        const Fastest best = may_be_chosen ? search(exec, c) : Fastest{mma, 0};
        KeptAlgorithm found = {.problem = c.problem, .algorithm = {uint64_t(best.number)}};
        if (may_be_chosen) found.timing = Timing::now(best.seconds, cuda_versions().driver);
        // what cannot be kept is not used: the next run might choose otherwise
        const auto kept = cache_.keep(found);
        return kept && may_be_chosen ? choice_in(*kept) : mma;
    }

    static Candidate choice_in(const KeptAlgorithm& kept) { return kept.algorithm[0] == wgmma ? wgmma : mma; }

    /// Compares the results. Absent if the result is zero, which shows nothing.
    static std::optional<bool> is_right(Exec& exec, const GroupedCandidates& c) {
        const cudaStream_t stream = state_of(exec).stream;
        SavedMatrix saved(c.d, stream);
        const auto result_of = [&](FunctionRef<void()> multiply) {
            Cuda::zero(exec, c.d);
            multiply();
            COEUS_CHECK_CUDA(cudaStreamSynchronize(stream));  // throws if the kernel failed
            return HostCopy(c.d, stream);
        };
        const HostCopy by_mma = result_of(c.by_mma), by_wgmma = result_of(c.by_wgmma);
        saved.restore();
        const MatrixDifference difference = difference_of(by_mma.view(), by_wgmma.view());
        const double bound = bound_of(c.d.dtype);
        if (!(difference.largest <= bound))
            log::warn(
                "the product {} by wgmma differs from that by mma by {:.2g} of its size; rounding gives at "
                "most {:.2g}. It is computed by mma. Please report this",
                c.problem, difference.largest, bound);
        else if (difference.all_zero)
            log::debug("{}: the result is zero, which shows nothing about wgmma", c.problem);
        if (difference.largest <= bound && difference.all_zero) return std::nullopt;
        return difference.largest <= bound;
    }

    /// Times both as products are timed (gemm.cu).
    Fastest search(Exec& exec, const GroupedCandidates& c) const {
        SavedMatrix saved(c.d, state_of(exec).stream);
        const Fastest best = fastest(2, [&](int candidate) {
            COEUS_CHECK_CUDA(cudaDeviceSynchronize());
            begin_->record(*exec.queue);
            candidate == wgmma ? c.by_wgmma() : c.by_mma();
            end_->record(*exec.queue);
            return end_->seconds_since(*begin_);
        });
        saved.restore();
        return best;
    }

    Setting setting_;
    AlgorithmCache cache_;
    std::unique_ptr<TimedEvent> begin_, end_;
    std::map<std::string, Candidate> choices_;
};

}  // namespace

bool chooses_wgmma(Exec& exec, const GroupedCandidates& candidates) {
    CudaState& state = state_of(exec);
    if (!state.grouped_choices)
        state.grouped_choices = std::make_unique<GroupedChoices>(*exec.device, state.product_options);
    return static_cast<GroupedChoices&>(*state.grouped_choices).chooses_wgmma(exec, candidates);
}

}  // namespace coeus::cuda
