// SPDX-License-Identifier: Apache-2.0
// coeus info for a checkpoint: the progress of its run and its arrays. --verify checks their checksums.
#include "coeus/io/checkpoint.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace coeus::info {

namespace {

// ConfigError if the checkpoint does not contain all weights of its model.
void require_whole(const std::string& path, const CheckpointHeader& header) {
    if (header.train.model.empty()) return;
    std::set<std::string> there;
    for (const auto& array : header.arrays) there.insert(array.path);
    for (const std::string& needed : checkpoint_paths(Pretrained(path).model()))
        if (!there.contains(needed))
            throw ConfigError("{} is damaged: the array {} is missing", path, needed);
}

void verify(const std::string& path, const CheckpointHeader& header) {
    require_whole(path, header);
    int64_t bytes = 0;
    for (const auto& array : header.arrays) bytes += array.shape.count() * hdf5::size_of(array.type);
    std::vector<DamagedRows> damaged;
    {
        ProgressBar bar("verifying", bytes, true);
        damaged = verify_checkpoint(path, [&](int64_t done, int64_t) { bar.update(done); });
    }
    for (const DamagedRows& rows : damaged)
        print("  damaged: rows {} to {} of {}\n", rows.first_row, rows.last_row - 1, rows.array);
    std::fflush(stdout);
    if (!damaged.empty())
        throw ConfigError("{} is damaged: {} of its blocks do not match their checksums", path,
                          damaged.size());
    entry("verified", fmt::format("{} in {} arrays match their checksums", bytes_text(double(bytes)),
                                  header.arrays.size()));
}

}  // namespace

void show_checkpoint(const std::string& file, const Options& options) {
    const CheckpointHeader header = read_checkpoint_header(file);
    print("{}: checkpoint of Coeus, {}, {}\n", file, header.full ? "weights and optimizer" : "weights only",
          bytes_text(double(header.bytes)));
    int64_t parameters = 0;
    for (const auto& array : header.arrays)
        if (array.path.starts_with("model/")) parameters += array.shape.count();
    if (!header.parts.empty())
        entry("files", fmt::format("this file and {} parts in {}", header.parts.size(),
                                   std::filesystem::path(header.parts[0]).parent_path().string()));
    entry("step", with_commas(header.train.step));
    if (header.train.schedule_step) entry("schedule step", with_commas(*header.train.schedule_step));
    if (header.train.optimizer_step) entry("optimizer step", with_commas(*header.train.optimizer_step));
    entry("tokens seen", with_commas(header.train.tokens_seen));
    entry("next sample", with_commas(header.train.sample));
    entry("seed", std::to_string(header.train.seed));
    entry("parameters", with_commas(parameters));
    entry("model", header.train.model);
    entry("written by", header.train.version);
    for (const auto& array : header.arrays)
        print("  {:<60} {:<9} {}\n", printable(array.path), hdf5::name_of(array.type), array.shape.text());
    if (options.verify) verify(file, header);
}

}  // namespace coeus::info
