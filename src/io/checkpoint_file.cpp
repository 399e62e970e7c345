// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_file.hpp"

#include "checkpoint_parts.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/finite.hpp"
#include "coeus/io/checkpoint_room.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

Dtype stored_type(const CheckpointTensor& tensor, std::optional<Dtype> dtype) {
    const Dtype stored = dtype.value_or(tensor.dtype);
    return tensor.is_exact && size_of(stored) < size_of(Dtype::f32) ? Dtype::f32 : stored;
}

/// Throws if the disk, a quota or a limit has no room for a file. This must be found before HDF5 writes: HDF5
/// cannot close a file that it cannot write. Only the space for HDF5's metadata is reserved here. The space
/// for elements is reserved when the file is laid out, since reserved space takes a while to give back.
void check_space(const std::string& path, int64_t element_bytes, size_t arrays) {
    const int64_t headers = checkpoint_bytes(0, arrays), needed = checkpoint_bytes(element_bytes, arrays);
    const std::string folder = fs::absolute(path).parent_path().string();
    require_room(needed, folder, free_bytes(folder));
    RawFile file = RawFile::create(path);
    file.reserve(headers);
    file.resize(needed);
}

/// Adds the layout guard to a file that HDF5 has closed, and reserves its space; the ranges `later` are
/// written later. HDF5 has given back the space that check_space() had reserved.
void seal(const std::string& path, const std::vector<ByteRange>& later) {
    RawFile file = RawFile::open_for_update(path);
    append_layout_guard(file, later);
    file.reserve(file.size());
}

void write_train_record(hdf5::File& file, const TrainRecord& train) {
    file.set_attribute("format", format_name);
    file.set_attribute("format_version", format_version);
    hdf5::Group group = file.create_group("train");
    group.set_attribute("step", train.step);
    group.set_attribute("tokens_seen", train.tokens_seen);
    group.set_attribute("seed", train.seed);
    group.set_attribute("sample", train.sample);
    // only if needed: most files do not have these attributes, like files of earlier versions
    if (train.schedule_step.value_or(train.step) != train.step)
        group.set_attribute("schedule_step", *train.schedule_step);
    if (train.optimizer_step.value_or(train.step) != train.step)
        group.set_attribute("optimizer_step", *train.optimizer_step);
    if (!train.guards.empty()) group.set_attribute("guards", train.guards);
    if (train.validation_is_left) group.set_attribute("validation_is_left", int64_t(1));
    group.set_attribute("deck", train.deck);
    group.set_attribute("version", train.version);
    group.set_attribute("model", train.model);
}

/// 0: the elements are in the file itself.
int64_t part_files_for(int64_t wanted, size_t arrays) {
    const int64_t files = std::min(wanted, int64_t(arrays));
    return files > 1 ? files : 0;
}

/// The elements of these rows, adjacent and in the stored type: the tensor's own, or converted ones in
/// `staging`.
const std::byte* dense_rows(Tensor rows, Dtype stored, std::vector<std::byte>& staging) {
    if (rows.dense() && rows.dtype == stored) return static_cast<const std::byte*>(rows.data);
    staging.resize(size_t(rows.count() * size_of(stored)));
    for (int64_t r = 0; r < rows.rows(); ++r)
        convert_elements(staging.data() + r * rows.cols() * size_of(stored), stored,
                         rows.slice_rows(r, 1).data, rows.dtype, rows.cols());
    return staging.data();
}

/// Weights that are not finite are not saved: a run must be able to resume from every checkpoint.
void require_finite(const std::string& path, Tensor rows) {
    const std::string_view weights = "model/";
    if (path.starts_with(weights) && any_not_finite(rows))
        throw NotFiniteError(fmt::format("{} has elements that are not finite", path.substr(weights.size())));
}

}  // namespace

CheckpointFile::CheckpointFile(std::string path, const TrainRecord& train,
                               const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype,
                               const Communicator& ranks, int64_t num_part_files, CheckpointWriter writer)
    : writer_(std::move(writer)),
      path_(std::move(path)),
      unfinished_path_(path_ + (writer_.id.empty() ? "" : "." + writer_.id) + ".part"),
      num_part_files_(part_files_for(num_part_files, tensors.size())),
      ranks_(ranks),
      places_(tensors.size()) {
    for (const CheckpointTensor& tensor : tensors) {
        types_.push_back(stored_type(tensor, dtype));
        shapes_.push_back(tensor.shape);
        bytes_ += bytes_of(types_.size() - 1);
        sums_.emplace_back(tensor.shape, checksum_block_rows(tensor.shape));
    }
    on_first_rank(ranks_, [&] {
        make_folders_patiently(fs::absolute(path_).parent_path());
        try {
            if (num_part_files_ > 0) make_parts(train, tensors);
            make_file(train, tensors);
        } catch (...) {
            discard();
            throw;
        }
    });
    parts_folder_ = broadcast_text(ranks_, parts_folder_);
    ranks_.broadcast(Tensor(places_.data(), Dtype::i64, {int64_t(places_.size()) * 3}), 0);
    data_.resize(size_t(std::max<int64_t>(1, num_part_files_)));
}

int64_t CheckpointFile::bytes_of(size_t array) const {
    return shapes_[array].count() * size_of(types_[array]);
}

std::string CheckpointFile::data_path(int64_t file) const {
    return num_part_files_ > 0 ? (fs::path(parts_folder_) / part_name(file)).string() : unfinished_path_;
}

void CheckpointFile::make_parts(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) {
    parts_folder_ = make_parts_folder(path_);
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < tensors.size(); ++i) bytes.push_back(bytes_of(i));
    const std::vector<int64_t> part_of = spread(bytes, num_part_files_);
    for (int64_t number = 0; number < num_part_files_; ++number) {
        int64_t part_bytes = 0;
        for (size_t i = 0; i < tensors.size(); ++i) {
            places_[i].file = part_of[i];
            if (part_of[i] == number) part_bytes += bytes[i];
        }
        check_space(data_path(number), part_bytes, tensors.size());
        hdf5::File part = hdf5::File::create(data_path(number));
        write_part_record(part, number, train);
        add_arrays(part, number, tensors);
        part.close();
        seal(data_path(number), elements_in(number));
    }
}

void CheckpointFile::make_file(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) {
    check_space(unfinished_path_, num_part_files_ > 0 ? 0 : bytes_, tensors.size());
    hdf5::File file = hdf5::File::create(unfinished_path_);
    write_train_record(file, train);
    if (num_part_files_ > 0)
        link_arrays(file, tensors);
    else
        add_arrays(file, 0, tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
        auto checksums =
            file.create_dataset(checksum_path(tensors[i].path), hdf5::Type::u64, {sums_[i].size()});
        checksums.set_attribute(block_rows_attribute, sums_[i].block_rows());
        places_[i].checksums = checksums.offset().value_or(-1);
    }
    file.close();
    std::vector<ByteRange> later = num_part_files_ > 0 ? std::vector<ByteRange>{} : elements_in(0);
    for (size_t i = 0; i < tensors.size(); ++i)
        later.push_back({places_[i].checksums, sums_[i].size() * int64_t(sizeof(uint64_t))});
    seal(unfinished_path_, later);
}

// Adds the arrays that belong to this file of elements.
void CheckpointFile::add_arrays(hdf5::File& file, int64_t number,
                                const std::vector<CheckpointTensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
        if (places_[i].file == number)
            places_[i].elements = file.create_dataset(tensors[i].path, hdf5::type_of(types_[i]), shapes_[i])
                                      .offset()
                                      .value_or(-1);
}

void CheckpointFile::link_arrays(hdf5::File& file, const std::vector<CheckpointTensor>& tensors) const {
    write_parts_record(file, parts_folder_, num_part_files_);
    const fs::path folder = fs::path(parts_folder_).filename();
    for (size_t i = 0; i < tensors.size(); ++i)
        file.create_external_link(tensors[i].path, (folder / part_name(places_[i].file)).string(),
                                  "/" + tensors[i].path);
}

std::vector<ByteRange> CheckpointFile::elements_in(int64_t file) const {
    std::vector<ByteRange> ranges;
    for (size_t i = 0; i < places_.size(); ++i)
        if (places_[i].file == file) ranges.push_back({places_[i].elements, bytes_of(i)});
    return ranges;
}

void CheckpointFile::write(size_t array, Tensor rows, int64_t first_row, int64_t first_col) {
    std::optional<RawFile>& file = data_[size_t(places_[array].file)];
    if (!file) file = RawFile::open_for_update(data_path(places_[array].file));
    const int64_t bytes = size_of(types_[array]), cols = rows.cols(),
                  row_bytes = shapes_[array].cols() * bytes, place = places_[array].elements;
    const int64_t step = rows_at_a_time(cols * bytes);
    for (int64_t done = 0; done < rows.rows(); done += step) {
        const int64_t count = std::min(step, rows.rows() - done), row = first_row + done;
        const std::byte* from = dense_rows(rows.slice_rows(done, count), types_[array], staging_);
        sums_[array].add(from, bytes, row, first_col, count, cols);
        if (cols == shapes_[array].cols()) {
            file->write(from, count * row_bytes, place + row * row_bytes);
        } else {
            for (int64_t r = 0; r < count; ++r)
                file->write(from + r * cols * bytes, cols * bytes,
                            place + (row + r) * row_bytes + first_col * bytes);
        }
    }
}

void CheckpointFile::write(const std::vector<CheckpointTensor>& tensors) {
    for (std::optional<RawFile>& file : data_) file.reset();
    for (size_t i = 0; i < tensors.size(); ++i) {
        sums_[i] = BlockSums(shapes_[i], checksum_block_rows(shapes_[i]));
        for_each_host_block(tensors[i], share_of(tensors[i], i), [&](const HeldBlock& block) {
            require_finite(tensors[i].path, block.local);
            write(i, block.local, block.first_row, block.first_col);
        });
    }
    sync();
}

void CheckpointFile::sync() {
    for (std::optional<RawFile>& file : data_) {
        if (file) file->sync();
        file.reset();
    }
}

void CheckpointFile::publish() {
    std::vector<uint64_t> sums;
    for (const BlockSums& of_array : sums_)
        sums.insert(sums.end(), of_array.sums().begin(), of_array.sums().end());
    sums = sum_over_ranks(sums, ranks_);
    on_first_rank(ranks_, [&] {
        RawFile file = RawFile::open_for_update(unfinished_path_);
        const uint64_t* next = sums.data();
        for (size_t i = 0; i < places_.size(); next += sums_[i].size(), ++i)
            file.write(next, sums_[i].size() * int64_t(sizeof(uint64_t)), places_[i].checksums);
        file.sync();
        sync_parts();
        writer_.require_owned();
        publish_file(unfinished_path_, path_);
    });
}

// Syncs what HDF5 wrote to the parts on rank 0, and the names of the parts, before a file links to them.
void CheckpointFile::sync_parts() const {
    if (num_part_files_ == 0) return;
    for (int64_t number = 0; number < num_part_files_; ++number)
        RawFile::open_for_update(data_path(number)).sync();
    sync_folder(parts_folder_);
    sync_folder(fs::absolute(path_).parent_path().string());
}

void CheckpointFile::discard() const {
    std::error_code ignored;
    // if the rename succeeded but could not be synced, a complete checkpoint uses these parts
    if (!parts_folder_.empty() && !is_linked(parts_folder_)) fs::remove_all(parts_folder_, ignored);
    fs::remove(unfinished_path_, ignored);
}

void throw_not_saved(const std::string& path, const std::exception& reason, const CheckpointFolder& folder,
                     const Communicator& ranks) {
    // if another run has taken the folder and removed the unfinished file, report that as the cause
    std::string lost;
    if (ranks.rank() == 0) try {
            folder.writer().require_owned();
        } catch (const SystemError& error) {
            lost = error.what();
        }
    lost = broadcast_text(ranks, lost);
    if (!lost.empty()) throw CollectiveError(lost);
    std::string standing;
    if (ranks.rank() == 0)
        standing = folder.newest_text("the newest good checkpoint is ", "there is no earlier checkpoint");
    standing = broadcast_text(ranks, standing);
    const std::string text = fmt::format("{} is not saved: {}; {}", path, reason.what(), standing);
    if (dynamic_cast<const NotFiniteError*>(&reason))
        throw NotFiniteError(text +
                             ". Usual remedies: a lower optimizer.lr, a longer lr_scheduler.warmup_steps");
    if (dynamic_cast<const ConfigError*>(&reason)) throw ConfigError("{}", text);
    throw CollectiveError(text);
}

}  // namespace coeus
