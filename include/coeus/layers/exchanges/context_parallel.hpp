// SPDX-License-Identifier: Apache-2.0
// Context parallelism: P ranks divide every sequence. All layers except attention work on single tokens and
// are not affected. This file says which tokens a rank has, and has the three ways in which attention gets
// the keys and values of the other ranks. Each rank has S/P of a sequence's S tokens. H query heads and K
// key/value heads are those of this rank, if tensor-parallel ranks divide them.
#pragma once

#include "coeus/comm/point_to_point.hpp"
#include "coeus/layers/exchanges/kv_exchange.hpp"

#include <memory>

namespace coeus {

/// How the tokens are divided. Under a causal mask a late token costs more than an early one.
enum class Balancing : uint8_t {
    none,      ///< rank r of P has the r-th of P runs: the last rank works longest
    head_tail  ///< rank r has runs r and 2P - 1 - r of 2P: all ranks work equally long
};

/// The tokens of a sequence of `length` tokens that a rank has. LogicError if it cannot be divided evenly.
SequencePart part_of_sequence(int64_t length, int ranks, int rank, Balancing balancing);

enum class ContextExchange : uint8_t { all_gather, ring, heads };

struct ContextParallel {
    ContextExchange exchange = ContextExchange::all_gather;
    Balancing balancing = Balancing::head_tail;
};

/// The common part of the three exchanges: the ranks, and which tokens each has.
class DividedExchange : public KvExchange {
public:
    /// The communicator must outlive the exchange.
    DividedExchange(const Communicator& cp, Balancing balancing) : cp_(cp), balancing_(balancing) {}

protected:
    SequencePart part_of(int rank, const AttentionTensors& t) const;
    /// Reorders rows of all ranks (T each, one rank after the other) into whole sequences, and back.
    void to_sequences(Ctx& c, Tensor sequences, Tensor ranks, const AttentionTensors& t) const;
    void to_ranks(Ctx& c, Tensor ranks, Tensor sequences, const AttentionTensors& t) const;

    const Communicator& cp_;
    Balancing balancing_;

private:
    template <class Each>
    void for_each_run(const AttentionTensors& t, const Each& each) const;
};

/// Every rank gathers all keys and values (Dubey et al. 2024, Llama 3, section 3.3.2). The backward gathers
/// them again, and sums their gradients in acc onto the ranks that have the tokens.
class AllGatherExchange : public DividedExchange {
public:
    using DividedExchange::DividedExchange;
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor gather(Ctx& c, Tensor own, const AttentionTensors& t) const;
    void scatter(Ctx& c, Tensor own, Tensor gradients, const AttentionTensors& t) const;
};

/// Keys and values travel around the ranks, one part at a time, while attention to the present part is
/// computed; the results are merged (Liu et al. 2023, Ring Attention). In the backward the gradients travel
/// one step after them, in acc, and end on the ranks that have the tokens.
class RingExchange : public DividedExchange {
public:
    /// `exec` is that of the computation; it must outlive the exchange.
    RingExchange(const Communicator& cp, Balancing balancing, Exec& exec)
        : DividedExchange(cp, balancing),
          messages_(std::make_unique<PointToPoint>(cp, 4, Sends::standard, exec)) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor keys_and_values(Ctx& c, const AttentionTensors& t) const;
    void pass_on(Exchange exchange, Tensor here, Tensor coming) const;
    void finish(Ctx& c, Exchange exchange, Tensor passed) const;

    std::unique_ptr<PointToPoint> messages_;  // of each exchange: one to the right, one from the left
};

/// Exchanges all heads of this rank's tokens for all tokens of this rank's heads (H/P query and K/P key/value
/// heads), and back (Jacobs et al. 2023, DeepSpeed Ulysses). A rank alone exchanges nothing.
class HeadsExchange : public DividedExchange {
public:
    /// `of_heads` computes the forward of this rank's heads for whole sequences. It must outlive the
    /// exchange. Another one than local_exchange() has no backward.
    HeadsExchange(const Communicator& cp, Balancing balancing, const KvExchange& of_heads = local_exchange())
        : DividedExchange(cp, balancing), of_heads_(of_heads) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;

private:
    Tensor to_heads(Ctx& c, std::initializer_list<Tensor> tensors, const AttentionTensors& t) const;
    void to_tokens(Ctx& c, std::initializer_list<Tensor> tensors, Tensor all,
                   const AttentionTensors& t) const;

    const KvExchange& of_heads_;
};

/// All ranks have the same tokens. Each attends with its own heads (H/P query and K/P key/value heads), and
/// gathers the results of the others. A rank alone gathers nothing. Only forward.
class OwnHeadsExchange : public KvExchange {
public:
    /// `of_heads` computes the forward of this rank's heads. It and the communicator must outlive the
    /// exchange.
    OwnHeadsExchange(const Communicator& cp, const KvExchange& of_heads) : cp_(cp), of_heads_(of_heads) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;

private:
    const Communicator& cp_;
    const KvExchange& of_heads_;
};

/// The exchange for the ranks of `cp`. The Exec of the computation and `cp` must outlive it. A rank alone
/// exchanges nothing.
std::unique_ptr<KvExchange> make_kv_exchange(const ContextParallel& options, const Communicator& cp,
                                             Exec& exec);

}  // namespace coeus
