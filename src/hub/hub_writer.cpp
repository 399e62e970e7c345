// SPDX-License-Identifier: Apache-2.0
#include "coeus/hub/hub_writer.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

namespace coeus {

namespace fs = std::filesystem;

namespace {

constexpr const char* generation_config = "generation_config.json";

// Names of a tokenizer's files in the libraries transformers and tokenizers.
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

void copy_patiently(const fs::path& from, const fs::path& to) {
    std::error_code failed;
    patiently(from.string(), [&] {
        fs::copy_file(from, to, fs::copy_options::overwrite_existing, failed);
        errno = failed.value();
        return failed ? -1 : 0;
    });
    if (failed) throw fs::filesystem_error("", from, failed);
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
    const bool is_file = is_file_patiently(from);  // it may have any name
    const fs::path folder = is_file ? from.parent_path() : from;
    std::set<fs::path> names(std::begin(tokenizer_files), std::end(tokenizer_files));
    if (is_file) names.insert(from.filename());
    for (const fs::path& name : names)
        if (is_file_patiently(folder / name)) copy_patiently(folder / name, to / name);
}

// null if the id is not known: without the key, transformers would use its own default id
Json id_or_null(std::optional<int32_t> id) {
    return id ? Json(*id) : Json();
}

// The tokens with which `generate` of transformers begins and ends a text, unless the tokenizer's folder has
// this file.
void write_generation_config(const fs::path& folder, const HubTokenizer& tokenizer) {
    const fs::path file = folder / generation_config;
    if (exists_patiently(file) || (!tokenizer.bos_id && !tokenizer.eos_id)) return;
    Json json = Json::object();
    json.set("bos_token_id", id_or_null(tokenizer.bos_id)).set("eos_token_id", id_or_null(tokenizer.eos_id));
    write_json(json, file);
}

}  // namespace

void write_hub_config(const std::string& folder, Json config, Dtype dtype, const HubTokenizer& tokenizer) {
    // some classes of transformers have a token by default, and do not change its row by a gradient
    if (!config.find("pad_token_id")) config.set("pad_token_id", Json());
    config.set("dtype", torch_name(dtype)).set("torch_dtype", torch_name(dtype)).set("use_cache", true);
    for (const auto& [key, id] :
         {std::pair("bos_token_id", tokenizer.bos_id), {"eos_token_id", tokenizer.eos_id}})
        if (id || !config.find(key)) config.set(key, id_or_null(id));  // a family may have one of its own
    write_json(config, fs::path(folder) / "config.json");
}

HubWriter::HubWriter(std::string folder, Json config, std::vector<HubEntry> entries, Dtype dtype,
                     const HubTokenizer& tokenizer, const Communicator& ranks, int64_t file_bytes)
    : folder_(std::move(folder)), entries_(std::move(entries)), dtype_(dtype), ranks_(ranks) {
    while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
    divide(file_bytes);
    open_.resize(files_.size());
    on_first_rank(ranks_, [&] {
        if (exists_patiently(folder_))
            throw ConfigError("{} already exists; give the name of a new folder", folder_);
        try {
            make_files(std::move(config), tokenizer);
        } catch (...) {
            std::error_code ignored;
            fs::remove_all(folder_ + ".part", ignored);
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

// Divides the tensors among files, in alphabetical order. A new file begins when the next tensor would make
// the present one too large.
void HubWriter::divide(int64_t file_bytes) {
    for (const HubEntry& entry : entries_)
        for (const HubPlace& place : entry.places) {
            const bool widens = place.keeps_f32 && size_of(dtype_) < size_of(Dtype::f32);
            const Target target = {.shape = place.shape, .dtype = widens ? Dtype::f32 : dtype_};
            const auto [known, is_new] = tensors_.try_emplace(place.name, target);
            require(known->second.shape == target.shape && known->second.dtype == target.dtype,
                    "places in one tensor agree on its shape and type");
        }
    for (auto& [name, target] : tensors_) {
        const int64_t bytes = target.shape.count() * size_of(target.dtype);
        if (files_.empty() || (files_.back().bytes > 0 && files_.back().bytes + bytes > file_bytes))
            files_.emplace_back();
        target.file = files_.size() - 1;
        target.offset = files_.back().bytes;
        files_.back().tensors.push_back(name);
        files_.back().bytes += bytes;
        bytes_ += bytes;
    }
    for (size_t f = 0; f < files_.size(); ++f) {
        File& file = files_[f];
        file.name = files_.size() == 1
                        ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files_.size());
        std::vector<SafetensorsEntry> entries;
        for (const std::string& name : file.tensors)
            entries.push_back({name, tensors_.at(name).dtype, tensors_.at(name).shape});
        file.header = safetensors_header(entries, {{"format", "pt"}});
        for (const std::string& name : file.tensors) tensors_.at(name).offset += int64_t(file.header.size());
    }
}

void HubWriter::make_files(Json config, const HubTokenizer& tokenizer) const {
    const std::string folder = folder_ + ".part";
    std::error_code status;
    fs::remove_all(folder, status);  // left by a run that was killed
    make_folders_patiently(folder);
    if (const int64_t there = free_bytes(folder); there < bytes_)
        throw SystemError(fmt::format("{} needed in {}, where {} are free", bytes_text(double(bytes_)),
                                      folder, bytes_text(double(there))));
    // first, so that a tokenizer file of any name cannot replace one of the other files
    if (!tokenizer.folder.empty()) copy_tokenizer(tokenizer.folder, folder);
    Json map = Json::object();
    for (const File& file : files_) {
        RawFile raw = RawFile::create(part(file.name));
        raw.reserve(int64_t(file.header.size()) + file.bytes);
        raw.write(file.header.data(), int64_t(file.header.size()), 0);
        for (const std::string& name : file.tensors) map.as_object()->emplace_back(name, file.name);
    }
    if (files_.size() > 1)
        write_json(Json::object()
                       .set("metadata", Json::object().set("total_size", bytes_))
                       .set("weight_map", std::move(map)),
                   part("model.safetensors.index.json"));
    write_hub_config(folder, std::move(config), dtype_, tokenizer);
    write_generation_config(folder, tokenizer);
}

void HubWriter::write(size_t entry, Tensor rows, int64_t first_row, int64_t first_col) {
    for (const HubPlace& place : entries_[entry].places) {
        const int64_t begin = std::max(first_row, place.first_row),
                      end = std::min(first_row + rows.rows(), place.first_row + place.rows);
        if (begin < end)
            write_place(place, rows.slice_rows(begin - first_row, end - begin), begin, first_col);
    }
}

// Writes rows that are all in this place, at most a MiB at a time.
void HubWriter::write_place(const HubPlace& place, Tensor rows, int64_t first_row, int64_t first_col) {
    const Target& target = tensors_.at(place.name);
    std::optional<RawFile>& file = open_[target.file];
    if (!file) file = RawFile::open_for_update(part(files_[target.file].name));
    const int64_t bytes = size_of(target.dtype), cols = rows.cols();
    const auto write_run = [&](const std::byte* run, int64_t count, int64_t row, int64_t col) {
        file->write(run, count * bytes, target.offset + place.index(row, col) * bytes);
    };
    const bool rows_in_order = place.rotated_heads == 0;
    const int64_t step = std::max<int64_t>(1, (int64_t(1) << 20) / std::max<int64_t>(1, cols * bytes));
    for (int64_t done = 0; done < rows.rows(); done += step) {
        const int64_t count = std::min(step, rows.rows() - done), first = first_row + done;
        staging_.resize(size_t(count * cols * bytes));
        for (int64_t r = 0; r < count; ++r)
            convert_elements(staging_.data() + r * cols * bytes, target.dtype,
                             rows.slice_rows(done + r, 1).data, rows.dtype, cols);
        if (place.col_stride == 1 && place.row_stride == cols && rows_in_order) {
            write_run(staging_.data(), count * cols, first, first_col);
        } else if (place.col_stride == 1) {
            for (int64_t r = 0; r < count; ++r)
                write_run(staging_.data() + r * cols * bytes, cols, first + r, first_col);
        } else {
            column_.resize(size_t(count * bytes));
            for (int64_t c = 0; c < cols; ++c) {
                for (int64_t r = 0; r < count; ++r)
                    std::memcpy(column_.data() + r * bytes, staging_.data() + (r * cols + c) * bytes,
                                size_t(bytes));
                const bool whole = place.row_stride == 1 && rows_in_order;
                for (int64_t r = 0; r < count; r += whole ? count : 1)
                    write_run(column_.data() + r * bytes, whole ? count : 1, first + r, first_col + c);
            }
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
        // small files, headers and file names, which no rank has synced
        for (const fs::path& file : entries_patiently(folder_ + ".part")) RawFile::open(file.string()).sync();
        sync_folder(folder_ + ".part");
        publish_file(folder_ + ".part", folder_);
    });
    published_ = true;
}

}  // namespace coeus
