// SPDX-License-Identifier: Apache-2.0
// Reads the description of a checkpoint, and verifies its bytes.
#include "checkpoint_parts.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/hash.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace coeus {

namespace {

constexpr int64_t largest_number = int64_t(1) << 53;  // adding the steps and samples of a run is exact

/// ConfigError for numbers from which no run can continue: a file without a guard may have any.
void require_sane(const TrainRecord& train, const std::string& path) {
    const std::pair<const char*, int64_t> numbers[] = {{"step", train.step},
                                                       {"tokens_seen", train.tokens_seen},
                                                       {"sample", train.sample},
                                                       {"schedule_step", train.schedule_step.value_or(0)},
                                                       {"optimizer_step", train.optimizer_step.value_or(0)}};
    for (const auto& [name, value] : numbers)
        if (value < 0 || value > largest_number)
            throw ConfigError("{} is damaged: {} of /train is {}, must be from 0 to {}", path, name, value,
                              largest_number);
}

}  // namespace

CheckpointHeader read_checkpoint_header(const std::string& path) {
    require_sound_layout(path);
    hdf5::File file = hdf5::File::open(path);
    if (file.has_attribute("format") && file.string_attribute("format") == part_format_name)
        throw ConfigError("{} is a part of a checkpoint; give the checkpoint file next to its folder instead",
                          path);
    if (!file.has_attribute("format") || file.string_attribute("format") != format_name)
        throw ConfigError("{} is an HDF5 file, but not a checkpoint of Coeus", path);
    if (const int64_t version = file.int_attribute("format_version"); version != format_version)
        throw ConfigError("{} is a checkpoint of format version {}; this program reads version {}", path,
                          version, format_version);
    const hdf5::Group train = file.group("train");
    CheckpointHeader header;
    header.train = {.step = train.int_attribute("step"),
                    .tokens_seen = train.int_attribute("tokens_seen"),
                    .seed = train.int_attribute("seed"),
                    .sample = train.int_attribute("sample"),
                    .deck = train.string_attribute("deck"),
                    .version = train.string_attribute("version"),
                    .model = train.string_attribute("model")};
    if (train.has_attribute("schedule_step"))
        header.train.schedule_step = train.int_attribute("schedule_step");
    if (train.has_attribute("optimizer_step"))
        header.train.optimizer_step = train.int_attribute("optimizer_step");
    if (train.has_attribute("guards")) header.train.guards = train.string_attribute("guards");
    header.train.validation_is_left = train.has_attribute("validation_is_left");
    require_sane(header.train, path);
    header.parts = find_parts(file, header.train);
    allow_links_to_parts(file, header.parts.size());
    header.bytes = size_patiently(path);
    for (const std::string& part : header.parts) header.bytes += size_patiently(part);
    header.full = file.has("optimizer");
    for (const char* top : {"model", "optimizer"}) {
        if (!file.has(top)) continue;
        for (const std::string& below : file.group(top).dataset_paths()) {
            const std::string name = std::string(top) + "/" + below;
            const hdf5::Dataset array = file.dataset(name);
            header.arrays.push_back({name, array.type(), array.shape()});
        }
    }
    return header;
}

std::string weights_id(const std::string& path) {
    const CheckpointHeader header = read_checkpoint_header(path);
    const hdf5::File file = open_with_parts(path, header.parts.size());
    Hasher hasher;
    for (const auto& array : header.arrays) {
        if (!array.path.starts_with("model/")) continue;
        hasher.update(fmt::format("{} {} {}\n", array.path, array.shape.text(), int(array.type)));
        const auto sums = file.dataset(checksum_path(array.path)).read_all<uint64_t>();
        hasher.update(std::as_bytes(std::span(sums)));
    }
    return hash_text(hasher.digest());
}

std::vector<DamagedRows> verify_checkpoint(const std::string& path,
                                           const std::function<void(int64_t, int64_t)>& progress) {
    const CheckpointHeader header = read_checkpoint_header(path);
    const hdf5::File file = open_with_parts(path, header.parts.size());
    int64_t total = 0, done = 0;
    for (const auto& array : header.arrays) total += array.shape.count() * hdf5::size_of(array.type);
    // if an array is missing, its checksums are still there
    const std::string sums = checksum_path("");
    if (file.has(sums.substr(0, sums.size() - 1)))
        for (const std::string& array : file.group(sums.substr(0, sums.size() - 1)).dataset_paths())
            if (!file.has(array)) throw ConfigError("{} is damaged: the array {} is missing", path, array);
    std::vector<DamagedRows> damaged;
    std::vector<std::byte> piece;
    for (const auto& array : header.arrays) {
        const hdf5::Dataset elements = file.dataset(array.path);
        const hdf5::Dataset checksums = file.dataset(checksum_path(array.path));
        const int64_t bytes = hdf5::size_of(array.type), rows = array.shape.rows(), cols = array.shape.cols();
        const int64_t block_rows = checksums.int_attribute(block_rows_attribute);
        if (bytes == 0 || !checksums_fit(array.shape, checksums.shape(), block_rows))
            throw ConfigError("{}: the checksums of {} do not fit it", path, array.path);
        for (int64_t first = 0; first < rows; first += block_rows) {
            const int64_t last = std::min(first + block_rows, rows);
            uint64_t sum = 0, expected = 0;
            // in small pieces: little memory is needed even if the file has a wrong number of rows per block
            for (int64_t next = first * cols; next < last * cols;) {
                const int64_t count = std::min(int64_t(1) << 17, last * cols - next);
                piece.resize(size_t(count * bytes));
                elements.read_elements(piece.data(), array.type, next, count);
                sum += checksum_of(piece.data(), bytes, next, count);
                next += count;
            }
            checksums.read(std::span<uint64_t>(&expected, 1), first / block_rows);
            if (sum != expected) damaged.push_back({array.path, first, last});
            done += (last - first) * cols * bytes;
            if (progress) progress(done, total);
        }
    }
    return damaged;
}

}  // namespace coeus
