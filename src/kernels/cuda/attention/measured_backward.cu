// SPDX-License-Identifier: Apache-2.0
// Times cuDNN's backward of attention and our own one after the other, and keeps the faster one.
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../products/fastest.hpp"
#include "../products/saved_matrix.hpp"
#include "../workspace.hpp"
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"
#include "attention_wgmma.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/measured_backward.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

namespace coeus::cuda {

namespace {

// In the order in which they are tried, and numbered in a file.
enum Backward : uint8_t { by_cudnn, by_own };

// The memory of the operands of a call, with random numbers as queries, keys, values and gradients.
class Operands {
public:
    Operands(Exec& exec, const AttentionCall& call) : call_(call) {
        const AttentionShape& s = call.shape;
        lse_ = Tensor(nullptr, Dtype::f32, {s.heads, s.batch * s.sequence});
        int64_t bytes = 0;
        for (const Tensor* t : all()) bytes += bytes_of(*t);
        memory_ = memory_with_room(size_t(bytes));
        if (!memory_) return;
        std::byte* at = memory_;
        for (Tensor* t : all()) {
            t->data = at;
            at += bytes_of(*t);
        }
        uint64_t stream = 0;
        for (const Tensor* t : {&call_.q, &call_.k, &call_.v, &call_.dout})
            Cuda::draw(exec, whole(*t), Init::normal(1), 1, {.stream = ++stream});
        Cuda::attention(exec, call_.out, lse_, call_.q, call_.k, call_.v, {}, s);
    }
    ~Operands() {
        if (memory_) cudaFree(memory_);
    }
    Operands(const Operands&) = delete;
    Operands& operator=(const Operands&) = delete;

    bool have_room() const { return memory_ != nullptr; }
    void run_backward(Exec& exec) const {
        Cuda::attention_backward(exec, call_.dq, call_.dk, call_.dv, call_.dout, call_.out, lse_, call_.q,
                                 call_.k, call_.v, {}, call_.shape, false);
    }

private:
    std::array<Tensor*, 9> all() {
        return {&call_.q,  &call_.k,  &call_.v,  &call_.dout, &call_.out,
                &call_.dq, &call_.dk, &call_.dv, &lse_};
    }
    // With what is between its rows: a tensor may be columns of a wider matrix.
    static Tensor whole(const Tensor& t) { return Tensor(t.data, t.dtype, {t.rows(), t.ld}); }
    static int64_t bytes_of(const Tensor& t) { return round_up(whole(t).bytes(), 256); }

    AttentionCall call_;
    Tensor lse_;
    std::byte* memory_ = nullptr;
};

// Enough runs that a small call takes longer than launching it.
int repeats(const AttentionShape& s) {
    constexpr double work = 1e11, most = 20;
    const double scores = double(s.batch * s.heads) * double(s.sequence) * double(s.keys().count);
    return int(std::clamp(work / (5 * scores * double(s.head_dim)), 1.0, most));
}

std::string problem_of(const Exec& exec, const AttentionCall& call) {
    return fmt::format("attention of {}, {} of keys, rows of {}, {}, {} and {} elements, {}, kernels {}",
                       call.text(), call.shape.kv_heads, call.q.ld, call.k.ld, call.v.ld, call.dout.ld,
                       exec.deterministic ? "in a fixed order" : "in any order", backward_wgmma_version);
}

// Beside the folder of the products' algorithms, which has this GPU and the version of cuBLASLt in its name.
std::string folder_of(Exec& exec) {
    const std::string& products = state_of(exec).product_options.folder;
    if (products.empty()) return "";
    return (std::filesystem::path(products).parent_path() /
            file_name_of(fmt::format("{}-{}", exec.device->name(), cudnn_text(exec))))
        .string();
}

struct Times {
    Backward faster;
    std::array<double, 2> seconds;  // the least of each
};

Times time_both(Exec& exec, const AttentionCall& call, const Operands& operands) {
    const std::unique_ptr<TimedEvent> begin = exec.device->make_timed_event(),
                                      end = exec.device->make_timed_event();
    const int runs = repeats(call.shape);
    Times times = {by_cudnn,
                   {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}};
    const Fastest best = fastest(2, [&](int which) {
        if (which == by_own) take_own_backward(exec, call, "it is timed");
        COEUS_CHECK_CUDA(cudaDeviceSynchronize());
        begin->record(*exec.queue);
        for (int run = 0; run < runs; ++run) operands.run_backward(exec);
        end->record(*exec.queue);
        const double seconds = end->seconds_since(*begin) / runs;
        if (which == by_own) forget_own_backward(exec, call);
        times.seconds[size_t(which)] = std::min(times.seconds[size_t(which)], seconds);
        return seconds;
    });
    times.faster = Backward(best.number);
    return times;
}

// The choice in a file; nothing if it is not a choice.
std::optional<Backward> choice_in(const KeptAlgorithm& kept) {
    const std::string name = backward_in(kept);
    if (name.empty()) return std::nullopt;
    return name == "own" ? by_own : by_cudnn;
}

}  // namespace

}  // namespace coeus::cuda

namespace coeus {

bool has_two_backwards(Exec& exec, const AttentionCall& call) {
    return call.is_backward && !choose_kernel(exec, call).by_cudnn.empty() &&
           cuda::tensor_cores_fit(call.q.dtype, call.shape,
                                  {call.dq, call.dk, call.dv, call.dout, call.q, call.k, call.v}) &&
           cuda::wgmma_computes(exec, call.shape);
}

std::optional<MeasuredBackward> measured_backward(Exec& exec, const AttentionCall& call) {
    if (!has_two_backwards(exec, call)) return std::nullopt;
    cuda::AlgorithmCache cache(cuda::folder_of(exec));
    if (!cache.keeps()) return std::nullopt;
    const std::string problem = cuda::problem_of(exec, call);
    const auto as_kept =
        [&](const std::optional<cuda::KeptAlgorithm>& kept) -> std::optional<MeasuredBackward> {
        const auto choice = kept ? cuda::choice_in(*kept) : std::nullopt;
        if (!choice) return std::nullopt;
        return MeasuredBackward{*choice == cuda::by_own, "as kept in " + cache.path_of(problem)};
    };
    const std::optional<cuda::KeptAlgorithm> kept = cache.find(problem);
    if (auto choice = as_kept(kept)) return choice;
    if (kept) cache.reject(problem, "it does not name a backward");
    if (exec.workspace.bytes() < cuda::workspace::own_attention_backward(call.dq, call.shape, false))
        return std::nullopt;
    const cuda::Operands operands(exec, call);
    if (!operands.have_room()) return std::nullopt;
    const cuda::Times times = cuda::time_both(exec, call, operands);
    const double seconds = times.seconds[size_t(times.faster)];
    const auto now =
        cache.keep({problem, {times.faster}, cuda::Timing::now(seconds, cuda_versions().driver)});
    // a choice that cannot be kept is not used: the next run might choose otherwise
    if (!now) return std::nullopt;
    if (now->algorithm != cuda::Algorithm{times.faster}) return as_kept(now);  // another process was faster
    return MeasuredBackward{
        times.faster == cuda::by_own,
        fmt::format("measured: {:.3g} ms, cuDNN's {:.3g} ms", 1e3 * times.seconds[cuda::by_own],
                    1e3 * times.seconds[cuda::by_cudnn])};
}

}  // namespace coeus
