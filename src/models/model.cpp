// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/model.hpp"

#include "coeus/base/error.hpp"
#include "coeus/kernels/step_scalars.hpp"

#include <algorithm>
#include <bitset>
#include <utility>

namespace coeus {

std::vector<size_t> Model::layers_here() const {
    std::vector<size_t> here;
    size_t layer = 0;
    for (const Segment& segment : segments_) {
        if (segment.kind != Segment::Kind::layer) continue;
        if (segment.block) here.push_back(layer);
        ++layer;
    }
    return here;
}

size_t Model::first_objective() const {
    return size_t(std::ranges::find(segments_, Segment::Kind::objective, &Segment::kind) - segments_.begin());
}

std::vector<LayerMatrix> Model::matrices() const {
    std::vector<LayerMatrix> matrices;
    for (const Storage* storage : parameters_.model())
        for (const Param& param : storage->params()) {
            if (param.role == ParamRole::norm || param.role == ParamRole::bias) continue;
            matrices.push_back(
                {.parameter = param.name,
                 .outputs = param.shape.rank == 3 ? param.rows_per_group() : param.shape.rows(),
                 .inputs = param.shape.cols(),
                 .of_experts = param.shape.rank == 3,
                 .recipe = param.recipe,
                 .always_stays = !param.takes_recipe,
                 .split = param.shard.tp,
                 .number = param.shape.rank == 3 ? param.groups : 1});
        }
    return matrices;
}

void Model::set_losses(std::vector<PartOfLoss> losses) {
    std::bitset<StepScalars::most_losses> taken;
    for (const PartOfLoss& part : losses) {
        require(part.number < taken.size() && !taken[part.number],
                "parts of a loss need different numbers below StepScalars::most_losses");
        require(part.name.ends_with("_loss"), "the name of a part of a loss ends in \"_loss\"");
        taken.set(part.number);
    }
    losses_ = std::move(losses);
}

void Model::find_first_trained() {
    size_t declared = 0;
    for (const Segment& segment : segments_) declared += segment.storages.size();
    require(declared == parameters_.model().size(), "each parameter of a model belongs to one segment");
    const auto trains = [](const Segment& segment) {
        return std::ranges::any_of(segment.storages, &Storage::trainable);
    };
    while (first_trained_ < first_objective() && !trains(segments_[first_trained_])) ++first_trained_;
}

void Model::allocate(bool with_optimizer, const Device& device) {
    parameters_.allocate(with_optimizer, device);
    allocate_tables(device);
}

}  // namespace coeus
