// SPDX-License-Identifier: Apache-2.0
#include "tensor_parallel.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus::deck {

namespace {

/// `number` is a multiple of the degree times `factor`.
struct TensorRule {
    std::string text;  ///< "training.seq_len = 2048"
    int64_t number = 0, factor = 1;
    bool allows(int64_t tp) const { return number % (tp * factor) == 0; }
};

// The rules besides those of the mesh.
std::vector<TensorRule> rules_of(const Config& config) {
    const Config::Parallelism& p = config.parallelism;
    const bool two_runs = p.context_parallel_load_balancer == "headtail" && p.context_parallel_degree > 1;
    const int64_t pieces = p.context_parallel_degree * (two_runs ? 2 : 1);
    std::vector<TensorRule> rules;
    const auto add_sequences = [&](const char* option, int64_t length) {
        const std::string per = pieces > 1 ? fmt::format(" / {}", pieces) : "";
        rules.push_back({fmt::format("{} = {}{}", option, length, per), length, pieces});
    };
    add_sequences("training.seq_len", config.training.seq_len);
    if (config.validation.enable && config.validation.seq_len != config.training.seq_len)
        add_sequences("validation.seq_len", config.validation.seq_len);
    if (config.model.flavor == "hf") return rules;
    try {
        DecoderConfig model = find_flavor(find_family(config.model.name), config.model.flavor);
        override_fields(model,
                        [&](const std::string& field) { return option_value(config, "model." + field); });
        const HeadSizes attention = model.head_sizes();
        rules.push_back({fmt::format("model.n_heads = {}", attention.heads), attention.heads});
        if (attention.kv_heads != attention.heads)
            rules.push_back({fmt::format("model.n_kv_heads = {}", attention.kv_heads), attention.kv_heads});
    } catch (const ConfigError&) {
        // an error of the model has its own message
    }
    return rules;
}

std::string listed_texts(const std::vector<std::string>& texts) {
    if (texts.size() == 1) return texts[0];
    return join({texts.begin(), texts.end() - 1}, ", ") + " and " + texts.back();
}

}  // namespace

void check_tensor_parallel(const Config& config, int ranks) {
    const Config::Parallelism& p = config.parallelism;
    const int64_t given = p.tensor_parallel_degree;
    if (given <= 1) return;
    const auto fits_ranks = [&](int64_t tp) {
        const double others = double(p.context_parallel_degree) * double(p.pipeline_parallel_degree) *
                              double(p.data_parallel_replicate_degree) *
                              double(std::max<int64_t>(1, p.data_parallel_shard_degree)) * double(tp);
        if (p.data_parallel_shard_degree > 0) return others == ranks;
        return others <= ranks && ranks % int64_t(others) == 0;
    };
    const std::vector<TensorRule> rules = rules_of(config);
    std::vector<std::string> broken;
    for (const TensorRule& rule : rules)
        if (!rule.allows(given)) broken.push_back(rule.text);
    const bool fits = ranks % given == 0;
    if (broken.empty() || (fits && broken.size() == 1)) return;
    std::vector<std::string> valid;
    for (int64_t tp = 1; tp <= ranks; ++tp)
        if (fits_ranks(tp) &&
            std::ranges::all_of(rules, [&](const TensorRule& rule) { return rule.allows(tp); }))
            valid.push_back(std::to_string(tp));
    throw ConfigError("parallelism.tensor_parallel_degree = {}: {}must divide {}; {}", given,
                      fits ? ""
                           : fmt::format("{} {} not a multiple of {}, and it ", counted(ranks, "rank"),
                                         ranks == 1 ? "is" : "are", given),
                      listed_texts(broken),
                      valid.empty()
                          ? fmt::format("with {} and the other degrees no value fits", counted(ranks, "rank"))
                          : fmt::format("with {}, {} {}", counted(ranks, "rank"), listed_texts(valid),
                                        valid.size() == 1 ? "satisfies all rules" : "satisfy all rules"));
}

}  // namespace coeus::deck
