// SPDX-License-Identifier: Apache-2.0
// Sequence parallelism (Korthikanti et al. 2022): between the layers, each of P tensor-parallel ranks has T/P
// rows of the residual stream, in rank order. The layers' divided matrices process all T rows. The two
// collectives, gather and scatter, are each other's transpose. TokenExchange is how the ranks exchange tokens
// around the products of a linear layer (linear.hpp): all at once, or in parts, so that the product of one
// part is computed while the next one is transferred. The context selects it.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/layers/context.hpp"

#include <memory>

namespace coeus {

/// [T/P, D] -> [T, D] in temp; x itself with one rank.
Tensor gather_tokens(Ctx& c, Tensor x);
/// Sums `parts` [T, D] over all ranks and writes this rank's rows to y [T/P, D]. With one rank, parts must be
/// y.
void scatter_tokens(Ctx& c, Tensor y, Tensor parts);
/// Memory for the parts of y: [T, D] in temp; y itself with one rank.
Tensor parts_of(Ctx& c, Tensor y);

class TokenExchange {
public:
    /// Called with some of the T rows; `first` is the number of the first of them.
    using EachRows = FunctionRef<void(Tensor rows, int64_t first)>;

    virtual ~TokenExchange() = default;
    /// [T/P, D] -> [T, D] in temp; x itself with one rank. Calls each(rows, first) for parts of the result as
    /// soon as they have arrived; together they are all T rows.
    virtual Tensor gather(Ctx& c, Tensor x, EachRows each) const = 0;
    /// Calls compute(rows, first) to fill parts of T rows on each rank. y [T/P, D] gets this rank's rows of
    /// the sum over all ranks.
    virtual void scatter(Ctx& c, Tensor y, EachRows compute) const = 0;
};

// whole_tokens(), declared in context.hpp: one collective and one part.

/// Exchanges P parts: each pair of ranks exchanges its rows by a message of its own, on a stream
/// (asynchronous tensor parallelism; Wang et al. 2023, Overlap Communication with Dependent Computation via
/// Decomposition). Sums are taken in rank order, as in one collective.
class OverlappedTokens : public TokenExchange {
public:
    /// Both must outlive it. The stream does the exchanges in the order of the calls.
    OverlappedTokens(const Communicator& tp, Stream& stream);
    ~OverlappedTokens() override;
    Tensor gather(Ctx& c, Tensor x, EachRows each) const override;
    void scatter(Ctx& c, Tensor y, EachRows compute) const override;

private:
    class Messages;
    std::unique_ptr<Messages> messages_;
};

/// The exchange for the ranks of `tp`; `overlapped` has no effect for a rank alone. Both references must
/// outlive it.
std::unique_ptr<TokenExchange> make_token_exchange(bool overlapped, const Communicator& tp, Stream& stream);

}  // namespace coeus
