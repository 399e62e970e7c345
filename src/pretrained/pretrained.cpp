// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/pretrained.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/hub/hub_weights.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/hub_model.hpp"

#include <algorithm>
#include <set>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// The checkpoint at a path: the file itself, or the newest one in a folder.
std::string weights_file(const fs::path& path) {
    if (!leads_somewhere(path))
        throw ConfigError("{}: this file or folder does not exist{}", path.string(),
                          download_hint(path.string()));
    if (path.extension() == ".toml")
        throw ConfigError("{} is a deck, not weights; give the folder of its run: {}", path.string(),
                          parse_command_line({path.string(), "--dry_run"}).config.job.dump_folder);
    return is_folder_patiently(path) ? newest_weights(path.string()) : path.string();
}

template <class T>
const T* find(const std::vector<TomlEntry>& deck, const std::string& key) {
    for (const TomlEntry& entry : deck)
        if (entry.key == key) return entry.value.as<T>();
    return nullptr;
}

// Every parameter with its places in the folder and, if its master weights are allocated, with their memory.
std::vector<HubTensor> hub_tensors(const Parameters& parameters, const DecoderConfig& model) {
    const ModelFamily& family = find_hub_family(model.family);
    std::vector<HubTensor> tensors;
    for (const Storage* storage : parameters.model()) {
        for (const Param& param : storage->params()) {
            HubTensor& tensor = tensors.emplace_back();
            tensor.shape = param.shape;
            tensor.places = family.hub_places(param.name, param.shape, model);
            tensor.device = &parameters.master_device(*storage);
            tensor.blocks = blocks_of(*storage, param, storage->master);
        }
    }
    return tensors;
}

}  // namespace

std::vector<HubTensor> hub_tensors(const DecoderConfig& model) {
    return hub_tensors(Decoder(model, {}, 1).parameters(), model);
}

HubIgnores hub_ignores(const DecoderConfig& model) {
    return [model](const std::string& tensor) {
        return find_hub_family(model.family).hub_ignores(tensor, model);
    };
}

HubCopies hub_copies(const DecoderConfig& model) {
    return [model](const std::string& tensor) {
        return find_hub_family(model.family).hub_copy_of(tensor, model);
    };
}

bool hub_holds_biases(const DecoderConfig& model) {
    const std::vector<int64_t> layers = model.layers_with_experts();
    return layers.empty() || !model.moe.has_balance_bias() ||
           !find_hub_family(model.family)
                .hub_places(fmt::format("layers.{}.moe.expert_bias", layers.front()), {model.moe.experts},
                            model)
                .empty();
}

std::set<std::string> exact_paths(const DecoderConfig& model) {
    std::set<std::string> paths;
    const Decoder decoder(model, {}, 1);
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params())
            if (param.is_exact) paths.insert("model/" + param.name);
    return paths;
}

std::vector<HubEntry> hub_entries(const std::vector<std::string>& paths, const std::vector<Shape>& shapes,
                                  const DecoderConfig& model) {
    const ModelFamily& family = find_hub_family(model.family);
    const std::string group = "model/";
    std::vector<HubEntry> entries;
    for (size_t i = 0; i < paths.size(); ++i) {
        require(paths[i].starts_with(group), "a Hugging Face folder contains only weights");
        entries.push_back({shapes[i], family.hub_places(paths[i].substr(group.size()), shapes[i], model)});
    }
    return entries;
}

std::vector<std::string> checkpoint_paths(const DecoderConfig& model) {
    std::vector<std::string> paths;
    const Decoder decoder(model, {}, 1);
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params()) paths.push_back("model/" + param.name);
    return paths;
}

HubTokenizer hub_tokenizer(const std::string& place) {
    HubTokenizer known{.folder = place};
    if (place.empty()) return known;
    if (!Tokenizer::is_at(place)) {
        log::warn("The Hugging Face folder will have no tokenizer: there is none at {}", place);
        return known;
    }
    try {
        const Tokenizer tokenizer(place);
        known.bos_id = tokenizer.bos_id();
        known.eos_id = tokenizer.eos_id();
    } catch (const ConfigError& error) {
        log::warn("config.json will have no BOS and EOS ids: {}", error.what());
    }
    return known;
}

int64_t depths_in(const std::string& folder, const DecoderConfig& model) {
    const HubWeights weights = HubWeights::open(folder);
    const std::vector<std::string> paths = checkpoint_paths(model);
    const std::vector<HubTensor> tensors = hub_tensors(model);
    int64_t depth = 0;
    for (bool found = true; found && depth < model.mtp.layers; depth += found) {
        found = false;
        for (size_t i = 0; i < paths.size(); ++i)
            if (paths[i].starts_with(fmt::format("model/mtp_layers.{}.", depth)))
                found |= std::ranges::any_of(tensors[i].places,
                                             [&](const HubPlace& place) { return weights.has(place.name); });
    }
    return depth;
}

namespace {

// Says which tensors of a folder the model leaves out: those that have no parameter, those that are not of
// the text model, and those that only the index names.
void note_tensors_left_out(const HubWeights& weights, const DecoderConfig& model) {
    const auto note = [&](const char* what, const std::vector<std::string>& names) {
        if (!names.empty())
            log::info("Notice: {}: {} are ignored: {}{}", weights.folder(), what, printable(names.front()),
                      names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
    };
    const HubIgnores ignores = hub_ignores(model);
    std::set<std::string> taken;
    for (const HubTensor& tensor : hub_tensors(model))
        for (const HubPlace& place : tensor.places) taken.insert(weights.name_in_files(place.name));
    std::vector<std::string> extra, ghosts;
    for (const std::string& name : weights.files().names())
        if (const auto of_text = weights.text_name(name);
            of_text && !taken.contains(name) && ignores(*of_text))
            extra.push_back(name);
    for (const std::string& name : weights.files().ghosts())
        if (!taken.contains(name)) ghosts.push_back(name);
    note("tensors that no parameter uses", extra);
    note("names in the index that no file has and no parameter uses", ghosts);
    if (const int64_t others = weights.count_others(); others > 0)
        log::info("Notice: {} tensors of {} do not belong to the text model and are ignored", others,
                  weights.folder());
}

}  // namespace

Pretrained::Pretrained(const fs::path& path, bool warns) : is_hub_(is_hub_folder(path.string())) {
    if (is_hub_) {
        path_ = tokenizer_folder_ = path.string();
        model_ = warns ? model_from_hub(path_) : read_hub_model(path_).config;
        if (const int64_t depths = model_.mtp.layers > 0 ? depths_in(path_, model_) : 0;
            depths < model_.mtp.layers) {
            log::info(
                "Notice: {}/config.json has {} layers of multi-token prediction, and the files have {}: the "
                "others are left out",
                path_, model_.mtp.layers, depths);
            model_.mtp.layers = depths;
        }
        note_tensors_left_out(HubWeights::open(path_), model_);
        trained_seq_len_ = std::min<int64_t>(2048, model_.max_seq_len);
        return;
    }
    path_ = weights_file(path);
    const TrainRecord record = read_checkpoint_header(path_).train;
    model_ = model_from_description(record.model, path_);
    const std::vector<TomlEntry> deck = parse_toml(record.deck, path_ + " (deck)");
    for (const char* key :
         {"model.hf_assets_path", "model.tokenizer_path"})  // the second takes precedence if both are given
        if (const std::string* folder = find<std::string>(deck, key); folder && !folder->empty())
            tokenizer_folder_ = *folder;
    const int64_t* seq_len = find<int64_t>(deck, "training.seq_len");
    trained_seq_len_ = seq_len ? *seq_len : std::min<int64_t>(2048, model_.max_seq_len);
}

Pretrained::Pretrained(const fs::path& path, const Communicator& ranks, bool warns) {
    std::vector<std::string> texts;
    on_first_rank(ranks, [&] {
        const Pretrained found(path, warns);
        texts = {found.path_, found.tokenizer_folder_, found.is_hub_ ? "hub" : "",
                 describe_model(found.model_), std::to_string(found.trained_seq_len_)};
    });
    texts = broadcast_texts(ranks, texts);
    path_ = texts[0];
    tokenizer_folder_ = texts[1];
    is_hub_ = !texts[2].empty();
    model_ = model_from_description(texts[3], path_);
    trained_seq_len_ = std::stoll(texts[4]);
}

void Pretrained::require_depths_of(const DecoderConfig& model) const {
    if (model.mtp.layers > model_.mtp.layers)
        throw ConfigError(
            "{}: has {} layers of multi-token prediction, but the model has {}; set model.num_mtp_layers = "
            "{}",
            path_, model_.mtp.layers, model.mtp.layers, model_.mtp.layers);
}

void Pretrained::load(const Decoder& decoder, const Communicator& ranks) const {
    require_depths_of(decoder.config());
    if (!is_hub_) {
        const auto left_out = [&](const std::string& path) {
            for (int64_t depth = decoder.depths(); depth < model_.mtp.layers; ++depth)
                if (path.starts_with(fmt::format("model/mtp_layers.{}.", depth))) return true;
            return false;
        };
        std::vector<CheckpointTensor> tensors = checkpoint_tensors(decoder.parameters(), false);
        // balancing begins with this run: its biases stay at 0
        if (!model_.moe.has_balance_bias())
            std::erase_if(tensors, [](const CheckpointTensor& tensor) {
                return tensor.path.ends_with(".moe.expert_bias");
            });
        load_checkpoint(path_, tensors, ranks, left_out);
        return;
    }
    DecoderConfig model = model_;
    model.mtp.layers = decoder.config().mtp.layers;
    const std::vector<HubTensor> tensors = hub_tensors(decoder.parameters(), model);
    on_first_rank(ranks, [&] { check_hub_copies(HubWeights::open(path_), tensors, hub_copies(model)); });
    together(ranks, [&] { load_hub_weights(path_, tensors, hub_ignores(model)); });
}

ArraySource Pretrained::arrays(bool moments, const Communicator& ranks, NotFinite infinite) const {
    ArraySource source;
    if (is_hub_) {
        const std::vector<HubTensor> tensors = hub_tensors(model_);
        on_first_rank(ranks, [&] { check_hub_copies(HubWeights::open(path_), tensors, hub_copies(model_)); });
        source = arrays_of_hub(path_, checkpoint_paths(model_), tensors, hub_ignores(model_), infinite);
    } else {
        source = arrays_of_checkpoint(path_, moments);
    }
    const std::set<std::string> exact = exact_paths(model_);
    for (ArraySource::Array& array : source.arrays) array.is_exact = exact.contains(array.path);
    return source;
}

}  // namespace coeus
