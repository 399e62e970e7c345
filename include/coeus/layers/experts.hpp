// SPDX-License-Identifier: Apache-2.0
// Experts: the feed-forward layers of a mixture of experts. Each processes the tokens for which the router
// has chosen it. The weight of an assignment multiplies the activation of its expert (F wide) instead of the
// result (D wide). So the results are added as they are, and the weight's gradient needs no result:
//
//   rows = x by expert          gate_up = rows w13^T      act = weight gate(gate_up)     out = act w2^T
//   drows = dy by expert        dact = drows w2           dweight = dact . gate(gate_up)
//   y += the sum of the rows of out for each token, in ascending order of the experts
//
// If the weight belongs to the input (Llama 4), it multiplies gate_up instead, since that product is linear.
// If w2 has a bias, the weight multiplies the bias too.
//
// If the matrices have a recipe, the products take 8-bit operands. Scales of columns belong to the rows that
// an expert has on this rank in one round.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/operands.hpp"

#include <memory>

namespace coeus {

/// The experts that a router has chosen for n tokens, and their weights, both [n, k]. Experts are in
/// ascending order: i32. The weights are acc.
struct Routed {
    Tensor experts, weights;
};

/// The weights of this rank's G experts of E, which begin with `first`: w13 is [w1; w3] of each expert, or
/// their rows in turn (Gate::interleaved), G x [2F/P, D]; w2 is G x [D, F/P]. The biases b13 [E, 2F/P] and b2
/// [E, D] are those of all experts, or null. P ranks divide each expert.
struct ExpertWeights {
    const Storage *w13 = nullptr, *w2 = nullptr, *b13 = nullptr, *b2 = nullptr;
    int64_t first = 0, count = 0;
};

/// The products of this rank's experts, for rows [rows, D] that are grouped by expert, with weights [rows]
/// (acc).
class ExpertProducts {
public:
    ExpertProducts(const ExpertWeights& weights, const Gate& gate) : weights_(weights), gate_(gate) {}

    int64_t experts() const { return weights_.count; }
    /// Columns of gate_up, 2F/P.
    int64_t width() const { return weights_.w13->w.rows() / weights_.count; }
    /// gate_up [rows, 2F/P] = rows w13^T. Here and below, `ranks` are those that divide each expert.
    void first(Ctx& c, Tensor gate_up, Tensor rows, const Groups& groups, const Communicator& ranks) const;
    /// The results [rows, D], in temp: parts of a sum over the ranks, of which one adds the bias.
    Tensor second(Ctx& c, Tensor gate_up, Tensor weights, const Groups& groups,
                  const Communicator& ranks) const;

    /// What a backward reads. It overwrites gate_up.
    struct Kept {
        Groups groups;
        Tensor rows, weights, gate_up;
    };
    /// When the gradients of the weights are added: `later` as Frame::later decides; `now` for rows that do
    /// not outlive the backward.
    enum class WeightGradients : uint8_t { later, now };
    /// The gradient of the rows, [rows, D], in temp, and dweights [rows] (acc). `drows` returns the gradient
    /// of the results, [rows, D], in temp; it is freed when the products that need it are done.
    Tensor backward(Ctx& c, const Kept& kept, Tensor dweights, FunctionRef<Tensor()> drows,
                    const Communicator& ranks, WeightGradients when) const;

private:
    void add(Ctx& c, const Storage& storage, Tensor x, const Division& of_x, Tensor dy, const Division& of_dy,
             const Groups& groups, bool x_is_lent, bool dy_is_lent, WeightGradients when) const;
    ExpertWeights weights_;
    Gate gate_;
};

class Experts {
public:
    virtual ~Experts() = default;
    /// Adds the experts' results for x [T/P, D] to y [T/P, D], which `beside` computes and returns. Each
    /// function calls `beside` once: if there is an exchange, while it is under way. What `beside` pushes is
    /// popped after the experts' own tensors.
    virtual Tensor forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const = 0;
    /// Keeps what forward keeps for the backward, without computing the results.
    virtual void rebuild(Ctx& c, Tensor x, const Routed& routed, FunctionRef<void()> beside) const = 0;
    /// dy [T/P, D] -> the gradient of the weights [T/P, k] (acc), in temp. Writes the gradient of x into dx
    /// [T/P, D], plus what `beside` returns: dx itself, or an absent tensor, to which nothing is added.
    virtual Tensor backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const = 0;
};

/// All experts are here. P tensor-parallel ranks have F/P of the width of every expert, and so process all T
/// tokens.
std::unique_ptr<Experts> local_experts(const ExpertProducts& products);
/// The experts are divided over the ranks of Ctx::experts (expert parallelism; Lepikhin et al. 2020, GShard).
std::unique_ptr<Experts> divided_experts(const ExpertProducts& products);

/// The same elements as a matrix of one column.
inline Tensor column(Tensor t) {
    return t.reshape({t.count(), 1});
}

// Rows of assignments back to their tokens. slots i32[T, k] are the rows of each token; `ranks` are the P
// ranks that divide each expert, which have parts of every sum.

/// out [T/P, D] = the sum of the rows [., D] of each token, plus `base`: `out` itself, or absent.
void sum_of_experts(Ctx& c, const Communicator& ranks, Tensor out, Tensor base, Tensor rows, Tensor slots);
/// out [T/P, k] = the numbers [.] of each token, summed over the ranks.
void numbers_of_tokens(Ctx& c, const Communicator& ranks, Tensor out, Tensor numbers, Tensor slots);

}  // namespace coeus
