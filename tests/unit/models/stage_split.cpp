// SPDX-License-Identifier: Apache-2.0
// How a decoder is divided into stages: torchtitan's rule, lists of modules, and wrong lists.
#include "coeus/models/stage_split.hpp"

#include "coeus/models/decoder.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::vector<int64_t> layers_of(const std::vector<DecoderPart>& parts) {
    std::vector<int64_t> layers;
    for (const DecoderPart& part : parts) layers.push_back(part.layers());
    return layers;
}

using Layers = std::vector<int64_t>;

}  // namespace

TEST_CASE("layers are divided evenly, with embedding and head as layers") {
    // torchtitan: 6 layers, pp 2: effectively 8 layers, 4 each
    const auto parts = split_evenly(tiny_config(6), 2, {});
    CHECK(parts == std::vector<DecoderPart>{{true, 0, 3, false}, {false, 3, 6, true}});
    CHECK(parts[0].text() == "tok_embeddings, layers 0 to 2");
    CHECK(parts[1].text() == "layers 3 to 5, norm, output");
    CHECK(layers_of(split_evenly(tiny_config(6), 8, {})) == Layers{0, 1, 1, 1, 1, 1, 1, 0});
    CHECK(layers_of(split_evenly(tiny_config(7), 3, {})) == Layers{2, 3, 2});
    CHECK(layers_of(split_evenly(tiny_config(8), 3, {})) == Layers{3, 3, 2});
    CHECK(layers_of(split_evenly(tiny_config(8), 3, {.embedding = 0, .head = 0})) == Layers{3, 3, 2});
    CHECK(layers_of(split_evenly(tiny_config(8), 3, {.embedding = 1, .head = 3})) == Layers{3, 4, 1});
    CHECK(split_evenly(tiny_config(3), 1, {}) == std::vector<DecoderPart>{{true, 0, 3, true}});
    CHECK(layers_of(split_evenly(tiny_config(1), 1, {.embedding = 5, .head = 5})) == Layers{1});
}

TEST_CASE("a division that does not fit is refused with one that does") {
    CHECK_THROWS_WITH(split_evenly(tiny_config(6), 9, {}), Contains("9 stages") && Contains("at most 8"));
    CHECK_THROWS_WITH(
        split_evenly(tiny_config(6), 4, {.embedding = 3, .head = 1}),
        Contains("pipeline_parallel_first_stage_less_layers = 3") && Contains("nearest valid value is 2"));
    CHECK_THROWS_WITH(
        split_evenly(tiny_config(6), 8, {.embedding = 0, .head = 4}),
        Contains("pipeline_parallel_last_stage_less_layers = 4") && Contains("nearest valid value is 1"));
}

TEST_CASE("stages are listed by the names of their modules") {
    const auto parts = split_by_names(
        tiny_config(3), {{"tok_embeddings"}, {"layers.0", "layers.1"}, {"layers.2", "norm", "output"}});
    CHECK(parts == std::vector<DecoderPart>{{true, 0, 0, false}, {false, 0, 2, false}, {false, 2, 3, true}});
    const auto error_of = [](const std::vector<std::vector<std::string>>& lists) {
        try {
            split_by_names(tiny_config(2), lists);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK_THAT(error_of({{"tok_embeddings", "layer.0"}, {"layers.1", "norm", "output"}}),
               Contains("stage 0: \"layer.0\" is not a module; did you mean \"layers.0\"?"));
    CHECK_THAT(error_of({{"tok_embeddings", "layers.1"}, {"layers.0", "norm", "output"}}),
               Contains("stage 0: \"layers.1\" is listed where \"layers.0\" is expected"));
    CHECK_THAT(error_of({{"tok_embeddings", "layers.0"}, {"layers.0", "layers.1", "norm", "output"}}),
               Contains("stage 1: \"layers.0\" is listed where \"layers.1\" is expected"));
    CHECK_THAT(error_of({{"tok_embeddings", "layers.0"}, {"layers.1", "norm"}}),
               Contains("\"output\" is in no stage"));
    CHECK_THAT(error_of({{"tok_embeddings", "layers.0", "layers.1", "norm"}, {"output"}}),
               Contains("stage 1: \"output\" is not in the stage of \"norm\""));
    CHECK_THAT(error_of({{"tok_embeddings"}, {}, {"layers.0", "layers.1", "norm", "output"}}),
               Contains("stage 1 has no module"));
    CHECK_THAT(error_of({{"tok_embeddings", "layers.0", "layers.1", "norm", "output", "output"}}),
               Contains("\"output\" is listed where the end is expected"));
}

TEST_CASE("stages by names: layers of multi-token prediction are in the stage of the output projection") {
    DecoderConfig model = tiny_config();
    model.mtp.layers = 2;
    const auto error_of = [&](std::vector<std::vector<std::string>> lists) {
        try {
            split_by_names(model, lists);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(error_of({{"tok_embeddings", "layers.0"},
                    {"layers.1", "norm", "output", "mtp_layers.0", "mtp_layers.1"}}) == "");
    CHECK_THAT(error_of({{"tok_embeddings", "layers.0"}, {"layers.1", "norm", "output", "mtp_layers.0"}}),
               Contains("\"mtp_layers.1\" is in no stage"));
    CHECK_THAT(
        error_of({{"tok_embeddings", "layers.0", "layers.1", "norm", "output"}, {"mtp_layers.0"}}),
        Contains("stage 1: \"mtp_layers.0\" is not in the stage of \"output\"; put both into one stage"));
    CHECK_THAT(error_of({{"tok_embeddings"}, {"head"}}),
               Contains("norm, output, mtp_layers.0 to mtp_layers.1"));
}

TEST_CASE("the parts of a decoder make up the whole, each parameter once except for a tied table") {
    for (const auto& [tied, depths] : {std::pair(false, 0), std::pair(true, 0), std::pair(false, 2)}) {
        DecoderConfig model = tiny_config(4, tied);
        model.mtp.layers = depths;
        const Decoder whole(model, {}, 4);
        const auto parts = split_evenly(model, 3, {});
        int64_t elements = 0;
        for (const DecoderPart& part : parts) {
            const Decoder decoder(model, {}, 4, {}, {part}, {});
            CHECK(decoder.parameters().count() == model.parameters());
            std::vector<std::string> listed, should;
            for (const Storage* storage : decoder.parameters().model())
                for (const Param& param : storage->params()) listed.push_back(param.name);
            for (const Storage* storage : whole.parameters().model())
                for (const Param& param : storage->params()) should.push_back(param.name);
            CHECK(listed == should);
            for (const Storage& storage : decoder.parameters().storages())
                for (const Param& param : storage.params())
                    if (param.copy == 0) elements += param.shape.count();
            CHECK((decoder.shared_storage() != nullptr) ==
                  ((tied || depths > 0) && (part.embedding || part.head)));
        }
        CHECK(elements == model.parameters());
        // both ends are on one rank: no copy
        CHECK(Decoder(model, {}, 4, {}, {parts[0], parts[2]}, {}).shared_storage() == nullptr);
    }
}
