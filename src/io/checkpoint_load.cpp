// SPDX-License-Identifier: Apache-2.0
// Loading. Every rank reads its own elements. The checksums over all ranks are then compared with those of
// the file, so each byte is checked once.
#include "checkpoint_reader.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>

namespace coeus {

using namespace checkpoint_format;

namespace {

/// A message on the first block whose sum differs from the file's; "" if none does.
std::string compare(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                    const CheckpointContents& contents, const std::vector<uint64_t>& read) {
    size_t next = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const int64_t rows = tensors[i].shape.rows(), block_rows = contents.arrays[i].block_rows;
        for (int64_t first = 0; first < rows; first += block_rows, ++next)
            if (read[next] != contents.sums[next])
                return fmt::format("{} is damaged: rows {} to {} of {} do not match their checksum", path,
                                   first, std::min(first + block_rows, rows) - 1, tensors[i].path);
    }
    return "";
}

/// SystemError if the file cannot be read now. The reason may be temporary and the file intact: the run must
/// not resume from an earlier checkpoint and then overwrite this one.
void require_readable(const std::string& path) {
    if (const std::string why = read_error(path); !why.empty())
        throw SystemError(may_be_good(fmt::format("{} cannot be read: {}", path, why)));
}

/// The result of an attempt: the record, or the damage of the file. The same on all ranks.
struct Attempt {
    std::string damage;
    TrainRecord train;
};

Attempt attempt_load(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                     const Communicator& ranks, const LeftOut& left_out) {
    const CheckpointContents contents = find_arrays(path, tensors, ranks, left_out);
    if (!contents.damage.empty()) return {contents.damage, {}};
    std::vector<uint64_t> sums;
    std::string unreadable;
    try {
        together(ranks, [&] {
            try {
                sums = read_arrays(contents, tensors);
            } catch (const ReadError& error) {
                unreadable = error.what();
            } catch (const PermissionError& error) {  // of this rank's host
                unreadable = error.what();
            }
        });
    } catch (const CollectiveError& error) {
        return {fmt::format("{} is damaged: {}", path, error.what()), {}};
    }
    together(ranks, [&] {
        if (!unreadable.empty()) throw SystemError(may_be_good(unreadable));
    });
    sums = sum_over_ranks(sums, ranks);
    const std::string damage = ranks.rank() == 0 ? compare(path, tensors, contents, sums) : "";
    return {broadcast_text(ranks, damage), contents.train};
}

}  // namespace

TrainRecord load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                            const Communicator& ranks, const LeftOut& left_out) {
    const Attempt attempt = attempt_load(path, tensors, ranks, left_out);
    if (!attempt.damage.empty()) throw ConfigError("{}", attempt.damage);
    return attempt.train;
}

std::optional<CheckpointStore::Loaded> CheckpointStore::load_newest(
    FunctionRef<std::vector<CheckpointTensor>(const std::string&)> tensors_of) const {
    // only rank 0 lists the folder: on a network file system other ranks may see new files later
    std::vector<std::string> listed;  // newest first
    on_first_rank(ranks_, [&] {
        std::error_code unlisted;
        for (const StepFile& file : list_checkpoints(folder_.path(), unlisted))
            listed.insert(listed.begin(), file.path);
        if (unlisted)
            throw SystemError(
                fmt::format("{} cannot be listed: {}; it may have a checkpoint from which this run must "
                            "resume. Make it readable, or start in another job.dump_folder",
                            folder_.path(), unlisted.message()));
    });
    listed = broadcast_texts(ranks_, listed);
    std::string damage;
    for (const std::string& path : listed) {
        on_first_rank(ranks_, [&] { require_readable(path); });
        const Attempt attempt = attempt_load(path, tensors_of(path), ranks_, {});
        if (attempt.damage.empty()) return Loaded{path, attempt.train};
        if (ranks_.rank() == 0) log::warn("checkpoint skipped: {}", attempt.damage);
        damage = attempt.damage;
    }
    if (!damage.empty())
        throw ConfigError(
            "none of the checkpoints in {} is readable (the last one tried: {}); move them away to start "
            "over",
            folder_.path(), damage);
    return std::nullopt;
}

CheckpointStore::Loaded CheckpointStore::load_step(int64_t step,
                                                   const std::vector<CheckpointTensor>& tensors) const {
    const std::string path = folder_.path_of(step);
    on_first_rank(ranks_, [&] {
        if (!exists_patiently(path)) throw ConfigError("{}", missing_step_error(folder_.path(), step));
    });
    return {path, load_checkpoint(path, tensors, ranks_)};
}

}  // namespace coeus
