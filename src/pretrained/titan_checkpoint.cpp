// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/titan_checkpoint.hpp"

#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/titan_names.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/pretrained/dcp.hpp"
#include "coeus/pretrained/model_source.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace coeus {

namespace {

constexpr int64_t most_steps = 1'000'000'000'000;

/// The names of parameters and their moments in the folder.
class TitanNames {
public:
    explicit TitanNames(const DcpFolder& folder)
        : folder_(folder), group_(folder.has("model.tok_embeddings.weight") ? "model." : "") {}

    std::string weight(const std::string& parameter) const {
        const std::string renamed = newest_titan_name(parameter);
        return group_ + (folder_.has(group_ + renamed) ? renamed : parameter);
    }
    std::string moment(const std::string& parameter, const std::string& moment) const {
        return "optimizer.state." + weight(parameter).substr(group_.size()) + "." + moment;
    }

private:
    const DcpFolder& folder_;
    std::string group_;  // prefix of all parameters' names in torchtitan of 2024
};

struct Parameter {
    std::string name;
    Shape shape;
    std::vector<Moment> moments;  // the moments that the deck's optimizer has
};
std::vector<Parameter> parameters_of(const DecoderConfig& model, const Config& deck) {
    std::vector<Parameter> all;
    Decoder decoder(model, {.frozen = Frozen(deck.model.frozen)}, 1);
    ParamGroups(deck.optimizer, 0, param_groups(deck)).attach(decoder.parameters());
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params())
            all.push_back({param.name, param.shape, storage->kept()});
    return all;
}

// The names of all moments, in the order in which they first appear.
std::vector<std::string> moment_names(const std::vector<Parameter>& parameters) {
    std::vector<std::string> names;
    for (const Parameter& parameter : parameters)
        for (const Moment& moment : parameter.moments)
            if (std::find(names.begin(), names.end(), moment.name) == names.end())
                names.push_back(moment.name);
    return names;
}

// True for a run's state that is not a weight, and for constants that Coeus computes itself.
bool is_beside_model(const std::string& name) {
    for (const char* group : {"optimizer", "lr_scheduler", "dataloader", "train_state"})
        if (name.starts_with(group)) return true;
    // a constant, and counts of one step
    return name.ends_with("freqs_cis") || name.find(".tokens_per_expert") != std::string::npos;
}

void check_weights(const std::string& path, const DcpFolder& folder, const TitanNames& names,
                   const std::vector<Parameter>& parameters, bool tied) {
    std::set<std::string> taken;
    if (tied) taken = {names.weight("output.weight")};  // a copy of the embedding table
    for (const auto& [name, shape, moments] : parameters) {
        const std::string theirs = names.weight(name);
        const DcpFolder::Entry entry = folder.entry(theirs);
        if (entry.shape != shape)
            throw ConfigError(
                "{} does not fit the model of the deck: {} has the shape {} in the folder, but {} in the "
                "model",
                path, theirs, entry.shape.text(), shape.text());
        taken.insert(theirs);
    }
    for (const std::string& name : folder.names())
        if (!taken.contains(name) && !is_beside_model(name))
            throw ConfigError(
                "{} does not fit the model of the deck: it contains '{}', which is not a parameter of the "
                "model",
                path, name);
}

int64_t sequences_of_a_step(const Config& deck) {
    if (deck.training.global_batch_size > 0) return deck.training.global_batch_size;
    const auto& degrees = deck.parallelism;
    if (degrees.data_parallel_shard_degree > 0)
        return deck.training.local_batch_size * degrees.data_parallel_shard_degree *
               degrees.data_parallel_replicate_degree;
    throw ConfigError(
        "the deck does not determine how many sequences a step uses, so the run's position in the data is "
        "unknown; set training.global_batch_size in the deck, or leave out the optimizer with --only model");
}

// Without the step, a resumed run with moments would repeat the warm-up and the bias correction.
int64_t step_of(const std::string& path, const DcpFolder& folder, bool full) {
    const std::optional<int64_t> step = folder.integer("train_state.step");
    if (full && !step)
        throw ConfigError(
            "{} contains the optimizer's moments, but no train_state.step, so the run's position is unknown; "
            "leave out the optimizer with --only model",
            path);
    if (step && (*step < 0 || *step > most_steps))
        throw ConfigError("{}: train_state.step = {}: must be from 0 to {}", path, *step, most_steps);
    return step.value_or(0);
}

TrainRecord record_of(const std::string& path, const DcpFolder& folder, const Config& deck,
                      const DecoderConfig& model, bool full) {
    TrainRecord record{.step = step_of(path, folder, full),
                       .seed = deck.debug.seed,
                       .deck = deck_text(deck),
                       .version = version(),
                       .model = describe_model(model)};
    if (full) {
        record.sample = record.step * sequences_of_a_step(deck);
        record.tokens_seen = record.sample * deck.training.seq_len;
    }
    return record;
}

// paths[i] is the path of the tensor with the name names[i].
ArraySource arrays_of_dcp(DcpFolder folder, const std::vector<std::string>& paths,
                          const std::vector<std::string>& names) {
    const auto shared = std::make_shared<DcpFolder>(std::move(folder));
    ArraySource source;
    for (size_t i = 0; i < names.size(); ++i) {
        const DcpFolder::Entry entry = shared->entry(names[i]);
        source.arrays.push_back({paths[i], entry.dtype, entry.shape});
    }
    source.read = [shared, names, mapped = PassingPages()](size_t number, Tensor rows,
                                                           int64_t first_row) mutable {
        shared->read(names[number], rows, first_row);
        if (mapped.should_release(rows.bytes())) shared->release();
    };
    return source;
}

}  // namespace

TitanCheckpoint read_titan_checkpoint(const std::string& folder, const Config& deck, bool weights_only) {
    DcpFolder stored(folder);
    const TitanNames names(stored);
    Config converted = deck;
    converted.checkpoint.last_save_in_hf = false;  // no run ends here
    TitanCheckpoint checkpoint{.model = model_from_deck(converted), .record = {}, .arrays = {}};
    const std::vector<Parameter> parameters = parameters_of(checkpoint.model, deck);
    check_weights(folder, stored, names, parameters, checkpoint.model.tied);
    checkpoint.full = !weights_only && std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) {
        return !p.moments.empty() && stored.has(names.moment(p.name, p.moments.front().name));
    });
    std::vector<std::string> paths, theirs;
    const auto add = [&](const std::string& ours, const std::string& name, const Shape& shape) {
        if (stored.entry(name).shape != shape)
            throw ConfigError("{}: {} has the shape {}, but its parameter has {}", folder, name,
                              stored.entry(name).shape.text(), shape.text());
        paths.push_back(ours);
        theirs.push_back(name);
    };
    for (const Parameter& p : parameters) add("model/" + p.name, names.weight(p.name), p.shape);
    if (checkpoint.full)
        for (const std::string& name : moment_names(parameters))
            for (const Parameter& p : parameters)
                if (std::ranges::find(p.moments, name, &Moment::name) != p.moments.end())
                    add(fmt::format("optimizer/{}/{}", name, p.name), names.moment(p.name, name), p.shape);
    checkpoint.record = record_of(folder, stored, deck, checkpoint.model, checkpoint.full);
    checkpoint.arrays = arrays_of_dcp(std::move(stored), paths, theirs);
    return checkpoint;
}

}  // namespace coeus
