// SPDX-License-Identifier: Apache-2.0
// HeadStep: what an attention layer does to the heads of its queries and keys between their projection and
// attention, one step after the other: RoPE (Su et al. 2021), a norm of each head, a temperature.
#pragma once

#include "coeus/layers/context.hpp"
#include "coeus/layers/position_tables.hpp"
#include "coeus/state/storage.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// A step on [T, (H + K) d]: the H heads of the queries, then the K heads of the keys.
class HeadStep {
public:
    virtual ~HeadStep() = default;
    /// True if the backward needs no input, because the step is linear.
    virtual bool is_linear() const = 0;
    /// `to` may be `from`.
    virtual void forward(Ctx& c, Tensor to, Tensor from) const = 0;
    /// Computes the gradient of the input from that of the result. `dto` may be `dfrom`, and `dfrom` may be
    /// `from`. `from` is absent if the step is linear.
    virtual void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from) const = 0;
};

/// Rotates all heads by their positions.
class RotateHeads : public HeadStep {
public:
    /// The table must outlive the step.
    RotateHeads(const RopeTable& table, const RopeShape& shape) : table_(&table), shape_(shape) {}
    bool is_linear() const override { return true; }
    void forward(Ctx& c, Tensor to, Tensor from) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from) const override;

private:
    const RopeTable* table_;
    RopeShape shape_;
};

/// RMSNorm of each head (Henry et al. 2020, Query-Key Normalization).
class NormHeads : public HeadStep {
public:
    /// The weights [d] of the H heads of queries and of the keys' heads; null: the norm has no weight.
    NormHeads(const Storage* q_weight, const Storage* k_weight, int64_t heads, int64_t head_dim, double eps)
        : weights_{q_weight, k_weight}, heads_(heads), head_dim_(head_dim), eps_(eps) {}
    bool is_linear() const override { return false; }
    void forward(Ctx& c, Tensor to, Tensor from) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from) const override;

private:
    template <class Each>
    void for_queries_and_keys(const Each& each) const;
    const Storage* weights_[2];
    int64_t heads_, head_dim_;
    double eps_;
};

/// Multiplies the queries by the temperature of their positions.
class ScaleQueries : public HeadStep {
public:
    /// `columns`: those of the queries. The table must outlive the step.
    ScaleQueries(const TemperatureTable& table, int64_t columns) : table_(&table), columns_(columns) {}
    bool is_linear() const override { return true; }
    void forward(Ctx& c, Tensor to, Tensor from) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from) const override;

private:
    const TemperatureTable* table_;
    int64_t columns_;
};

/// The steps of one layer. Linear steps work in the memory of their input. If another one is among them, the
/// input is kept as it is, and the backward computes the steps again.
class HeadSteps {
public:
    using List = std::vector<std::unique_ptr<HeadStep>>;
    explicit HeadSteps(List steps) : steps_(std::move(steps)) {}

    /// Returns the result for `input`: in its memory, or in temp.
    Tensor forward(Ctx& c, Tensor input) const;

    /// A backward: the result again, and what the gradient needs. It lives within a Scope of temp.
    class Backward {
    public:
        /// `input`: the memory after forward().
        Backward(Ctx& c, const HeadSteps& steps, Tensor input);
        /// The result, which the caller overwrites by its gradient.
        Tensor result() const { return result_; }
        /// Overwrites the input by its gradient.
        void finish(Ctx& c) const;

    private:
        static constexpr size_t most = 4;
        const HeadSteps& steps_;
        Tensor input_, result_;
        Tensor from_[most];  // the input of each step that is not linear
    };

private:
    bool are_linear() const;
    List steps_;
};

}  // namespace coeus
