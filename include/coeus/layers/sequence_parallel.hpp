// SPDX-License-Identifier: Apache-2.0
// Sequence parallelism (Korthikanti et al. 2022): between the layers each of P tensor-parallel ranks has the
// T/P rows of the residual stream that follow its number; a layer's matrices are divided, and see all T. The
// two collectives, gather and scatter, are each other's transpose. TokenExchange: how the ranks exchange
// tokens around the products of a linear layer (linear.hpp): all at once, or in parts, so that the product of
// one part is computed while the next one is on its way. The context brings it.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/layers/context.hpp"

#include <memory>

namespace coeus {

/// [T/P, D] -> [T, D] in temp; x itself where there is one rank.
Tensor gather_tokens(Ctx& c, Tensor x);
/// Sums `parts` [T, D] of all ranks; this rank's rows go to y [T/P, D]. With one rank they are the same
/// memory.
void scatter_tokens(Ctx& c, Tensor y, Tensor parts);
/// Where to put the parts of y: [T, D] in temp; y itself where there is one rank.
Tensor parts_of(Ctx& c, Tensor y);

class TokenExchange {
public:
    /// Some of the T rows; `first` is the number of the first of them.
    using EachRows = FunctionRef<void(Tensor rows, int64_t first)>;

    virtual ~TokenExchange() = default;
    /// [T/P, D] -> [T, D] in temp; x itself where there is one rank. Calls each(rows, first) for parts of it,
    /// which together are all T rows, as soon as they are there.
    virtual Tensor gather(Ctx& c, Tensor x, EachRows each) const = 0;
    /// y [T/P, D] = this rank's rows of the sum over all ranks of what compute(rows, first) puts into parts,
    /// which together are T rows.
    virtual void scatter(Ctx& c, Tensor y, EachRows compute) const = 0;
};

// whole_tokens(), declared in context.hpp: one collective, one part.

/// P parts: every rank's rows go to each other rank by themselves, on a stream (asynchronous tensor
/// parallelism; Wang et al. 2023, Overlap Communication with Dependent Computation via Decomposition). Sums
/// are taken in the order of the ranks, as in one collective.
class OverlappedTokens : public TokenExchange {
public:
    /// Both outlive it. The stream does the exchanges of one call after the other.
    OverlappedTokens(const Communicator& tp, Stream& stream);
    ~OverlappedTokens() override;
    Tensor gather(Ctx& c, Tensor x, EachRows each) const override;
    void scatter(Ctx& c, Tensor y, EachRows compute) const override;

private:
    class Messages;
    std::unique_ptr<Messages> messages_;
};

/// For the ranks of `tp`; `overlapped` is of no use to one alone. Both outlive it.
std::unique_ptr<TokenExchange> make_token_exchange(bool overlapped, const Communicator& tp, Stream& stream);

}  // namespace coeus
