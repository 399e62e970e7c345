// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/model_source.hpp"

#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/pretrained.hpp"

namespace coeus {

namespace {

void require_loss_fits(const Config::Loss& loss, const DecoderConfig& model) {
    if (!loss.loss_fn || (*loss.loss_fn == "MTPLoss") == (model.mtp.layers > 0)) return;
    if (model.mtp.layers == 0)
        throw ConfigError(
            "loss.loss_fn = \"MTPLoss\": needs layers that predict further tokens, but model.num_mtp_layers "
            "= 0; set it to 1, or loss.loss_fn = \"CrossEntropyLoss\"");
    throw ConfigError(
        "loss.loss_fn = \"{}\": does not train the layers of model.num_mtp_layers = {}; set loss.loss_fn = "
        "\"MTPLoss\", or model.num_mtp_layers = 0",
        *loss.loss_fn, model.mtp.layers);
}

// The model of a folder. transformers writes the number of layers of multi-token prediction, but not their
// tensors: a run that starts from such weights is without these layers unless its deck asks for them.
DecoderConfig model_from_folder(const Config& config, const std::string& family) {
    const std::string& folder = config.model.hf_assets_path;
    const HubModel read = read_hub_model(folder, family);
    warn_of_unknown_keys(folder, read);
    if (const std::string about = read.about_not_applied(); !about.empty())
        log::info("Notice: {}/config.json: {}", folder, about);
    DecoderConfig model = read.config;
    const std::string weights = initial_weights_path(config);
    if (model.mtp.layers > 0 && !config.model.num_mtp_layers && is_hub_folder(weights) &&
        Safetensors::is_at(weights))
        model.mtp.layers = depths_in(weights, model);
    return model;
}

// A run from a folder without a place for balancing biases, or from a flavour without such biases, has none,
// and the loss of the folder or flavour balances the experts. A deck that gives the rate of the biases has no
// such loss unless it gives its coefficient too. `usual_loss`: the coefficient of the folder or flavour in
// the terms of transformers.
void balance_by_loss(DecoderConfig& model, const Config::Model::Moe& given, double usual_loss) {
    if (!given.sequence_balance_coeff)
        set_router_aux_loss_coef(model, given.load_balance_coeff ? 0 : usual_loss);
}

void report_balance_of_folder(const DecoderConfig& model, const Config::Model::Moe& given) {
    if (!model.has_experts() || model.moe.has_balance_bias() || given.load_balance_coeff) return;
    const std::string loss =
        model.moe.sequence_balance == 0
            ? "no loss balances them (model.moe.sequence_balance_coeff = 0)"
            : fmt::format(
                  "a loss does (model.moe.sequence_balance_coeff = {:.6g}; for transformers: "
                  "router_aux_loss_coef = {:.6g})",
                  model.moe.sequence_balance, router_aux_loss_coef(model));
    log::info(
        "Notice: a Hugging Face folder of this architecture has no place for biases that balance experts, so "
        "there are none (model.moe.load_balance_coeff = 0), and {}. A deck can set both options",
        loss);
}

// At the start, since the export itself is refused after the last step only.
void report_biases_without_place(const Config& config, const DecoderConfig& model) {
    const Config::Checkpoint& options = config.checkpoint;
    const bool exports = options.enable && options.last_save_model_only && options.last_save_in_hf;
    if (!(exports || config.model.flavor == "hf") || hub_holds_biases(model)) return;
    if (exports)
        log::warn(
            "checkpoint.last_save_in_hf = true: a Hugging Face folder of this architecture has no place for "
            "the biases that balance the experts (model.moe.load_balance_coeff = {}), and without them it "
            "would be another model. This run will end without a folder unless all biases are 0. For weights "
            "that are to become a folder, set model.moe.load_balance_coeff = 0. After the run, "
            "`coeus convert RUN FOLDER --without_biases` writes a folder without them",
            model.moe.balance_rate);
    else
        log::info(
            "Notice: the biases that balance the experts (model.moe.load_balance_coeff = {}) have no place "
            "in a Hugging Face folder of this architecture: for weights that are to become one, set "
            "model.moe.load_balance_coeff = 0",
            model.moe.balance_rate);
}

void report_balance(const Config& config, const DecoderConfig& model) {
    if (config.model.flavor == "hf") report_balance_of_folder(model, config.model.moe);
    report_biases_without_place(config, model);
}

DecoderConfig make_model(const Config& config) {
    const ModelFamily& family = find_family(config.model.name);
    DecoderConfig model = config.model.flavor == "hf" ? model_from_folder(config, family.name)
                                                      : find_flavor(family, config.model.flavor);
    const double usual_loss = router_aux_loss_coef(model);
    const bool has_loss = config.model.flavor == "hf" || !model.moe.has_balance_bias();
    override_fields(model, [&](const std::string& field) { return option_value(config, "model." + field); });
    if (has_loss) balance_by_loss(model, config.model.moe, usual_loss);
    model.moe.round_robin = config.debug.moe_force_load_balance;
    if (model.mtp.layers > 0) model.mtp.scale = config.loss.mtp_scale;
    model.z_loss_weight = config.loss.z_loss_weight;
    model.validate();
    require_loss_fits(config.loss, model);
    if (model.moe.sequence_balance > 0 && !model.has_experts())
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
    if (config.checkpoint.last_save_in_hf) hub_config_of(model);  // throws now, not after the last step
    return model;
}

}  // namespace

DecoderConfig model_from_deck(const Config& config) {
    DecoderConfig model = make_model(config);
    report_balance(config, model);
    return model;
}

DecoderConfig model_from_deck(const Config& config, const Communicator& ranks) {
    if (config.model.flavor != "hf") {  // reads nothing
        DecoderConfig model = make_model(config);
        if (ranks.rank() == 0) report_balance(config, model);
        return model;
    }
    std::string text;
    on_first_rank(ranks, [&] { text = describe_model(model_from_deck(config)); });
    DecoderConfig model = model_from_description(broadcast_text(ranks, text), config.model.hf_assets_path);
    model.moe.round_robin = config.debug.moe_force_load_balance;
    return model;
}

}  // namespace coeus
