// SPDX-License-Identifier: Apache-2.0
// TwoFlowModel: a language model whose blocks pass on two tensors, as models of several streams do. It tests
// code that carries a Flow of more than one tensor.
#pragma once

#include "coeus/models/model_config.hpp"
#include "coeus/models/token_batches.hpp"

namespace coeus::test {

/// `blocks` of width `dim`; all parameters are matrices. `parts`: the parts on this rank; empty: the whole
/// model. `recompute`: each block is recomputed in the backward.
class TwoFlowModel : public Model {
public:
    TwoFlowModel(size_t blocks, int64_t dim, int64_t vocab, const StateTypes& types, bool recompute,
                 const std::vector<ModelPart>& parts = {}, const ModelPlace& place = {});

    const BatchKind& batches() const override { return batches_; }
    Flow flow_into(size_t segment, const BatchShape& local) const override;

private:
    int64_t dim_;
    TokenBatches batches_;
};

/// The description of such a model. Ranks may divide its layers, its parameters and the data.
class TwoFlowDescription : public ModelDescription {
public:
    TwoFlowDescription(size_t blocks, int64_t dim, int64_t vocab)
        : blocks_(blocks), dim_(dim), vocab_(vocab) {}

    std::string name() const override { return "two flows"; }
    std::string shapes() const override { return "two flows"; }
    size_t segments() const override { return blocks_ + 2; }
    int64_t all_layers() const override { return int64_t(blocks_); }
    int64_t layers_to_split() const override { return int64_t(blocks_); }
    int64_t layers_to_split(const ModelPart& part) const override;
    std::vector<int64_t> kinds_of_segments() const override;
    std::string text(const ModelPart& part) const override;
    std::vector<ModelPart> split(int stages, const SplitWeights& weights) const override;
    std::vector<ModelPart> split(const std::vector<std::vector<std::string>>& names) const override;
    std::string description() const override {
        return fmt::format(R"({{"dim":{},"blocks":{}}})", dim_, blocks_);
    }
    /// Compares the text alone.
    std::string other_shape(const std::string& other, const std::string& source) const override {
        return other == description() ? "" : fmt::format("{} in {}", other, source);
    }
    int64_t parameters() const override;
    int64_t active_parameters() const override { return parameters(); }
    double flops_per_token(int64_t) const override { return 6.0 * double(parameters()); }
    void require_countable(const BatchShape&) const override {}
    std::unique_ptr<Model> build(const StateTypes& types, int64_t positions, const ModelPlace& place,
                                 const std::vector<ModelPart>& parts,
                                 const std::vector<Recompute>& recompute) const override;

protected:
    static bool recomputes_blocks(const std::vector<Recompute>& recompute) {
        return !recompute.empty() && recompute[0] == Recompute::block;
    }
    size_t blocks_;
    int64_t dim_, vocab_;
};

}  // namespace coeus::test
