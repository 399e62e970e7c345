// SPDX-License-Identifier: Apache-2.0
#include "precision_matrices.hpp"

#include "coeus/models/decoder.hpp"

namespace coeus {

std::vector<LayerMatrix> precision_matrices(const Model& model) {
    std::vector<LayerMatrix> matrices;
    for (const Storage* storage : model.parameters().model())
        for (const Param& param : storage->params()) {
            if (param.role == ParamRole::norm || param.role == ParamRole::bias) continue;
            matrices.push_back({.parameter = param.name,
                                .outputs = param.rows_per_group(),
                                .inputs = param.shape.cols(),
                                .of_experts = param.shape.rank == 3,
                                .recipe = param.recipe,
                                .always_stays = !param.takes_recipe,
                                .split = param.shard.tp,
                                .number = param.shape.rank == 3 ? param.groups : 1});
        }
    const auto* decoder = dynamic_cast<const Decoder*>(&model);
    if (decoder != nullptr && decoder->config().tied)
        matrices.push_back({.parameter = "output.weight",
                            .outputs = decoder->config().vocab,
                            .inputs = decoder->config().dim,
                            .always_stays = true});
    return matrices;
}

}  // namespace coeus
