// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/log.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "cuda.hpp"
#include "fastest.hpp"
#include "grouped_choice.hpp"
#include "grouped_gemm_wgmma.hpp"
#include "matrix_difference.hpp"
#include "saved_matrix.hpp"
#include "tensor_map.hpp"

#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace coeus::cuda {

namespace {

/// The kernels by number, as in experts_kernels. An earlier one is used unless a later one is faster.
enum Kernel : uint8_t { mma, wgmma, tma };

/// Which kernels may be used besides mma, and whether the fastest is searched for. If not, the only one is
/// used.
struct Setting {
    std::vector<Kernel> kernels;
    bool searches;
};

/// What was asked for and cannot be done is a warning.
Setting setting_on(const Device& gpu) {
    const char* const text = std::getenv("COEUS_EXPERTS_WGMMA");
    const std::string_view value = text ? text : "";
    Setting setting = {.kernels = {}, .searches = value == "search"};
    if (!setting.searches && value != "1" && value != "tma") return setting;
    const auto warn = [&](const std::string& reason) {
        log::warn("COEUS_EXPERTS_WGMMA={}: products of experts are computed by mma, not by wgmma: {}", value,
                  reason);
    };
    if (const std::string reason = why_no_wgmma(gpu); !reason.empty()) {
        warn(reason);
        return setting;
    }
    if (setting.searches || value == "1") setting.kernels.push_back(wgmma);
    if (value == "1") return setting;
    constexpr const char* no_maps = "this driver does not describe matrices for TMA";
    if (has_tensor_maps())
        setting.kernels.push_back(tma);
    else if (setting.searches)
        log::warn(
            "COEUS_EXPERTS_WGMMA=search: products of experts without a kept choice are not timed, but "
            "computed by mma: {}, and a choice without TMA would be kept. COEUS_EXPERTS_WGMMA=1 uses wgmma "
            "without TMA, and without a search",
            no_maps);
    else
        warn(no_maps);
    return setting;
}

/// All sum in float32, in the same order of 16 elements of the depth, but round differently within these. A
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
        : setting_(setting_on(device)),
          cache_(options.folder),
          begin_(device.make_timed_event()),
          end_(device.make_timed_event()) {}

    Kernel choice(Exec& exec, const GroupedCandidates& c) {
        if (setting_.kernels.empty() || (setting_.searches && !c.is_large)) return mma;
        const auto decided = choices_.find(c.problem);
        if (decided != choices_.end()) return decided->second;
        if (is_recording(exec)) return mma;  // nothing can be compared then
        const std::optional<Kernel> first =
            setting_.searches ? kept_choice(exec, c) : checked(exec, c, setting_.kernels.front());
        if (!first) return mma;
        choices_.emplace(c.problem, *first);
        log::debug("{} is computed by {}", c.problem, experts_kernels[*first]);
        return *first;
    }

private:
    /// The choice that is kept, or else the fastest kernel, which is then kept. Absent if these operands do
    /// not show which kernels are right: a later call decides.
    std::optional<Kernel> kept_choice(Exec& exec, const GroupedCandidates& c) {
        if (!cache_.keeps()) return mma;
        if (const auto earlier = cache_.find(c.problem)) return checked(exec, c, choice_in(*earlier));
        // a choice is kept for processes that have all kernels, too
        if (setting_.kernels.size() + 1 < experts_kernels.size()) return mma;
        const auto right = right_ones(exec, c, setting_.kernels);
        if (!right) return std::nullopt;
        KeptAlgorithm found = {.problem = c.problem, .algorithm = {mma}};
        if (!right->empty()) {
            const Fastest best = search(exec, c, *right);
            found.algorithm[0] = best.number == 0 ? mma : (*right)[size_t(best.number - 1)];
            found.timing = Timing::now(best.seconds, cuda_versions().driver);
        }
        // what cannot be kept is not used: the next run might choose otherwise
        const auto kept = cache_.keep(found);
        if (!kept) return mma;
        // another process may have kept a kernel that is not right here
        const Kernel choice = choice_in(*kept);
        return std::ranges::count(*right, choice) > 0 ? choice : mma;
    }

    /// A kernel that was chosen before, or mma if the kernel is not right here, or not there.
    std::optional<Kernel> checked(Exec& exec, const GroupedCandidates& c, Kernel chosen) {
        if (std::ranges::count(setting_.kernels, chosen) == 0) return mma;
        const auto right = right_ones(exec, c, {chosen});
        if (!right) return std::nullopt;
        return right->empty() ? mma : chosen;
    }

    static Kernel choice_in(const KeptAlgorithm& kept) {
        const uint64_t number = kept.algorithm[0];
        return number < experts_kernels.size() ? Kernel(number) : mma;
    }

    /// Those of these kernels whose results are that of mma. Absent if it is zero, which shows nothing.
    static std::optional<std::vector<Kernel>> right_ones(Exec& exec, const GroupedCandidates& c,
                                                         const std::vector<Kernel>& kernels) {
        const cudaStream_t stream = state_of(exec).stream;
        SavedMatrix saved(c.d, stream);
        const auto result_of = [&](Kernel kernel) {
            Cuda::zero(exec, c.d);
            c.kernels[kernel]();
            COEUS_CHECK_CUDA(cudaStreamSynchronize(stream));  // throws if the kernel failed
            return HostCopy(c.d, stream);
        };
        const HostCopy by_mma = result_of(mma);
        const double bound = bound_of(c.d.dtype);
        std::vector<Kernel> right;
        bool shows_nothing = false;
        for (const Kernel kernel : kernels) {
            const MatrixDifference difference = difference_of(by_mma.view(), result_of(kernel).view());
            if (!(difference.largest <= bound)) {
                log::warn(
                    "the product {} by {} differs from that by mma by {:.2g} of its size; rounding gives at "
                    "most {:.2g}. It is not computed by {}. Please report this",
                    c.problem, experts_kernels[kernel], difference.largest, bound, experts_kernels[kernel]);
                continue;
            }
            if (difference.all_zero)
                log::debug("{}: the result is zero, which shows nothing about {}", c.problem,
                           experts_kernels[kernel]);
            shows_nothing |= difference.all_zero;
            right.push_back(kernel);
        }
        saved.restore();
        if (shows_nothing) return std::nullopt;
        return right;
    }

    /// Times mma (number 0) and these kernels as products are timed (gemm.cu).
    Fastest search(Exec& exec, const GroupedCandidates& c, const std::vector<Kernel>& kernels) const {
        SavedMatrix saved(c.d, state_of(exec).stream);
        const Fastest best = fastest(int(kernels.size()) + 1, [&](int candidate) {
            COEUS_CHECK_CUDA(cudaDeviceSynchronize());
            begin_->record(*exec.queue);
            c.kernels[candidate == 0 ? mma : kernels[size_t(candidate - 1)]]();
            end_->record(*exec.queue);
            return end_->seconds_since(*begin_);
        });
        saved.restore();
        return best;
    }

    Setting setting_;
    AlgorithmCache cache_;
    std::unique_ptr<TimedEvent> begin_, end_;
    std::map<std::string, Kernel> choices_;
};

}  // namespace

void multiply_by_choice(Exec& exec, const GroupedCandidates& candidates) {
    CudaState& state = state_of(exec);
    if (!state.grouped_choices)
        state.grouped_choices = std::make_unique<GroupedChoices>(*exec.device, state.product_options);
    candidates.kernels[static_cast<GroupedChoices&>(*state.grouped_choices).choice(exec, candidates)]();
}

}  // namespace coeus::cuda
