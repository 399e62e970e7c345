// SPDX-License-Identifier: Apache-2.0
// Dropout and noise of routers in config.json, which transformers applies while it trains, and Coeus does
// not.
#include "coeus/models/hub_model.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("config.json: dropout and noise that are not applied are named with their values") {
    const TemporaryFolder folder;
    config_folder(folder,
                  minimal_llama + R"(, "attention_dropout": 0.0, "resid_pdrop": 0, "embd_pdrop": null)");
    CHECK(read_hub_model(folder.path()).about_not_applied().empty());
    config_folder(folder, minimal_llama + R"(, "attention_dropout": 0.1, "router_jitter_noise": 0.01,
        "attn_pdrop": 0.2, "embd_pdrop": 0.3, "hidden_dropout": 0.4, "resid_pdrop": 0.5, "residual_dropout": 1)");
    const HubModel model = read_hub_model(folder.path());
    CHECK(model.unknown_keys.empty());
    CHECK(model.about_not_applied() ==
          "attention_dropout = 0.1, attn_pdrop = 0.2, embd_pdrop = 0.3, hidden_dropout = 0.4, "
          "resid_pdrop = 0.5, residual_dropout = 1, router_jitter_noise = 0.01: Coeus trains without dropout "
          "and without noise of routers, as if they were 0");
    config_folder(folder, R"("architectures": ["LlavaForConditionalGeneration"], "attention_dropout": 0.5,
        "text_config": {)" + minimal_llama +
                              R"(, "attention_dropout": 0.25})");
    CHECK(read_hub_model(folder.path()).not_applied == std::vector<std::string>{"attention_dropout = 0.25"});
}
