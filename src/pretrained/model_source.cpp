// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/model_source.hpp"

#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/pretrained.hpp"

namespace coeus {

namespace {

void require_loss_fits(const Config::Loss& loss, const DecoderConfig& model) {
    if (!loss.loss_fn || (*loss.loss_fn == "MTPLoss") == (model.mtp_layers > 0)) return;
    if (model.mtp_layers == 0)
        throw ConfigError(
            "loss.loss_fn = \"MTPLoss\": needs layers that predict further tokens, but model.num_mtp_layers "
            "= 0; "
            "set it to 1, or loss.loss_fn = \"CrossEntropyLoss\"");
    throw ConfigError(
        "loss.loss_fn = \"{}\": does not train the layers of model.num_mtp_layers = {}; set loss.loss_fn = "
        "\"MTPLoss\", or model.num_mtp_layers = 0",
        *loss.loss_fn, model.mtp_layers);
}

// The model of a folder. transformers writes the number of layers of multi-token prediction, but not their
// tensors: a run that starts from such weights is without these layers unless its deck asks for them.
DecoderConfig model_from_folder(const Config& config, const std::string& family) {
    DecoderConfig model = model_from_hub(config.model.hf_assets_path, family);
    const std::string weights = initial_weights_path(config);
    if (model.mtp_layers > 0 && !config.model.num_mtp_layers && is_hub_folder(weights) &&
        Safetensors::is_at(weights))
        model.mtp_layers = depths_in(weights, model);
    return model;
}

}  // namespace

DecoderConfig model_from_deck(const Config& config) {
    const ModelFamily& family = find_family(config.model.name);
    DecoderConfig model = config.model.flavor == "hf" ? model_from_folder(config, family.name)
                                                      : find_flavor(family, config.model.flavor);
    override_fields(model, [&](const std::string& field) { return option_value(config, "model." + field); });
    model.moe.round_robin = config.debug.moe_force_load_balance;
    if (model.mtp_layers > 0) model.mtp_scale = config.loss.mtp_scale;
    model.validate();
    require_loss_fits(config.loss, model);
    if (model.moe.sequence_balance > 0 && model.layers_with_experts().empty())
        throw ConfigError(
            "model.moe.sequence_balance_coeff = {}: {} {} has no layer with experts, whose loads it would "
            "balance; remove it",
            model.moe.sequence_balance, model.family, model.flavor);
    const bool validated = config.validation.enable && config.validation.seq_len > config.training.seq_len;
    const int64_t seq_len = validated ? config.validation.seq_len : config.training.seq_len;
    if (seq_len > model.max_seq_len)
        throw ConfigError(
            "{}.seq_len = {}: {} {} allows at most {}; reduce it, or increase model.max_seq_len",
            validated ? "validation" : "training", seq_len, model.family, model.flavor, model.max_seq_len);
    if (config.checkpoint.last_save_in_hf) {  // throws now rather than after the last step
        hub_config_of(model);
        if (config.checkpoint.enable && config.checkpoint.last_save_model_only && !hub_holds_biases(model))
            throw ConfigError(
                "checkpoint.last_save_in_hf = true: a Hugging Face folder of this architecture has no place "
                "for the biases that balance the experts (model.moe.load_balance_coeff = {}), and without "
                "them it would be another model. Set model.moe.load_balance_coeff = 0, or "
                "checkpoint.last_save_in_hf = false; `coeus convert RUN FOLDER --without_biases` writes a "
                "folder without them",
                model.moe.balance_rate);
    } else if (config.model.flavor == "hf" && !hub_holds_biases(model)) {
        log::info(
            "Notice: the biases that balance the experts (model.moe.load_balance_coeff = {}) have no place "
            "in a Hugging Face folder of this architecture: for weights that are to become one, set "
            "model.moe.load_balance_coeff = 0",
            model.moe.balance_rate);
    }
    return model;
}

DecoderConfig model_from_deck(const Config& config, const Communicator& ranks) {
    if (config.model.flavor != "hf") return model_from_deck(config);  // reads nothing
    std::string text;
    on_first_rank(ranks, [&] { text = describe_model(model_from_deck(config)); });
    DecoderConfig model = model_from_description(broadcast_text(ranks, text), config.model.hf_assets_path);
    model.moe.round_robin = config.debug.moe_force_load_balance;
    return model;
}

}  // namespace coeus
