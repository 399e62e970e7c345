// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_file.hpp"

#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"

#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

Dtype stored_type(const CheckpointTensor& tensor, std::optional<Dtype> dtype) {
    return dtype.value_or(tensor.local.dtype);
}

void make_folder(const std::string& folder) {
    std::error_code status;
    fs::create_directories(folder, status);
    if (status) throw SystemError(fmt::format("{} cannot be made: {}", folder, status.message()));
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
    // most files do without, as those of earlier versions
    if (train.schedule_step.value_or(train.step) != train.step)
        group.set_attribute("schedule_step", *train.schedule_step);
    if (train.optimizer_step.value_or(train.step) != train.step)
        group.set_attribute("optimizer_step", *train.optimizer_step);
    group.set_attribute("deck", train.deck);
    group.set_attribute("version", train.version);
    group.set_attribute("model", train.model);
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

}  // namespace

CheckpointFile::CheckpointFile(std::string path, const TrainRecord& train,
                               const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype,
                               const Communicator& ranks)
    : path_(std::move(path)), part_(path_ + ".part"), ranks_(ranks), places_(tensors.size()) {
    for (const CheckpointTensor& tensor : tensors) {
        types_.push_back(stored_type(tensor, dtype));
        shapes_.push_back(tensor.shape);
        bytes_ += tensor.shape.count() * size_of(types_.back());
        sums_.emplace_back(tensor.shape, checksum_block_rows(tensor.shape));
    }
    on_first_rank(ranks_, [&] {
        const fs::path folder = fs::absolute(path_).parent_path();
        make_folder(folder.string());
        try {
            check_space(folder.string(), part_, tensors, dtype);
            places_ = lay_out(train, tensors);
        } catch (...) {
            discard();
            throw;
        }
    });
    ranks_.broadcast(Tensor(places_.data(), Dtype::i64, {int64_t(places_.size()) * 2}), 0);
}

std::vector<CheckpointFile::Place> CheckpointFile::lay_out(
    const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) const {
    hdf5::File file = hdf5::File::create(part_);
    write_train_record(file, train);
    std::vector<Place> places;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto array = file.create_dataset(tensors[i].path, hdf5::type_of(types_[i]), shapes_[i]);
        auto checksums =
            file.create_dataset(checksum_path(tensors[i].path), hdf5::Type::u64, {sums_[i].size()});
        checksums.set_attribute(block_rows_attribute, sums_[i].block_rows());
        places.push_back({array.offset().value_or(-1), checksums.offset().value_or(-1)});
    }
    file.close();
    RawFile raw = RawFile::open_for_update(part_);
    raw.reserve(raw.size());
    return places;
}

void CheckpointFile::write(size_t array, Tensor rows, int64_t first_row, int64_t first_col) {
    if (!file_) file_ = RawFile::open_for_update(part_);
    const int64_t bytes = size_of(types_[array]), cols = rows.cols(),
                  row_bytes = shapes_[array].cols() * bytes, place = places_[array].elements;
    const int64_t step = rows_at_a_time(cols * bytes);
    for (int64_t done = 0; done < rows.rows(); done += step) {
        const int64_t count = std::min(step, rows.rows() - done), row = first_row + done;
        const std::byte* from = dense_rows(rows.slice_rows(done, count), types_[array], staging_);
        sums_[array].add(from, bytes, row, first_col, count, cols);
        if (cols == shapes_[array].cols()) {
            file_->write(from, count * row_bytes, place + row * row_bytes);
        } else {
            for (int64_t r = 0; r < count; ++r)
                file_->write(from + r * cols * bytes, cols * bytes,
                             place + (row + r) * row_bytes + first_col * bytes);
        }
    }
}

void CheckpointFile::write(const std::vector<CheckpointTensor>& tensors) {
    file_.reset();
    for (size_t i = 0; i < tensors.size(); ++i) {
        sums_[i] = BlockSums(shapes_[i], checksum_block_rows(shapes_[i]));
        if (const Rows share = share_of(tensors[i], i); share.count > 0)
            write(i, tensors[i].local.slice_rows(share.first, share.count),
                  tensors[i].first_row + share.first, tensors[i].first_col);
    }
    sync();
}

void CheckpointFile::sync() {
    if (file_) file_->sync();
    file_.reset();
}

void CheckpointFile::publish() {
    std::vector<uint64_t> sums;
    for (const BlockSums& of_array : sums_)
        sums.insert(sums.end(), of_array.sums().begin(), of_array.sums().end());
    sums = sum_over_ranks(sums, ranks_);
    on_first_rank(ranks_, [&] {
        RawFile file = RawFile::open_for_update(part_);
        const uint64_t* next = sums.data();
        for (size_t i = 0; i < places_.size(); next += sums_[i].size(), ++i)
            file.write(next, sums_[i].size() * int64_t(sizeof(uint64_t)), places_[i].checksums);
        file.sync();
        publish_file(part_, path_);
    });
}

void CheckpointFile::discard() const {
    std::error_code ignored;
    fs::remove(part_, ignored);
}

}  // namespace coeus
