// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/hub_writer.hpp"

#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

namespace coeus {

namespace fs = std::filesystem;

namespace {

constexpr const char* generation_config = "generation_config.json";

// What belongs to a tokenizer, as transformers and tokenizers call it.
constexpr const char* tokenizer_files[] = {"tokenizer.json",    "tokenizer_config.json",
                                           "tokenizer.model",   "special_tokens_map.json",
                                           "added_tokens.json", "vocab.json",
                                           "merges.txt",        "chat_template.jinja",
                                           generation_config};

const char* torch_name(Dtype dtype) {
    switch (dtype) {
        case Dtype::bf16: return "bfloat16";
        case Dtype::f16: return "float16";
        case Dtype::f64: return "float64";
        default: return "float32";
    }
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
    std::error_code status;
    const bool is_file = fs::is_regular_file(from, status);  // of any name
    const fs::path folder = is_file ? from.parent_path() : from;
    std::set<fs::path> names(std::begin(tokenizer_files), std::end(tokenizer_files));
    if (is_file) names.insert(from.filename());
    for (const fs::path& name : names)
        if (fs::is_regular_file(folder / name, status))
            fs::copy_file(folder / name, to / name, fs::copy_options::overwrite_existing);
}

// null where it is not known: without the key transformers would take Llama 2's
Json id_or_null(std::optional<int32_t> id) {
    return id ? Json(*id) : Json();
}

// What `generate` of transformers begins and ends with, where the tokenizer's folder says nothing.
void write_generation_config(const fs::path& folder, const HubTokenizer& tokenizer) {
    const fs::path file = folder / generation_config;
    if (fs::exists(file) || (!tokenizer.bos_id && !tokenizer.eos_id)) return;
    Json json = Json::object();
    json.set("bos_token_id", id_or_null(tokenizer.bos_id)).set("eos_token_id", id_or_null(tokenizer.eos_id));
    write_json(json, file);
}

}  // namespace

void write_hub_config(const std::string& folder, const HubConfig& c, Dtype dtype,
                      const HubTokenizer& tokenizer) {
    Json rope = Json::object(), scaling;
    rope.set("rope_theta", c.rope_theta).set("rope_type", c.rope_scaling ? "llama3" : "default");
    if (c.rope_scaling) {
        scaling = Json::object().set("rope_type", "llama3");
        for (Json* both : {&rope, &scaling})
            both->set("factor", c.rope_scaling->factor)
                .set("low_freq_factor", c.rope_scaling->low_freq_factor)
                .set("high_freq_factor", c.rope_scaling->high_freq_factor)
                .set("original_max_position_embeddings", int64_t(c.rope_scaling->original_positions));
    }
    Json json = Json::object();
    json.set("architectures", std::vector<std::string>{c.architecture}).set("model_type", "llama");
    json.set("hidden_size", c.hidden_size).set("intermediate_size", c.intermediate_size);
    json.set("num_hidden_layers", c.layers).set("num_attention_heads", c.heads);
    json.set("num_key_value_heads", c.kv_heads).set("head_dim", c.head_dim).set("vocab_size", c.vocab_size);
    json.set("max_position_embeddings", c.max_positions).set("hidden_act", "silu");
    json.set("rms_norm_eps", c.rms_norm_eps).set("attention_bias", false).set("mlp_bias", false);
    json.set("rope_parameters", std::move(rope));
    json.set("rope_theta", c.rope_theta).set("rope_scaling", std::move(scaling));
    json.set("tie_word_embeddings", c.tied).set("dtype", torch_name(dtype));
    json.set("torch_dtype", torch_name(dtype)).set("use_cache", true);
    json.set("bos_token_id", id_or_null(tokenizer.bos_id)).set("eos_token_id", id_or_null(tokenizer.eos_id));
    write_json(json, fs::path(folder) / "config.json");
}

HubWriter::HubWriter(std::string folder, const HubConfig& config, std::vector<HubEntry> entries, Dtype dtype,
                     const HubTokenizer& tokenizer, const Communicator& ranks, int64_t file_bytes)
    : folder_(std::move(folder)), entries_(std::move(entries)), dtype_(dtype), ranks_(ranks) {
    while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
    divide(file_bytes);
    open_.resize(files_.size());
    on_first_rank(ranks_, [&] {
        if (fs::exists(folder_))
            throw ConfigError("{} is there already; name a folder that is to be made", folder_);
        try {
            make_files(config, tokenizer);
        } catch (...) {
            fs::remove_all(folder_ + ".part");
            throw;
        }
    });
}

HubWriter::~HubWriter() {
    std::error_code ignored;
    if (!published_ && ranks_.rank() == 0) fs::remove_all(folder_ + ".part", ignored);
}

std::string HubWriter::part(const std::string& name) const {
    return (fs::path(folder_ + ".part") / name).string();
}

// In alphabetical order, whatever that of the entries; a new file where the next tensor would make one too
// large.
void HubWriter::divide(int64_t file_bytes) {
    places_.resize(entries_.size());
    std::vector<size_t> order(entries_.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return entries_[a].name < entries_[b].name; });
    for (const size_t i : order) {
        const int64_t bytes = entries_[i].shape.count() * size_of(dtype_);
        if (files_.empty() || (files_.back().bytes > 0 && files_.back().bytes + bytes > file_bytes))
            files_.emplace_back();
        places_[i] = {files_.size() - 1, files_.back().bytes};
        files_.back().entries.push_back(i);
        files_.back().bytes += bytes;
        bytes_ += bytes;
    }
    for (size_t f = 0; f < files_.size(); ++f) {
        File& file = files_[f];
        file.name = files_.size() == 1
                        ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files_.size());
        std::vector<SafetensorsEntry> entries;
        for (const size_t i : file.entries) entries.push_back({entries_[i].name, dtype_, entries_[i].shape});
        file.header = safetensors_header(entries, {{"format", "pt"}});
        for (const size_t i : file.entries) places_[i].offset += int64_t(file.header.size());
    }
}

void HubWriter::make_files(const HubConfig& config, const HubTokenizer& tokenizer) const {
    const std::string folder = folder_ + ".part";
    std::error_code status;
    fs::remove_all(folder, status);  // of a run that was killed
    fs::create_directories(folder, status);
    if (status) throw SystemError(fmt::format("{} cannot be made: {}", folder, status.message()));
    if (const int64_t there = free_bytes(folder); there < bytes_)
        throw SystemError(fmt::format("{} needed in {}, where {} are free", bytes_text(double(bytes_)),
                                      folder, bytes_text(double(there))));
    // first: whatever it is called, it takes no other file's place
    if (!tokenizer.folder.empty()) copy_tokenizer(tokenizer.folder, folder);
    Json map = Json::object();
    for (const File& file : files_) {
        RawFile raw = RawFile::create(part(file.name));
        raw.reserve(int64_t(file.header.size()) + file.bytes);
        raw.write(file.header.data(), int64_t(file.header.size()), 0);
        for (const size_t i : file.entries) map.set(entries_[i].name, file.name);
    }
    if (files_.size() > 1)
        write_json(Json::object()
                       .set("metadata", Json::object().set("total_size", bytes_))
                       .set("weight_map", std::move(map)),
                   part("model.safetensors.index.json"));
    write_hub_config(folder, config, dtype_, tokenizer);
    write_generation_config(folder, tokenizer);
}

void HubWriter::write(size_t entry, Tensor rows, int64_t first_row, int64_t first_col) {
    const HubEntry& array = entries_[entry];
    const Place& place = places_[entry];
    std::optional<RawFile>& file = open_[place.file];
    if (!file) file = RawFile::open_for_update(part(files_[place.file].name));
    const int64_t bytes = size_of(dtype_), cols = rows.cols(), whole = array.shape.cols();
    const int64_t head_dim = array.rotated_heads > 0 ? array.shape.rows() / array.rotated_heads : 0;
    const bool adjacent = cols == whole && head_dim == 0;
    const int64_t step = std::max<int64_t>(1, (int64_t(1) << 20) / std::max<int64_t>(1, cols * bytes));
    for (int64_t done = 0; done < rows.rows(); done += step) {
        const int64_t count = std::min(step, rows.rows() - done);
        staging_.resize(size_t(count * cols * bytes));
        for (int64_t r = 0; r < count; ++r)
            convert_elements(staging_.data() + r * cols * bytes, dtype_, rows.slice_rows(done + r, 1).data,
                             rows.dtype, cols);
        if (adjacent) {
            file->write(staging_.data(), count * cols * bytes,
                        place.offset + (first_row + done) * whole * bytes);
            continue;
        }
        for (int64_t r = 0; r < count; ++r) {
            const int64_t ours = first_row + done + r;
            const int64_t theirs = head_dim > 0 ? half_split_row(ours, head_dim) : ours;
            file->write(staging_.data() + r * cols * bytes, cols * bytes,
                        place.offset + (theirs * whole + first_col) * bytes);
        }
    }
}

void HubWriter::publish() {
    together(ranks_, [&] {
        for (std::optional<RawFile>& file : open_) {
            if (file) file->sync();
            file.reset();
        }
    });
    on_first_rank(ranks_, [&] {
        // what no rank has had open: small files, headers, and the names of all
        for (const auto& entry : fs::directory_iterator(folder_ + ".part"))
            RawFile::open(entry.path().string()).sync();
        sync_folder(folder_ + ".part");
        publish_file(folder_ + ".part", folder_);
    });
    published_ = true;
}

}  // namespace coeus
