// SPDX-License-Identifier: Apache-2.0
#include "hub_weights.hpp"

#include "coeus/file/safetensors.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

namespace coeus::test {

namespace {

// Keyed by our names.
std::map<std::string, std::vector<HubPlace>> places_of(const TestModel& model) {
    const DecoderConfig& config = model.decoder.config();
    std::map<std::string, std::vector<HubPlace>> places;
    for (const Storage& storage : model.decoder.parameters().storages())
        for (const Param& param : storage.params())
            if (auto list = find_family(config.family).hub_places(param.name, param.shape, config);
                !list.empty())
                places[param.name] = std::move(list);
    return places;
}

}  // namespace

void load_golden_weights(TestModel& model, const std::string& folder) {
    std::vector<HubTensor> tensors;
    for (const auto& [name, places] : places_of(model))
        tensors.push_back({.shape = model.copy(name, &Storage::master).view.shape,
                           .places = places,
                           .blocks = model.blocks(name, &Storage::master)});
    load_hub_weights(folder, tensors, hub_ignores(model.decoder.config()));
    model.renew_weights();
}

std::map<std::string, std::vector<double>> in_golden_layout(const TestModel& model, Tensor Storage::*kind) {
    std::map<std::string, std::vector<double>> tensors;
    for (const auto& [name, places] : places_of(model)) {
        if (!model.storage_of(name).trainable()) continue;
        const OwnedTensor copy = model.copy(name, kind);
        const Tensor ours = copy;
        for (const HubPlace& place : places) {
            std::vector<double>& theirs = tensors[place.name];
            theirs.resize(size_t(place.shape.count()), NAN);  // an element that no place covers stays NaN
            for (int64_t row = place.first_row; row < place.first_row + place.rows; ++row)
                for (int64_t col = 0; col < ours.cols(); ++col)
                    theirs.at(size_t(place.index(row, col))) = element(ours, row * ours.cols() + col);
        }
    }
    return tensors;
}

void check_golden_gradients(const TestModel& model, const std::string& folder, double each, double all) {
    const std::map<std::string, std::vector<double>> ours = in_golden_layout(model, &Storage::g);
    const Safetensors gradients = Safetensors::open(folder + "/grads.safetensors");
    CHECK(gradients.names().size() == ours.size());
    std::vector<double> joined, joined_golden;
    for (const auto& [name, g] : ours) {
        INFO(name);
        const std::vector<double> golden = gradients.read_all<double>(name);
        CHECK(normalised_error(g, golden) <= each);
        joined.insert(joined.end(), g.begin(), g.end());
        joined_golden.insert(joined_golden.end(), golden.begin(), golden.end());
    }
    CHECK(normalised_error(joined, joined_golden) <= all);
}

}  // namespace coeus::test
