// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/async_checkpoint.hpp"

#include "checkpoint_file.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/named_range.hpp"

#include <source_location>

namespace coeus {

using namespace checkpoint_format;

namespace {

constexpr int most_attempts = 2;
constexpr int64_t alignment = 64;

int64_t place_bytes(const CheckpointTensor& tensor, size_t number) {
    int64_t elements = 0;
    for_each_block(tensor, share_of(tensor, number),
                   [&](const HeldBlock& block) { elements += block.local.count(); });
    return round_up(elements * size_of(tensor.dtype), alignment);
}

// This rank's shares of the tensors, one after the other in memory. Each copy is complete, without replicas.
std::vector<CheckpointTensor> lay_out_copies(const std::vector<CheckpointTensor>& tensors,
                                             std::byte* memory) {
    std::vector<CheckpointTensor> copies = tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
        copies[i].device = &host_device();
        copies[i].replica = 0;
        copies[i].replicas = 1;
        copies[i].blocks.clear();
        std::byte* at = memory;
        for_each_block(tensors[i], share_of(tensors[i], i), [&](const HeldBlock& block) {
            const Tensor copy(at, block.local.dtype, block.local.shape);
            copies[i].blocks.push_back({copy, block.first_row, block.first_col});
            at += copy.bytes();
        });
        memory += place_bytes(tensors[i], i);
    }
    return copies;
}

void copy_rows(Exec& exec, Tensor to, Tensor from) {
    if (from.dense()) return exec.queue->copy(to.data, from.data, from.bytes());
    for (int64_t r = 0; r < from.rows(); ++r) {
        const Tensor row = from.slice_rows(r, 1);
        exec.queue->copy(to.slice_rows(r, 1).data, row.data, row.bytes());
    }
}

}  // namespace

int64_t copied_bytes(const std::vector<CheckpointTensor>& tensors) {
    int64_t bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) bytes += place_bytes(tensors[i], i);
    return bytes;
}

AsyncCheckpoint::AsyncCheckpoint(const CheckpointStore& store, const Communicator& ranks,
                                 std::vector<CheckpointTensor> tensors, const Exec& computation)
    : store_(store),
      ranks_(ranks),
      tensors_(std::move(tensors)),
      memory_(copied_bytes(tensors_), "copies for checkpoints", computation.device->staging()),
      stream_(Stream::Mode::threaded, computation) {
    copies_ = lay_out_copies(tensors_, memory_.data());
}

AsyncCheckpoint::~AsyncCheckpoint() {
    copied_.forget();
    written_.forget();
    removed_.forget();
}

void AsyncCheckpoint::begin(const TrainRecord& train) {
    require(!file_, "a checkpoint begins while another one is being written");
    since_begin_.restart();
    waited_ = 0;
    wait_for_removal();
    train_ = train;
    attempts_ = 0;
    lay_out();
    copied_ = stream_.run([this] {
        const NamedRange range("copy_checkpoint");
        const Recorded recorded(OperationKind::patient, operation_name::copy_checkpoint,
                                std::source_location::current());
        for (size_t i = 0; i < tensors_.size(); ++i) {
            size_t number = 0;
            for_each_block(tensors_[i], share_of(tensors_[i], i), [&](const HeldBlock& block) {
                copy_rows(stream_.exec(), copies_[i].blocks[number++].local, block.local);
            });
        }
        stream_.exec().queue->finish();
    });
    write_beside();
    waited_ += since_begin_.seconds();
}

// Makes a new file for the next attempt. Nothing of an earlier attempt is reused: after a failed fsync, the
// system may take pages that it has dropped for written.
void AsyncCheckpoint::lay_out() {
    ++attempts_;
    file_.reset();
    const CheckpointFolder& folder = store_.folder();
    const std::string path = folder.path_of(train_.step);
    try {
        on_first_rank(ranks_, [&] {
            folder.writer().require_owned();
            folder.remove_unfinished();
        });
        file_ = std::make_unique<CheckpointFile>(path, train_, tensors_, std::nullopt, ranks_,
                                                 store_.num_part_files(), folder.writer());
    } catch (const std::exception& error) {
        throw_not_saved(path, error, store_.folder(), ranks_);
    }
}

void AsyncCheckpoint::write_beside() {
    state_ = State::running;
    written_ = stream_.run([this] {
        const NamedRange range("write_checkpoint");
        failure_ = nullptr;
        try {
            file_->write(copies_);
        } catch (...) {
            failure_ = std::current_exception();
        }
        state_ = failure_ ? State::failed : State::written;
    });
}

void AsyncCheckpoint::wait_for_copies() {
    const Timer timer;
    copied_.join();
    waited_ += timer.seconds();
}

std::optional<SavedCheckpoint> AsyncCheckpoint::poll() {
    if (!file_) return std::nullopt;
    const Timer timer;
    const bool running = ranks_.all_reduce(int64_t(state_ == State::running), Reduce::max) != 0;
    waited_ += timer.seconds();
    if (running) return std::nullopt;
    return conclude();
}

std::optional<SavedCheckpoint> AsyncCheckpoint::finish() {
    std::optional<SavedCheckpoint> finished;
    while (file_) {
        const Timer timer;
        written_.join();
        waited_ += timer.seconds();
        finished = conclude();
    }
    wait_for_removal();
    return finished;
}

void AsyncCheckpoint::wait_for_removal() {
    removed_.join();
    if (!not_removed_.empty()) log::warn("{}", not_removed_);
    not_removed_.clear();
}

// Every rank has written its part, or has failed to write it.
std::optional<SavedCheckpoint> AsyncCheckpoint::conclude() {
    const Timer timer;
    written_.join();
    try {
        together(ranks_, [&] {
            if (failure_) std::rethrow_exception(failure_);
        });
        file_->publish();
    } catch (const std::exception& error) {
        state_ = State::idle;
        const bool finite = dynamic_cast<const NotFiniteError*>(&error) == nullptr;
        if (finite && attempts_ < most_attempts) {
            if (ranks_.rank() == 0)
                log::warn("{} could not be written during training: {}; trying once more", file_->path(),
                          error.what());
            if (ranks_.rank() == 0) file_->discard();
            lay_out();
            write_beside();
            waited_ += timer.seconds();
            return std::nullopt;
        }
        const std::string path = file_->path();
        if (ranks_.rank() == 0) file_->discard();
        file_.reset();
        throw_not_saved(path, error, store_.folder(), ranks_);
    }
    std::vector<std::string> retired;
    if (ranks_.rank() == 0) retired = store_.folder().retire(train_.step);
    removed_ = stream_.run([this, retired = std::move(retired)] { not_removed_ = remove_all(retired); });
    const double waited = waited_ + timer.seconds();
    SavedCheckpoint finished = {train_.step, {file_->path(), file_->bytes()}, since_begin_.seconds(), waited};
    file_.reset();
    state_ = State::idle;
    return finished;
}

}  // namespace coeus
