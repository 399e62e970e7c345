// SPDX-License-Identifier: Apache-2.0
// TwoFlowModel: a language model whose blocks pass on two tensors, as models of several streams do. It tests
// code that carries a Flow of more than one tensor.
#pragma once

#include "coeus/models/model.hpp"
#include "coeus/models/token_batches.hpp"

namespace coeus::test {

/// `blocks` of width `dim`; all parameters are matrices. `parts`: the parts on this rank; empty: the whole
/// model. `recompute`: each block is recomputed in the backward.
class TwoFlowModel : public Model {
public:
    TwoFlowModel(size_t blocks, int64_t dim, int64_t vocab, const StateTypes& types, bool recompute,
                 const std::vector<ModelPart>& parts = {}, const ShardPlace& place = {});

    const BatchKind& batches() const override { return batches_; }
    Flow flow_into(size_t segment, const BatchShape& local) const override;

private:
    int64_t dim_;
    TokenBatches batches_;
};

}  // namespace coeus::test
