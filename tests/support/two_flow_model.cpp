// SPDX-License-Identifier: Apache-2.0
#include "support/two_flow_model.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/layers/loss_head.hpp"
#include "coeus/layers/recompute_block.hpp"

#include <algorithm>

namespace coeus::test {

namespace {

// Two embedding tables, both indexed by the token.
class TwoTables : public Block {
public:
    TwoTables(const Storage& first, const Storage& second) : first_(first), second_(second) {}
    Flow forward(Ctx& c, Flow /*in*/) const override {
        const Tensor a = first_.forward(c, {}).hidden();
        return Flow({a, second_.forward(c, {}).hidden()});
    }
    Flow backward(Ctx& c, Flow dout) const override {
        second_.backward(c, dout.all()[1]);
        return first_.backward(c, dout.all()[0]);
    }
    bool is_lookup() const override { return true; }

private:
    Embedding first_, second_;
};

// a' = a + b V^T, b' = b + a' W^T
class Crossed : public Block {
public:
    Crossed(const Storage& v, const Storage& w) : v_(&v), w_(&w) {}

    Flow forward(Ctx& c, Flow in) const override {
        const Tensor a = in.all()[0], b = in.all()[1];
        const Tensor a2 = c.frame.keep(a.dtype, a.shape), b2 = c.frame.keep(b.dtype, b.shape);
        c.k.gemm(c.exec, a2, b, transposed(v_->w), a);
        c.k.gemm(c.exec, b2, a2, transposed(w_->w), b);
        c.frame.push(this, b);
        c.frame.push(this, a2);
        return Flow({a2, b2});
    }
    Flow backward(Ctx& c, Flow dout) const override {
        const Tensor da = dout.all()[0], db = dout.all()[1];
        const Tensor a2 = c.frame.pop(this), b = c.frame.pop(this);
        c.frame.later(c, {.parts = {w_, db}, .x = a2, .dy_is_lent = true});
        c.k.gemm(c.exec, da, db, w_->w, da);
        c.frame.later(c, {.parts = {v_, da}, .x = b, .dy_is_lent = true});
        c.k.gemm(c.exec, db, da, v_->w, db);
        return dout;
    }

private:
    const Storage *v_, *w_;
};

// The loss of the sum of both tensors.
class SummedLoss : public Objective {
public:
    explicit SummedLoss(const Storage& output) : head_(output) {}

    void forward(Ctx& c, Flow in) const override { head_.forward(c, sum(c, in), c.batch.labels); }
    Flow backward(Ctx& c) const override {
        const Tensor da = head_.backward(c), db = c.frame.keep(da.dtype, da.shape);
        c.k.cast(c.exec, db, da);
        return Flow({da, db});
    }
    void evaluate(Ctx& c, Flow in) const override { head_.evaluate(c, sum(c, in), c.batch.labels); }
    void predict(Ctx& c, Tensor out, Flow in) const override { head_.logits(c, out, sum(c, in)); }

private:
    static Tensor sum(Ctx& c, const Flow& in) {
        const Tensor both = c.frame.keep(in.hidden().dtype, in.hidden().shape);
        c.k.cast(c.exec, both, in.all()[0]);
        c.k.add(c.exec, both, in.all()[1]);
        return both;
    }
    LossHead head_;
};

}  // namespace

TwoFlowModel::TwoFlowModel(size_t blocks, int64_t dim, int64_t vocab, const StateTypes& types, bool recompute,
                           const std::vector<ModelPart>& parts, const ModelPlace& place)
    : Model(types, place), dim_(dim) {
    parts_ = parts.empty() ? std::vector<ModelPart>{{0, blocks + 2}} : parts;
    const auto begin = [&](bool here) {
        parameters_.set_here(here);
        return here ? parameters_.begin_unit() : 0;
    };
    const auto has = [&](size_t segment) {
        return std::ranges::any_of(
            parts_, [&](const ModelPart& p) { return segment >= p.first && segment < p.last; });
    };
    const auto matrix = [&](const std::string& name, int64_t rows) -> const Storage& {
        return parameters_.add({.name = name, .shape = {rows, dim}, .init = Init::normal(0.3)});
    };
    const size_t tables = begin(has(0));
    const Storage& first = matrix("first", vocab);
    const Storage& second = matrix("second", vocab);
    segments_.push_back({.name = "tables", .kind = Segment::Kind::block, .unit = tables});
    if (has(0)) segments_.back().block = std::make_unique<TwoTables>(first, second);
    for (size_t i = 0; i < blocks; ++i) {
        const size_t unit = begin(has(i + 1));
        const Storage& v = matrix(fmt::format("layers.{}.v", i), dim);
        const Storage& w = matrix(fmt::format("layers.{}.w", i), dim);
        segments_.push_back({.name = fmt::format("layers.{}", i), .unit = unit});
        std::unique_ptr<Block>& block = segments_.back().block;
        if (has(i + 1)) block = std::make_unique<Crossed>(v, w);
        if (block && recompute) block = std::make_unique<RecomputeBlock>(std::move(block));
    }
    const bool ends = has(blocks + 1);
    const size_t unit = begin(ends);
    const Storage& output = matrix("output", vocab);
    segments_.push_back({.name = "output", .kind = Segment::Kind::objective, .unit = unit});
    if (ends) segments_.back().objective = std::make_unique<SummedLoss>(output);
}

Flow TwoFlowModel::flow_into(size_t segment, const BatchShape& local) const {
    if (segment == 0) return {};
    const Tensor one(nullptr, parameters_.types().compute, {local.count(), dim_});
    return Flow({one, one});
}

int64_t TwoFlowDescription::layers_to_split(const ModelPart& part) const {
    return int64_t(std::min(part.last, blocks_ + 1)) - int64_t(std::max<size_t>(part.first, 1));
}

std::vector<int64_t> TwoFlowDescription::kinds_of_segments() const {
    std::vector<int64_t> kinds(segments());
    kinds.front() = -1;
    kinds.back() = -2;
    return kinds;
}

std::string TwoFlowDescription::text(const ModelPart& part) const {
    return fmt::format("{} to {}", part.first, part.last);
}

// Divides the segments evenly.
std::vector<ModelPart> TwoFlowDescription::split(int stages, const SplitWeights& /*weights*/) const {
    std::vector<ModelPart> parts;
    for (size_t stage = 0; stage < size_t(stages); ++stage)
        parts.push_back({segments() * stage / size_t(stages), segments() * (stage + 1) / size_t(stages)});
    return parts;
}

std::vector<ModelPart> TwoFlowDescription::split(const std::vector<std::vector<std::string>>&) const {
    return {};
}

int64_t TwoFlowDescription::parameters() const {
    return 3 * vocab_ * dim_ + 2 * int64_t(blocks_) * dim_ * dim_;
}

std::unique_ptr<Model> TwoFlowDescription::build(const StateTypes& types, int64_t /*positions*/,
                                                 const ModelPlace& place, const std::vector<ModelPart>& parts,
                                                 const std::vector<Recompute>& recompute) const {
    return std::make_unique<TwoFlowModel>(blocks_, dim_, vocab_, types, recomputes_blocks(recompute), parts,
                                          place);
}

}  // namespace coeus::test
