// SPDX-License-Identifier: Apache-2.0
#include "layer_matrices.hpp"

namespace coeus {

std::vector<LayerMatrix> layer_matrices(const Decoder& decoder) {
    std::vector<LayerMatrix> matrices;
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params()) {
            if (param.role == ParamRole::norm || param.role == ParamRole::bias) continue;
            matrices.push_back({.parameter = param.name,
                                .outputs = param.rows_per_group(),
                                .inputs = param.shape.cols(),
                                .of_experts = param.shape.rank == 3,
                                .recipe = param.recipe,
                                .always_stays = !param.takes_recipe,
                                .split = param.shard.tp});
        }
    if (const DecoderConfig& model = decoder.config(); model.tied)
        matrices.push_back({.parameter = "output.weight",
                            .outputs = model.vocab,
                            .inputs = model.dim,
                            .always_stays = true});
    return matrices;
}

}  // namespace coeus
