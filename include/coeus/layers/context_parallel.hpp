// SPDX-License-Identifier: Apache-2.0
// Context parallelism: P ranks divide every sequence; all layers but attention work on a token alone and do
// not notice. Which tokens a rank has, and the three ways in which attention gets the keys and values of the
// others. Of S tokens a sequence each rank has S/P; H query and K key/value heads, of this rank where
// tensor-parallel ranks divide them.
#pragma once

#include "coeus/comm/point_to_point.hpp"
#include "coeus/layers/kv_exchange.hpp"

#include <memory>

namespace coeus {

/// Under a causal mask a late token costs more than an early one.
enum class Balancing : uint8_t {
    none,      ///< rank r of P has the r-th of P runs: the last works longest
    head_tail  ///< it has runs r and 2P - 1 - r of 2P: all work alike
};

/// Which tokens of a sequence of `length` a rank has. LogicError where it cannot be divided.
SequencePart part_of_sequence(int64_t length, int ranks, int rank, Balancing balancing);

enum class ContextExchange : uint8_t { all_gather, ring, heads };

struct ContextParallel {
    ContextExchange exchange = ContextExchange::all_gather;
    Balancing balancing = Balancing::head_tail;
};

/// What the exchanges share: the ranks, and where each one's tokens are.
class DividedExchange : public KvExchange {
public:
    /// The communicator outlives the exchange.
    DividedExchange(const Communicator& cp, Balancing balancing) : cp_(cp), balancing_(balancing) {}

protected:
    SequencePart part_of(int rank, const AttentionTensors& t) const;
    /// Rows of all ranks, T each, one rank after the other -> sequence after sequence, and back.
    void to_sequences(Ctx& c, Tensor sequences, Tensor ranks, const AttentionTensors& t) const;
    void to_ranks(Ctx& c, Tensor ranks, Tensor sequences, const AttentionTensors& t) const;

    const Communicator& cp_;
    Balancing balancing_;

private:
    template <class Each>
    void for_each_run(const AttentionTensors& t, const Each& each) const;
};

/// Every rank gathers all keys and values (Dubey et al. 2024, Llama 3, section 3.3.2); the backward gathers
/// them again, and sums the gradients in acc where their tokens are.
class AllGatherExchange : public DividedExchange {
public:
    using DividedExchange::DividedExchange;
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor gather(Ctx& c, Tensor own, const AttentionTensors& t) const;
    void scatter(Ctx& c, Tensor own, Tensor gradients, const AttentionTensors& t) const;
};

/// Keys and values go round the ranks, one part at a time, while attention to the part that is here is
/// computed; the results are merged (Liu et al. 2023, Ring Attention). In the backward the gradients go round
/// with them, in acc, and end where they belong.
class RingExchange : public DividedExchange {
public:
    /// `exec`: of the computation; it outlives the exchange.
    RingExchange(const Communicator& cp, Balancing balancing, Exec& exec)
        : DividedExchange(cp, balancing),
          messages_(std::make_unique<PointToPoint>(cp, 2, Sends::standard, exec)) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor keys_and_values(Ctx& c, const AttentionTensors& t) const;
    void pass_on(Tensor here, Tensor coming) const;
    void finish(Ctx& c, Exchange exchange, Tensor passed) const;

    std::unique_ptr<PointToPoint> messages_;  // one to the right, one from the left
};

/// From all heads of its tokens to all tokens of its heads, H/P and K/P of them, and back (Jacobs et al.
/// 2023, DeepSpeed Ulysses).
class HeadsExchange : public DividedExchange {
public:
    using DividedExchange::DividedExchange;
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor to_heads(Ctx& c, std::initializer_list<Tensor> tensors, const AttentionTensors& t) const;
    void to_tokens(Ctx& c, std::initializer_list<Tensor> tensors, Tensor all,
                   const AttentionTensors& t) const;
};

/// For the ranks of `cp` and the Exec of the computation, which outlive it; one rank alone exchanges nothing.
std::unique_ptr<KvExchange> make_kv_exchange(const ContextParallel& options, const Communicator& cp,
                                             Exec& exec);

}  // namespace coeus
