// SPDX-License-Identifier: Apache-2.0
// Synchronous saving.
#include "checkpoint_file.hpp"
#include "checkpoint_parts.hpp"
#include "coeus/base/clock.hpp"
#include "coeus/comm/together.hpp"

namespace coeus {

using namespace checkpoint_format;

CheckpointStore::Saved CheckpointStore::write(const std::string& path, const TrainRecord& train,
                                              const std::vector<CheckpointTensor>& tensors,
                                              std::optional<Dtype> dtype) const {
    std::optional<CheckpointFile> file;
    double own_seconds = 0;
    try {
        on_first_rank(ranks_, [&] {
            folder_.writer().require_owned();
            folder_.remove_unfinished();
        });
        file.emplace(path, train, tensors, dtype, ranks_, num_part_files_, folder_.writer());
        together(ranks_, [&] {
            const Timer timer;
            file->write(tensors);
            own_seconds = timer.seconds();
        });
        file->publish();
    } catch (const std::exception& error) {
        if (file && ranks_.rank() == 0) file->discard();
        throw_not_saved(path, error, folder_, ranks_);
    }
    return {path, file->bytes(), own_seconds};
}

CheckpointStore::Saved CheckpointStore::save(const TrainRecord& train,
                                             const std::vector<CheckpointTensor>& tensors) const {
    Saved done = write(folder_.path_of(train.step), train, tensors, std::nullopt);
    if (ranks_.rank() != 0) return done;
    if (const std::string failures = remove_all(folder_.retire(train.step)); !failures.empty())
        log::warn("{}", failures);
    return done;
}

CheckpointStore::Saved CheckpointStore::export_model(const TrainRecord& train,
                                                     const std::vector<CheckpointTensor>& tensors,
                                                     Dtype dtype) const {
    std::vector<CheckpointTensor> weights;
    for (const CheckpointTensor& tensor : tensors)
        if (tensor.path.starts_with("model/")) weights.push_back(tensor);
    Saved done = write(folder_.model_path_of(train.step), train, weights, dtype);
    if (ranks_.rank() == 0) remove_all(unlinked_parts(folder_.path()));
    return done;
}

}  // namespace coeus
