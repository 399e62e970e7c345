// SPDX-License-Identifier: Apache-2.0
// HeadStep: what an attention layer does to the heads of its queries and keys between their projection and
// attention, one step after the other: RoPE (Su et al. 2021), a norm of each head or of all heads together, a
// temperature.
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
    /// How many numbers of each token the step measures. The backward needs them, and they are too costly to
    /// be computed again.
    virtual int64_t measures() const { return 0; }
    /// Measures the input: `measured` is [measures(), T] (acc), or absent.
    virtual void measure(Ctx& /*c*/, Tensor /*measured*/, Tensor /*from*/) const {}
    /// `to` may be `from`.
    virtual void forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const = 0;
    /// Computes the gradient of the input from that of the result. `dto` may be `dfrom`, and `dfrom` may be
    /// `from`. `from` is absent if the step is linear.
    virtual void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const = 0;
};

/// Rotates all heads by their positions.
class RotateHeads : public HeadStep {
public:
    /// The table must outlive the step.
    RotateHeads(const RopeTable& table, const RopeShape& shape) : table_(&table), shape_(shape) {}
    bool is_linear() const override { return true; }
    void forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const override;

private:
    const RopeTable* table_;
    RopeShape shape_;
};

/// RMSNorm of each head (Henry et al. 2020, Query-Key Normalization).
class NormHeads : public HeadStep {
public:
    /// The weights [d] of the H heads of queries and of the keys' heads; null: the norm has no weight.
    NormHeads(const Storage* q_weight, const Storage* k_weight, int64_t heads, int64_t head_dim,
              const NormForm& form)
        : weights_{q_weight, k_weight}, heads_(heads), head_dim_(head_dim), form_(form) {}
    bool is_linear() const override { return false; }
    void forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const override;

private:
    template <class Each>
    void for_queries_and_keys(const Each& each) const;
    const Storage* weights_[2];
    int64_t heads_, head_dim_;
    NormForm form_;
};

/// RMSNorm of all queries of a token together, and of all its keys (OLMo 2). Tensor-parallel ranks, which
/// have the other heads, add up one number of each token for either.
class NormAllHeads : public HeadStep {
public:
    /// The weights of the columns that this rank has: [H d] of queries, [K d] of keys.
    NormAllHeads(const Storage& q_weight, const Storage& k_weight, const NormForm& form)
        : weights_{&q_weight, &k_weight}, form_(form) {}
    bool is_linear() const override { return false; }
    int64_t measures() const override { return 2; }
    /// The squares of the queries of all ranks, and those of the keys.
    void measure(Ctx& c, Tensor measured, Tensor from) const override;
    void forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const override;

private:
    template <class Each>
    void for_queries_and_keys(const Each& each) const;
    const Storage* weights_[2];
    NormForm form_;
};

/// Multiplies the queries by the temperature of their positions.
class ScaleQueries : public HeadStep {
public:
    /// `columns`: those of the queries. The table must outlive the step.
    ScaleQueries(const TemperatureTable& table, int64_t columns) : table_(&table), columns_(columns) {}
    bool is_linear() const override { return true; }
    void forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const override;
    void backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const override;

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

    /// HeadStep::measures() of all steps.
    int64_t measures() const;
    /// Room in the frame for what forward() measures of the input [T, (H + K) d]; absent if it is nothing.
    Tensor room_for_measured(Ctx& c, Tensor input) const;
    /// Returns the result for `input`: in its memory, or in temp.
    Tensor forward(Ctx& c, Tensor input, Tensor measured) const;

    /// A backward: the result again, and what the gradient needs. It lives within a Scope of temp.
    class Backward {
    public:
        /// `input`: the memory after forward(), and what it has measured.
        Backward(Ctx& c, const HeadSteps& steps, Tensor input, Tensor measured);
        /// The result, which the caller overwrites by its gradient.
        Tensor result() const { return result_; }
        /// Overwrites the input by its gradient.
        void finish(Ctx& c) const;

    private:
        static constexpr size_t most = 4;
        const HeadSteps& steps_;
        Tensor input_, measured_, result_;
        Tensor from_[most];  // the input of each step that is not linear
    };

private:
    bool are_linear() const;
    // Calls each(number, step, what it measures).
    template <class Each>
    void for_each_step(Tensor measured, const Each& each) const;
    List steps_;
};

}  // namespace coeus
