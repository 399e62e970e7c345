// SPDX-License-Identifier: Apache-2.0
#include "hub_missing.hpp"

#include <algorithm>
#include <array>

namespace coeus {

namespace {

constexpr const char *caps = "caps of the scores of attention and of logits",
                     *delta_rule = "the gated delta rule", *scan = "state-space layers",
                     *no_gate = "feed-forward layers without a gate",
                     *old_layers = "feed-forward layers without a gate, and LayerNorm with a bias",
                     *learned = "learned positions, and feed-forward layers without a gate",
                     *indexer = "sparse attention that an indexer chooses",
                     *alibi = "ALiBi, the linear biases of scores",
                     *shared_keys = "keys and values that layers share, and embeddings for each layer",
                     *alpha_rope = "RoPE whose base grows by an alpha",
                     *attention_gate = "a gate of attention";

struct Missing {
    const char *architecture, *arithmetic;
};

constexpr std::array table = {
    Missing{"AfmoeForCausalLM", attention_gate},
    Missing{"ApertusForCausalLM",
            "feed-forward layers without a gate, with "
            "xIELU and its trained numbers"},
    Missing{"ArceeForCausalLM", no_gate},
    Missing{"BambaForCausalLM", scan},
    Missing{"BloomForCausalLM", alibi},
    Missing{"DeepseekV32ForCausalLM", indexer},
    Missing{"DeepseekV4ForCausalLM", indexer},
    Missing{"FalconForCausalLM", old_layers},
    Missing{"FalconH1ForCausalLM", scan},
    Missing{"FalconMambaForCausalLM", scan},
    Missing{"GPT2LMHeadModel", learned},
    Missing{"GPTBigCodeForCausalLM", learned},
    Missing{"GPTJForCausalLM", old_layers},
    Missing{"GPTNeoXForCausalLM", old_layers},
    Missing{"Gemma2ForCausalLM", caps},
    Missing{"Gemma3nForCausalLM", shared_keys},
    Missing{"Gemma3nForConditionalGeneration", shared_keys},
    Missing{"Gemma4ForCausalLM", shared_keys},
    Missing{"Gemma4ForConditionalGeneration", shared_keys},
    Missing{"GlmMoeDsaForCausalLM", indexer},
    Missing{"GraniteMoeHybridForCausalLM", scan},
    Missing{"HunYuanDenseV1ForCausalLM", alpha_rope},
    Missing{"HunYuanMoEV1ForCausalLM", alpha_rope},
    Missing{"JambaForCausalLM", scan},
    Missing{"KimiLinearForCausalLM", "the gated delta rule with a decay for each channel"},
    Missing{"Lfm2ForCausalLM", "short convolutions in the place of attention"},
    Missing{"Lfm2MoeForCausalLM", "short convolutions in the place of attention"},
    Missing{"Mamba2ForCausalLM", scan},
    Missing{"MambaForCausalLM", scan},
    Missing{"MiMoV2FlashForCausalLM", "other heads in the layers with a window"},
    Missing{"MiniMaxForCausalLM", "lightning attention, which is linear"},
    Missing{"MptForCausalLM", alibi},
    Missing{"NemotronForCausalLM", old_layers},
    Missing{"NemotronHForCausalLM", scan},
    Missing{"OPTForCausalLM", learned},
    Missing{"OlmoHybridForCausalLM", delta_rule},
    Missing{"PhiForCausalLM", old_layers},
    Missing{"Qwen3NextForCausalLM", delta_rule},
    Missing{"Qwen3_5ForCausalLM", delta_rule},
    Missing{"Qwen3_5ForConditionalGeneration", delta_rule},
    Missing{"Qwen3_5MoeForCausalLM", delta_rule},
    Missing{"Qwen3_5MoeForConditionalGeneration", delta_rule},
    Missing{"StableLmForCausalLM", "LayerNorm with a bias"},
    Missing{"Starcoder2ForCausalLM", old_layers},
    Missing{"VaultGemmaForCausalLM", caps},
    Missing{"Zamba2ForCausalLM", scan},
};

}  // namespace

std::string missing_arithmetic(const std::string& architecture) {
    const auto found = std::ranges::find(table, architecture, &Missing::architecture);
    return found == table.end() ? "" : found->arithmetic;
}

}  // namespace coeus
