// SPDX-License-Identifier: Apache-2.0
// Sequence parallelism (Korthikanti et al. 2022): between the layers, each of P tensor-parallel ranks has T/P
// rows of the residual stream, in rank order. The layers' divided matrices process all T rows. The two
// collectives, gather and scatter, are each other's transpose. TokenExchange is how the ranks exchange tokens
// around the products of a linear layer (linear.hpp): all at once, or in parts, so that the product of one
// part is computed while the next one is transferred. The context selects it.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/context.hpp"

namespace coeus {

/// Memory [T, D] for the rows of all ranks, with their scales if x [T/P, D] is in 8 bits: those of rows are
/// gathered, the others are the same on all ranks.
Tensor room_for_all(Ctx& c, Arena& arena, Tensor x);
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
    using Work = FunctionRef<void()>;

    virtual ~TokenExchange() = default;
    /// Gathers x [T/P, D] for products with `columns` columns: calls each(rows, first) for parts of the T
    /// rows as soon as they have arrived; together they are all. Rows are valid during the call.
    virtual void gather_parts(Ctx& c, Tensor x, int64_t columns, EachRows each) const = 0;
    /// The same, and returns all rows [T, D]; x itself with one rank. They are valid until the next gather
    /// begins, or until the caller's temporaries end.
    virtual Tensor gather(Ctx& c, Tensor x, int64_t columns, EachRows each) const = 0;
    /// Returns all rows: of the gather of x that begin_gather() has begun, or of one that begins now.
    virtual Tensor gather(Ctx& c, Tensor x) const = 0;
    /// Begins to gather x, if that can be done while something else is computed. Until gather(c, x) ends it,
    /// x must not change, and no other gather may begin.
    virtual void begin_gather(Ctx& c, Tensor x) const = 0;
    /// Calls compute(rows, first) to fill parts of T rows on each rank. y [T/P, D] gets this rank's rows of
    /// the sum over all ranks. Calls meanwhile() while the last rows may be on their way; it may end a gather
    /// that has begun, but begin no exchange.
    virtual void scatter(
        Ctx& c, Tensor y, EachRows compute, Work meanwhile = [] {}) const = 0;
};

// whole_tokens(), declared in context.hpp: one collective and one part.

}  // namespace coeus
