// SPDX-License-Identifier: Apache-2.0
// Who sees the kernels and exchanges of an Exec: up to eight observers, each for as long as its Observation
// lives.
#pragma once

#include "coeus/device/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace coeus {

/// What a computation exchanges with other ranks, and may have to wait for.
enum class Exchange : uint8_t {
    wait_for_stage,    ///< a flow or gradient of a neighbouring stage
    gather_tokens,     ///< of the ranks that divide a layer's matrices
    scatter_tokens,    ///< its transpose
    gather_log_sums,   ///< of rows of logits whose columns are divided
    sum_label_logits,  ///< likewise
    gather_logits,     ///< whole rows of them
    gather_keys,       ///< and values, of divided sequences
    scatter_keys,      ///< the gradients of these
    pass_keys_on,      ///< by one rank of a ring
    pass_gradients_on,
    tokens_to_heads,  ///< heads are divided in place of tokens
    heads_to_tokens,
    gather_weights,       ///< of shards
    gather_matrix_rows,   ///< of shards, for an optimizer that looks at whole matrices
    gather_matrix_parts,  ///< likewise, of the ranks that divide them
    reduce_gradients,     ///< of shards and replicas
    count_labels,         ///< of a step
    sum_squared_norm,     ///< of all gradients
    compare_losses,
    agree_to_stop
};
inline constexpr size_t num_exchanges = size_t(Exchange::agree_to_stop) + 1;

/// The axis of the mesh along which its ranks are; `dp`: shards and replicas; `world`: all ranks.
enum class ExchangeAxis : uint8_t { pp, tp, cp, dp, world };

/// As traces and reports call it: "gather_tokens".
const char* name_of(Exchange exchange);
ExchangeAxis axis_of(Exchange exchange);

/// Sees every kernel start and end, on a GPU where it is given to the queue; counting, profiling and tracing
/// are observers, not other tables.
class KernelObserver {
public:
    virtual ~KernelObserver() = default;
    /// `flops` and `bytes` (read and written) as the operands say.
    virtual void begin(const char* kernel, double flops, double bytes) = 0;
    /// No kernel, but an exchange with other ranks or a wait for one; end() follows as well.
    virtual void begin_exchange(Exchange exchange, double bytes) { begin(name_of(exchange), 0, bytes); }
    /// The tensors of the call that has just begun, outputs first; absent ones have no shape.
    virtual void operands(std::span<const Tensor>) {}
    virtual void end() = 0;
};

class Observation;

/// Hands each call on to all observers. The one that was added last sees the beginning first and the end
/// last, so that the first measures the call alone.
class Observers {
public:
    Observers() = default;
    Observers(const Observers&) = delete;
    Observers& operator=(const Observers&) = delete;

    bool none() const { return count_ == 0; }
    /// Adds an observer, which is borrowed, until the Observation ends. LogicError where there are too many.
    [[nodiscard]] Observation add(KernelObserver& observer);

    void begin(const char* kernel, double flops, double bytes) const;
    void begin_exchange(Exchange exchange, double bytes) const;
    void operands(std::span<const Tensor> tensors) const;
    void end() const;

private:
    friend class Observation;
    void remove(const KernelObserver& observer);

    std::array<KernelObserver*, 8> observers_ = {};
    size_t count_ = 0;
};

/// Ends in its destructor, which must come before that of the Observers. Observers are added and removed
/// between calls, not within one.
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
