// SPDX-License-Identifier: Apache-2.0
// Observers: the objects, up to eight, that are notified of the kernels and exchanges of an Exec (for
// profiles, traces and counts). Each is notified while its Observation lives.
#pragma once

#include "coeus/device/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace coeus {

/// What a computation exchanges with other ranks, and may have to wait for.
enum class Exchange : uint8_t {
    wait_for_stage,    ///< for activations or gradients of a neighbouring stage
    gather_tokens,     ///< tokens of the tensor-parallel ranks, which divide a layer's matrices
    scatter_tokens,    ///< the transpose of gather_tokens
    gather_log_sums,   ///< of rows of logits whose columns are divided over ranks
    sum_label_logits,  ///< the logits of the labels, likewise
    largest_logits,    ///< the largest logits of rows, likewise
    gather_logits,     ///< whole rows of logits
    gather_keys,       ///< keys and values, if sequences are divided over ranks
    scatter_keys,      ///< the gradients of keys and values
    pass_keys_on,      ///< keys and values, from rank to rank around a ring
    pass_gradients_on,
    tokens_to_heads,  ///< from divided tokens to divided heads
    heads_to_tokens,
    sum_over_heads,     ///< one number of each token, of norms over all heads, which ranks divide
    sum_token_choices,  ///< how often each sequence chose each expert, over ranks that divide its tokens
    sum_part_choices,   ///< likewise, over ranks that divide sequences
    count_rows,         ///< how many rows each rank sends to each expert, if ranks divide the experts
    rows_to_experts,    ///< rows of tokens to the ranks of their experts; gradients of results likewise
    rows_from_experts,  ///< the way back
    agree_on_scales,    ///< of 8-bit tensors, over ranks with other tokens or columns
    agree_on_context_scales,  ///< likewise, over ranks that divide sequences
    agree_on_weight_scales,
    gather_weights,       ///< from their shards
    gather_matrix_rows,   ///< from their shards, for an optimizer that needs whole matrices
    gather_matrix_parts,  ///< likewise, from the ranks that divide the matrices
    reduce_gradients,     ///< over shards and replicas
    count_labels,         ///< the labels of a step that count
    sum_squared_norm,     ///< the squared norm of all gradients
    compare_losses,
    agree_to_stop
};
inline constexpr size_t num_exchanges = size_t(Exchange::agree_to_stop) + 1;

/// The mesh axis along which the ranks of an exchange lie. `dp`: shards and replicas; `world`: all ranks.
enum class ExchangeAxis : uint8_t { pp, tp, cp, ep, dp, world };

/// Its name in traces and reports: "gather_tokens".
const char* name_of(Exchange exchange);
ExchangeAxis axis_of(Exchange exchange);

/// What a table for planning knows of the kernel that would compute a call, besides its operands.
struct PlannedKernel {
    /// Which of several kernels. For a product, how its operands are stored ("nt": a as it is, b transposed);
    /// for a product of experts' rows "experts", or "expert_weights" for their gradient, and in 8 bits
    /// "codes", "converted" (to half precision) or "decoded"; for attention, whose kernel it is ("cudnn",
    /// "cudnn_any_order", "own", "own_wgmma").
    const char* variant = "";
    /// Rows, columns and depth of a product, for experts of the mean group; sequences, tokens of each, and
    /// width of a head for attention. Attention to parts of the keys: tokens of a causal square with as many
    /// scores.
    std::array<int64_t, 3> size = {};
    int launches = 1;       ///< kernels that a GPU is given for the call
    double more_bytes = 0;  ///< that kernels beside that of the call move, at the rate of a copy
};

/// Notified when a kernel starts and ends; on a GPU, when it is submitted to the queue. Counting, profiling
/// and tracing are observers.
class KernelObserver {
public:
    virtual ~KernelObserver() = default;
    /// A kernel begins. `flops` and `bytes` (read and written) are computed from its operands.
    virtual void begin(const char* kernel, double flops, double bytes) = 0;
    /// An exchange with other ranks, or a wait for one, begins. end() follows as for a kernel.
    virtual void begin_exchange(Exchange exchange, double bytes) { begin(name_of(exchange), 0, bytes); }
    /// The tensors of the call that has just begun, outputs first. Absent operands have no shape.
    virtual void operands(std::span<const Tensor>) {}
    /// In a planning run for a GPU: the kernel of the call that has just begun, if it has more than one, or
    /// more than one launch.
    virtual void planned(const PlannedKernel&) {}
    /// The call launches a kernel on a GPU; each call may launch several.
    virtual void launch(const char*) {}
    virtual void end() = 0;
};

class Observation;

/// Forwards each call to all observers. The observer that was added last sees the beginning first and the end
/// last, so that the first observer measures only the call.
class Observers {
public:
    Observers() = default;
    Observers(const Observers&) = delete;
    Observers& operator=(const Observers&) = delete;

    bool none() const { return count_ == 0; }
    /// Adds an observer, which is borrowed, until the Observation ends. LogicError if there are more than
    /// eight.
    [[nodiscard]] Observation add(KernelObserver& observer);

    void begin(const char* kernel, double flops, double bytes) const;
    void begin_exchange(Exchange exchange, double bytes) const;
    void operands(std::span<const Tensor> tensors) const;
    void planned(const PlannedKernel& kernel) const;
    void launch(const char* kernel) const;
    void end() const;

private:
    friend class Observation;
    void remove(const KernelObserver& observer);

    std::array<KernelObserver*, 8> observers_ = {};
    size_t count_ = 0;
};

/// The time during which an observer is notified. It must end before the Observers are destroyed. Observers
/// may be added and removed between calls, but not during one.
class [[nodiscard]] Observation {
public:
    /// Observes nothing.
    Observation() = default;
    ~Observation() { end(); }
    Observation(Observation&& other) noexcept;
    Observation& operator=(Observation&& other) noexcept;

    explicit operator bool() const { return observers_ != nullptr; }
    void end();

private:
    friend class Observers;
    Observation(Observers& observers, KernelObserver& observer)
        : observers_(&observers), observer_(&observer) {}
    Observers* observers_ = nullptr;
    KernelObserver* observer_ = nullptr;
};

}  // namespace coeus
