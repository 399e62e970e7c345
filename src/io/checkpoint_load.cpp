// SPDX-License-Identifier: Apache-2.0
// Loading. Every rank reads its own rows; the checksums of what all have read together are compared with
// those of the file, so each byte is checked once.
#include "checkpoint_format.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

/// "layers.0.attention.wq.weight" of "model/layers.0.attention.wq.weight".
std::string parameter_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

/// Throws where the file does not hold exactly the weights that are asked for, and all other arrays asked
/// for.
void check_model(const std::string& path, const CheckpointHeader& header,
                 const std::vector<CheckpointTensor>& tensors) {
    std::map<std::string, const CheckpointHeader::Array*> there;
    for (const auto& array : header.arrays) there[array.path] = &array;
    for (const CheckpointTensor& tensor : tensors) {
        const std::string name = parameter_of(tensor.path);
        const auto found = there.find(tensor.path);
        if (found == there.end() && !header.full && tensor.path.starts_with("optimizer/"))
            throw ConfigError(
                "{} holds weights alone, without the optimizer's state: it can be a start "
                "(checkpoint.initial_load_path), not be resumed",
                path);
        if (found == there.end())
            throw ConfigError("{} is of another model: it has no {}, which this model has", path,
                              tensor.path);
        const auto& array = *found->second;
        if (array.shape != tensor.shape)
            throw ConfigError("{} is of another model: {} is {} in the file, {} in this model", path, name,
                              array.shape.text(), tensor.shape.text());
        const auto stored = tensor_type(array.type);
        if (!stored || (tensor.local && !can_convert(tensor.local.dtype, *stored)))
            throw ConfigError("{}: {} holds {}, where a floating type is expected", path, tensor.path,
                              hdf5::name_of(array.type));
        there.erase(found);
    }
    for (const auto& [name, array] : there)
        if (name.starts_with("model/"))
            throw ConfigError("{} is of another model: it has {}, which this model does not have", path,
                              parameter_of(name));
}

/// Reads this rank's rows of one array; adds the sums of its share.
void read_part(const hdf5::Dataset& array, const CheckpointTensor& tensor, Rows share, BlockSums& sums) {
    if (!tensor.local) return;
    const Dtype stored = *tensor_type(array.type());
    const int64_t bytes = size_of(stored), cols = tensor.local.cols(), file_cols = tensor.shape.cols();
    const int64_t step = rows_at_a_time(file_cols * bytes);
    std::vector<std::byte> staging(size_t(std::min(step, tensor.local.rows()) * file_cols * bytes));
    for (int64_t first = 0; first < tensor.local.rows(); first += step) {
        const int64_t rows = std::min(step, tensor.local.rows() - first);
        const int64_t file_row = tensor.first_row + first;
        array.read_elements(staging.data(), array.type(), file_row * file_cols, rows * file_cols);
        for (int64_t r = 0; r < rows; ++r)
            convert_elements(tensor.local.slice_rows(first + r, 1).data, tensor.local.dtype,
                             staging.data() + (r * file_cols + tensor.first_col) * bytes, stored, cols);
        const int64_t begin = std::max(first, share.first),
                      end = std::min(first + rows, share.first + share.count);
        const auto add = [&](int64_t row, int64_t count) {
            sums.add(staging.data() + ((row - first) * file_cols + tensor.first_col) * bytes, bytes,
                     tensor.first_row + row, tensor.first_col, count, cols);
        };
        if (cols == file_cols && begin < end) add(begin, end - begin);
        if (cols != file_cols)
            for (int64_t row = begin; row < end; ++row) add(row, 1);
    }
}

/// Sums of the blocks of all arrays as the file has them; their block sizes are those of the file.
struct FileSums {
    std::vector<BlockSums> own;               // to be filled
    std::vector<std::vector<uint64_t>> file;  // to be compared with
};

FileSums read_sums(const hdf5::File& file, const std::vector<CheckpointTensor>& tensors) {
    FileSums all;
    for (const CheckpointTensor& tensor : tensors) {
        const hdf5::Dataset sums = file.dataset(checksum_path(tensor.path));
        const int64_t block_rows = sums.int_attribute(block_rows_attribute);
        if (block_rows < 1 || sums.shape() != Shape{div_ceil(tensor.shape.rows(), block_rows)})
            throw ConfigError("{}: the checksums of {} do not fit it", file.file(), tensor.path);
        all.own.emplace_back(tensor.shape, block_rows);
        all.file.push_back(sums.read_all<uint64_t>());
    }
    return all;
}

/// The first block whose sum differs, in words, or "".
std::string compare(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                    const FileSums& sums, const std::vector<uint64_t>& read) {
    size_t next = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
        for (size_t block = 0; block < sums.file[i].size(); ++block) {
            if (read[next++] == sums.file[i][block]) continue;
            const int64_t first = int64_t(block) * sums.own[i].block_rows();
            return fmt::format("{} is damaged: rows {} to {} of {} do not match their checksum", path, first,
                               std::min(first + sums.own[i].block_rows(), tensors[i].shape.rows()) - 1,
                               tensors[i].path);
        }
    }
    return "";
}

/// What came of an attempt: the record, or what is wrong with the file's bytes. The same on all ranks.
struct Attempt {
    std::string damage;
    TrainRecord train;
};

Attempt attempt_load(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                     const Communicator& ranks) {
    Attempt attempt;
    if (ranks.rank() == 0) {
        try {
            read_checkpoint_header(path);
        } catch (const ConfigError& error) {
            attempt.damage = error.what();
        }
    }
    attempt.damage = broadcast_text(ranks, attempt.damage);
    if (!attempt.damage.empty()) return attempt;

    FileSums sums;
    std::vector<uint64_t> read;
    together(ranks, [&] {
        const CheckpointHeader header = read_checkpoint_header(path);
        check_model(path, header, tensors);
        const hdf5::File file = hdf5::File::open(path);
        sums = read_sums(file, tensors);
        for (size_t i = 0; i < tensors.size(); ++i) {
            read_part(file.dataset(tensors[i].path), tensors[i], share_of(tensors[i], i), sums.own[i]);
            read.insert(read.end(), sums.own[i].sums().begin(), sums.own[i].sums().end());
        }
        attempt.train = header.train;
    });
    attempt.damage = compare(path, tensors, sums, sum_over_ranks(read, ranks));
    return attempt;
}

}  // namespace

TrainRecord load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                            const Communicator& ranks) {
    const Attempt attempt = attempt_load(path, tensors, ranks);
    if (!attempt.damage.empty()) throw ConfigError("{}", attempt.damage);
    return attempt.train;
}

std::optional<Checkpoint::Loaded> Checkpoint::load_newest(
    const std::vector<CheckpointTensor>& tensors) const {
    // rank 0 says what there is: on a network file system others may see it later
    std::string listed;
    if (ranks_.rank() == 0)
        for (const StepFile& file : list_checkpoints(folder_)) listed = file.path + '\n' + listed;
    listed = broadcast_text(ranks_, listed);
    std::string damage;
    for (size_t begin = 0; begin < listed.size();) {
        const size_t end = listed.find('\n', begin);
        const std::string path = listed.substr(begin, end - begin);
        begin = end + 1;
        const Attempt attempt = attempt_load(path, tensors, ranks_);
        if (attempt.damage.empty()) return Loaded{path, attempt.train};
        if (ranks_.rank() == 0) log::warn("passed over: {}", attempt.damage);
        damage = attempt.damage;
    }
    if (!damage.empty())
        throw ConfigError(
            "no checkpoint in {} is sound (the last one tried: {}); move them away to start afresh", folder_,
            damage);
    return std::nullopt;
}

Checkpoint::Loaded Checkpoint::load_step(int64_t step, const std::vector<CheckpointTensor>& tensors) const {
    const std::string path = (fs::path(folder_) / step_file_name(step)).string();
    on_first_rank(ranks_, [&] {
        std::error_code status;
        if (fs::exists(path, status)) return;
        std::vector<std::string> steps;
        for (const StepFile& file : list_checkpoints(folder_)) steps.push_back(std::to_string(file.step));
        throw ConfigError("checkpoint.load_step = {}: there is no checkpoint of step {} in {}; there are: {}",
                          step, step, folder_, steps.empty() ? "none" : join(steps, ", "));
    });
    return {path, load_checkpoint(path, tensors, ranks_)};
}

}  // namespace coeus
