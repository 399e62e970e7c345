// SPDX-License-Identifier: Apache-2.0
// Saving. Rank 0 lets HDF5 make the file with all its arrays (contiguous, allocated, unwritten) and tells the
// others where each begins; then every rank writes its rows at their places. That needs no MPI inside HDF5,
// and with many arrays of a few MB it is 2 to 5 times as fast as collective HDF5 writes on a local disk.
#include "checkpoint_format.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/raw_file.hpp"

#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

/// Places in the file: of the elements and of the checksums; -1 for an array without elements.
struct Place {
    int64_t elements = -1, checksums = -1;
};
static_assert(sizeof(Place) == 16);

Dtype stored_type(const CheckpointTensor& tensor, std::optional<Dtype> dtype) {
    return dtype.value_or(tensor.local.dtype);
}

void make_folder(const std::string& folder) {
    std::error_code status;
    fs::create_directories(folder, status);
    if (status) throw SystemError(fmt::format("{} cannot be made: {}", folder, status.message()));
}

/// What a killed run left behind.
void remove_unfinished(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().string().ends_with(".h5.part")) fs::remove(entry.path(), ignored);
}

/// Throws where the disk, a quota or a limit has no room for the file. HDF5 must not be the one to find out:
/// it cannot close a file that it cannot write.
void check_space(const std::string& folder, const std::string& part,
                 const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype) {
    int64_t needed = 1 << 20;
    for (const CheckpointTensor& tensor : tensors)
        needed += tensor.shape.count() * size_of(stored_type(tensor, dtype)) + (16 << 10);
    if (const int64_t there = free_bytes(folder); there < needed)
        throw SystemError(fmt::format("{} needed in {}, where {} are free", bytes_text(double(needed)),
                                      folder, bytes_text(double(there))));
    RawFile::create(part).reserve(needed);
}

void write_train_record(hdf5::File& file, const TrainRecord& train) {
    file.set_attribute("format", format_name);
    file.set_attribute("format_version", format_version);
    hdf5::Group group = file.create_group("train");
    group.set_attribute("step", train.step);
    group.set_attribute("tokens_seen", train.tokens_seen);
    group.set_attribute("seed", train.seed);
    group.set_attribute("sample", train.sample);
    group.set_attribute("deck", train.deck);
    group.set_attribute("version", train.version);
    group.set_attribute("model", train.model);
}

/// Makes the file with everything but elements and checksums.
std::vector<Place> lay_out(const std::string& part, const TrainRecord& train,
                           const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype) {
    hdf5::File file = hdf5::File::create(part);
    write_train_record(file, train);
    std::vector<Place> places;
    for (const CheckpointTensor& tensor : tensors) {
        const auto array =
            file.create_dataset(tensor.path, hdf5::type_of(stored_type(tensor, dtype)), tensor.shape);
        const BlockSums sums(tensor.shape, checksum_block_rows(tensor.shape));
        auto checksums = file.create_dataset(checksum_path(tensor.path), hdf5::Type::u64, {sums.size()});
        checksums.set_attribute(block_rows_attribute, sums.block_rows());
        places.push_back({array.offset().value_or(-1), checksums.offset().value_or(-1)});
    }
    file.close();
    RawFile raw = RawFile::open_for_update(part);
    raw.reserve(raw.size());
    return places;
}

/// Adjacent elements of these rows in the stored type: the tensor's own, or converted ones in `staging`.
const std::byte* dense_rows(Tensor rows, Dtype stored, std::vector<std::byte>& staging) {
    if (rows.dense() && rows.dtype == stored) return static_cast<const std::byte*>(rows.data);
    staging.resize(size_t(rows.count() * size_of(stored)));
    for (int64_t r = 0; r < rows.rows(); ++r)
        convert_elements(staging.data() + r * rows.cols() * size_of(stored), stored,
                         rows.slice_rows(r, 1).data, rows.dtype, rows.cols());
    return staging.data();
}

void write_share(RawFile& file, const CheckpointTensor& tensor, Rows share, Dtype stored, int64_t place,
                 BlockSums& sums) {
    const int64_t bytes = size_of(stored), cols = tensor.local.cols(),
                  row_bytes = tensor.shape.cols() * bytes;
    const int64_t step = rows_at_a_time(cols * bytes);
    std::vector<std::byte> staging;
    for (int64_t first = share.first; first < share.first + share.count; first += step) {
        const int64_t rows = std::min(step, share.first + share.count - first);
        const std::byte* from = dense_rows(tensor.local.slice_rows(first, rows), stored, staging);
        const int64_t row = tensor.first_row + first;
        sums.add(from, bytes, row, tensor.first_col, rows, cols);
        if (cols == tensor.shape.cols()) {
            file.write(from, rows * row_bytes, place + row * row_bytes);
        } else {
            for (int64_t r = 0; r < rows; ++r)
                file.write(from + r * cols * bytes, cols * bytes,
                           place + (row + r) * row_bytes + tensor.first_col * bytes);
        }
    }
}

/// Files of later steps are of a branch that was left by checkpoint.load_step, or damaged: renamed, so that a
/// resume takes this branch.
void set_aside_later(const std::string& folder, int64_t step) {
    for (const StepFile& file : list_checkpoints(folder)) {
        if (file.step <= step) continue;
        std::error_code status;
        fs::rename(file.path, file.path + ".abandoned", status);
        log::warn("{} is of a later step than the one saved now: {}", file.path,
                  status ? "it cannot be renamed: " + status.message() : "renamed to *.abandoned");
    }
}

void remove_old(const std::string& folder, int64_t keep_latest) {
    if (keep_latest <= 0) return;
    const std::vector<StepFile> all = list_checkpoints(folder);
    for (int64_t i = 0; i < int64_t(all.size()) - keep_latest; ++i) {
        std::error_code status;
        fs::remove(all[size_t(i)].path, status);
        if (status) log::warn("{} cannot be removed: {}", all[size_t(i)].path, status.message());
    }
}

}  // namespace

std::string Checkpoint::write(const std::string& name, const TrainRecord& train,
                              const std::vector<CheckpointTensor>& tensors,
                              std::optional<Dtype> dtype) const {
    std::string path = (fs::path(folder_) / name).string();
    const std::string part = path + ".part";
    try {
        std::vector<Place> places(tensors.size());
        on_first_rank(ranks_, [&] {
            make_folder(folder_);
            remove_unfinished(folder_);
            check_space(folder_, part, tensors, dtype);
            places = lay_out(part, train, tensors, dtype);
        });
        ranks_.broadcast(Tensor(places.data(), Dtype::i64, {int64_t(places.size()) * 2}), 0);

        std::vector<uint64_t> sums;
        together(ranks_, [&] {
            RawFile file = RawFile::open_for_update(part);
            for (size_t i = 0; i < tensors.size(); ++i) {
                BlockSums own(tensors[i].shape, checksum_block_rows(tensors[i].shape));
                write_share(file, tensors[i], share_of(tensors[i], i), stored_type(tensors[i], dtype),
                            places[i].elements, own);
                sums.insert(sums.end(), own.sums().begin(), own.sums().end());
            }
            file.sync();
        });
        sums = sum_over_ranks(sums, ranks_);

        on_first_rank(ranks_, [&] {
            RawFile file = RawFile::open_for_update(part);
            const uint64_t* next = sums.data();
            for (size_t i = 0; i < tensors.size(); ++i) {
                const int64_t count =
                    BlockSums(tensors[i].shape, checksum_block_rows(tensors[i].shape)).size();
                file.write(next, count * 8, places[i].checksums);
                next += count;
            }
            file.sync();
            publish_file(part, path);
        });
    } catch (const std::exception& error) {
        std::string standing;
        if (ranks_.rank() == 0) {
            std::error_code ignored;
            fs::remove(part, ignored);
            const std::vector<StepFile> all = list_checkpoints(folder_);
            if (!all.empty()) standing = all.back().path;
        }
        standing = broadcast_text(ranks_, standing);
        throw CollectiveError(fmt::format("{} is not saved: {}; {}", path, error.what(),
                                          standing.empty() ? "there is no earlier checkpoint"
                                                           : "the newest good checkpoint is " + standing));
    }
    return path;
}

std::string Checkpoint::save(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) const {
    std::string path = write(step_file_name(train.step), train, tensors, std::nullopt);
    if (ranks_.rank() == 0) {
        set_aside_later(folder_, train.step);
        remove_old(folder_, keep_latest_);
    }
    return path;
}

std::string Checkpoint::export_model(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors,
                                     Dtype dtype) const {
    std::vector<CheckpointTensor> weights;
    for (const CheckpointTensor& tensor : tensors)
        if (tensor.path.starts_with("model/")) weights.push_back(tensor);
    return write(model_file_name(train.step), train, weights, dtype);
}

}  // namespace coeus
