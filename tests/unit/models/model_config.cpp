// SPDX-License-Identifier: Apache-2.0
// ModelConfig: a decoder, known by its description.
#include "coeus/models/model_config.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

#include <set>

namespace coeus::test {
namespace {

TEST_CASE("model config: the parts of a decoder are its segments, with and without multi-token prediction") {
    for (const int64_t depths : {0, 2}) {
        DecoderConfig config = tiny_config(3);
        config.mtp.layers = depths;
        const ModelConfig model(config);
        const Decoder decoder(config, {}, 8);
        CHECK(decoder.parts() == std::vector{model.whole()});
        CHECK(decoder.segments().size() == model->segments());
        for (const int stages : {1, 2, 3, 5}) {
            const std::vector<ModelPart> parts = model->split(stages, {});
            const std::vector<DecoderPart> of_decoder = split_evenly(config, stages, {});
            REQUIRE(parts.size() == of_decoder.size());
            size_t next = 0;
            for (size_t i = 0; i < parts.size(); ++i) {
                CHECK(parts[i].first == next);
                CHECK(DecoderPart::of(config, parts[i]) == of_decoder[i]);
                const bool predicts_more = depths > 0 && of_decoder[i].head;
                CHECK(model->text(parts[i]) ==
                      of_decoder[i].text() + (predicts_more ? ", 2 for further tokens" : ""));
                next = parts[i].last;
            }
            CHECK(next == model->segments());
        }
        CHECK(model->all_layers() == 3 + depths);
        CHECK(model->layers_to_split() == 3);
    }
}

TEST_CASE("model config: equal layers are segments of one kind") {
    DecoderConfig config = tiny_config(4);
    config.grouped().window = 3;
    config.windowed = {.period = 2, .first = 1};
    const std::vector<int64_t> kinds = ModelConfig(config)->kinds_of_segments();
    REQUIRE(kinds.size() == 6);
    CHECK((kinds[1] == kinds[3] && kinds[2] == kinds[4]));
    CHECK(std::set(kinds.begin(), kinds.end()).size() == 4);  // the embedding, two kinds of layers, the head
}

TEST_CASE("model config: a batch is refused by the widths of experts and latents too") {
    const auto is_countable = [](const DecoderConfig& config, int64_t tokens) {
        try {
            ModelConfig(config)->require_countable({.sequences = 1, .seq_len = tokens});
        } catch (const ConfigError&) {
            return false;
        }
        return true;
    };
    const DecoderConfig plain = tiny_config();
    int64_t tokens = 1;
    while (is_countable(plain, 2 * tokens)) tokens *= 2;
    DecoderConfig experts = plain;
    experts.moe = {.experts = 4, .top_k = 2, .hidden = 1 << 20};
    CHECK_FALSE(is_countable(experts, tokens));
    experts.moe_layers = {.period = 0};
    CHECK(is_countable(experts, tokens));
    DecoderConfig latent = plain;
    latent.attention = LatentAttentionConfig{.heads = 1, .head_dim = 2, .kv_rank = 1 << 20};
    CHECK_FALSE(is_countable(latent, tokens));
}

TEST_CASE("model config: ranks divide the heads and experts of a decoder") {
    DecoderConfig config = tiny_config();
    config.grouped().heads = 8;
    config.grouped().kv_heads = 4;
    const auto refusal = [&](const DividingRanks& ranks) { return ModelConfig(config)->refusal(ranks); };
    CHECK(refusal({}).empty());
    CHECK(refusal({.tensor = 4}).empty());
    CHECK(refusal({.tensor = 3}) ==
          "parallelism.tensor_parallel_degree = 3: must divide model.n_heads = 8; valid are 1, 2, 4, 8");
    CHECK(refusal({.tensor = 8}) ==
          "parallelism.tensor_parallel_degree = 8: must divide model.n_kv_heads = 4; valid are 1, 2, 4");
    CHECK(refusal({.tensor = 2, .context = 4}).empty());
    CHECK(refusal({.tensor = 2, .context = 2, .context_by_heads = true}).empty());
    CHECK(refusal({.tensor = 2, .context = 4, .context_by_heads = true}) ==
          "parallelism.context_parallel_degree = 4: must divide the heads that are exchanged "
          "(context_parallel_rotate_method = \"heads\", and generation), model.n_kv_heads / "
          "tensor_parallel_degree = 2; valid are 1, 2");
    CHECK(refusal({.expert = 2}) ==
          "parallelism.expert_parallel_degree = 2: llama3 tiny has no experts; set it to 1");
    set_experts(config, 1);
    CHECK((ModelConfig(config)->experts().all == 4 && ModelConfig(config)->experts().chosen == 2));
    CHECK(refusal({.expert = 4}).empty());
    CHECK(refusal({.expert = 3}) ==
          "parallelism.expert_parallel_degree = 3: must divide model.moe.num_experts = 4; valid are 1, 2, 4");
}

TEST_CASE("model config: the projection of a tied decoder is among its matrices") {
    const auto last_matrix = [](const DecoderConfig& config) {
        return Decoder(config, {}, 1).matrices().back();
    };
    DecoderConfig config = tiny_config();
    const size_t matrices = Decoder(config, {}, 1).matrices().size();
    CHECK(last_matrix(config).parameter == "output.weight");
    config.tied = true;
    const LayerMatrix projection = last_matrix(config);
    CHECK(Decoder(config, {}, 1).matrices().size() == matrices);
    CHECK(projection.parameter == "output.weight");
    CHECK((projection.outputs == config.vocab && projection.inputs == config.dim));
    CHECK(projection.always_stays);
}

TEST_CASE("model config: counts are those of its decoder") {
    DecoderConfig config = tiny_config(3);
    set_experts(config, 2);
    const ModelConfig model = config;
    for (int time = 0; time < 2; ++time) {
        CHECK(model->parameters() == config.parameters());
        CHECK(model->active_parameters() == config.active_parameters());
        CHECK(model->flops_per_token(12) == config.flops_per_token(12));
    }
    CHECK(model->active_parameters() < model->parameters());
}

}  // namespace
}  // namespace coeus::test
