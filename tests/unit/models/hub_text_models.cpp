// SPDX-License-Identifier: Apache-2.0
// Folders of models with further parts, such as one for images: their text model is in "text_config".
#include "coeus/models/hub_model.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <string>
#include <utility>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("config.json of Llama 4 with images: the text model is that of text_config") {
    const TemporaryFolder folder;
    const std::string text = R"("attention_bias": false, "hidden_size": 64, "intermediate_size": 24,
        "intermediate_size_mlp": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "num_hidden_layers": 8, "vocab_size": 256, "num_local_experts": 4, "attn_temperature_tuning": 4,
        "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"})";
    const DecoderConfig alone =
        model_from_hub(config_folder(folder, R"("architectures": ["Llama4ForCausalLM"], )" + text));
    const auto with_images = [&](const std::string& more) {
        return config_folder(folder, R"("architectures": ["Llama4ForConditionalGeneration"],
            "boi_token_index": 200080, "eoi_token_index": 200081, "image_token_index": 200092,
            "model_type": "llama4", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "transformers_version": "4.51.0.dev0", "vision_config": {"hidden_size": 32, "rope_theta": 10000,
                "rope_parameters": {"rope_type": "default"}}, "text_config": {)" +
                                         text + more + "}");
    };
    with_images(R"(, "_attn_implementation_autoset": true, "bos_token_id": 200000, "eos_token_id": [200001],
        "for_llm_compressor": false, "model_type": "llama4_text", "torch_dtype": "bfloat16",
        "use_cache": true, "pad_token_id": 200018)");
    CHECK(model_from_hub(folder.path()) == alone);
    CHECK(model_from_hub(folder.path(), "llama4") == alone);
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    with_images(R"(, "window": 4)");
    CHECK(read_hub_model(folder.path()).unknown_keys == std::vector<std::string>{"text_config.window"});
    CHECK_THAT(message_of(with_images(R"(, "floor_scale": 0)")),
               Contains("text_config.floor_scale must be greater than 0, is 0"));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["Llama4ForConditionalGeneration"])")),
               Contains("text_config is missing"));
}

TEST_CASE("config.json of a model with further parts: its text model is that of any family") {
    const TemporaryFolder folder;
    const auto whole = [&](const std::string& name, const std::string& keys, const std::string& text) {
        return config_folder(folder, R"("architectures": [")" + name + R"("], "vision_config": {"x": 1}, )" +
                                         keys + R"("text_config": {)" + text + "}");
    };
    const std::string sizes =
        minimal_llama.substr(minimal_llama.find(',') + 1) + R"(, "num_key_value_heads": 2)";
    for (const auto& [type, name] :
         {std::pair("llama", "LlamaForCausalLM"), std::pair("mistral", "MistralForCausalLM"),
          std::pair("qwen2", "Qwen2ForCausalLM")}) {
        CAPTURE(type);
        const std::string alone = fmt::format(R"("architectures": ["{}"], )", name) + sizes,
                          within = fmt::format(R"("model_type": "{}", )", type) + sizes;
        const DecoderConfig expected = model_from_hub(config_folder(folder, alone));
        CHECK(model_from_hub(whole("SomeForConditionalGeneration", "", within)) == expected);
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
        CHECK(family_of_folder(folder.path()) == expected.family);
        CHECK(model_from_hub(whole("SomeForConditionalGeneration", "", alone)) == expected);
        CHECK(JsonView(hub_config_of(expected), "x")["architectures"].strings() ==
              std::vector<std::string>{name});
    }
    // without a type, that of the model with images says it
    CHECK(model_from_hub(whole("Mistral3ForConditionalGeneration", "", sizes)).family == "mistral");
    // without weights, the whole model says whether the table is its head
    const auto is_tied = [&](const std::string& outside, const std::string& inside) {
        const auto key = [](const std::string& value) {
            return value.empty() ? "" : R"("tie_word_embeddings": )" + value + ", ";
        };
        return model_from_hub(whole("Mistral3ForConditionalGeneration", key(outside), key(inside) + sizes))
            .tied;
    };
    CHECK_FALSE(is_tied("", ""));
    CHECK(is_tied("true", ""));
    CHECK(is_tied("", "true"));
    CHECK(is_tied("true", "true"));
    CHECK(is_tied("true", "false"));
    CHECK_FALSE(is_tied("false", "true"));
    CHECK_THAT(message_of(whole("SomeForConditionalGeneration", "", R"("model_type": "some_text")")),
               Contains("architecture SomeForConditionalGeneration is not implemented yet; implemented: "));
    CHECK_THAT(message_of(whole("Mistral3ForConditionalGeneration", "", R"("model_type": "some_text")")),
               Contains("text_config.model_type must be one of ") && Contains("is \"some_text\""));
    CHECK_THAT(message_of(whole("Mistral3ForConditionalGeneration", "",
                                R"("model_type": "llama", "hidden_act": "gelu", )" + sizes)),
               Contains("text_config.hidden_act must be \"silu\""));
}
