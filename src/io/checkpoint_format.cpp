// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_format.hpp"

#include "coeus/device/host_rows.hpp"
#include "coeus/state/parameters.hpp"

#include <algorithm>

namespace coeus {

namespace checkpoint_format {

bool checksums_fit(const Shape& array, const Shape& checksums, int64_t block_rows) {
    if (block_rows < 1) return false;
    const int64_t rows = array.rows(), in_a_block = std::min(block_rows, std::max(rows, int64_t(1)));
    return checksums == Shape{div_ceil(rows, in_a_block)};
}

std::vector<std::filesystem::path> entries_of(const std::string& folder, std::error_code& status) {
    std::vector<std::filesystem::path> all;
    // the iterator of a range-based loop would throw at its second error
    for (std::filesystem::directory_iterator at(folder, status), end; !status && at != end;
         at.increment(status))
        all.push_back(at->path());
    return all;
}

std::string step_file_name(int64_t step) {
    return fmt::format("step-{:08}.h5", step);
}

std::string model_file_name(int64_t step) {
    return fmt::format("model-{:08}.h5", step);
}

std::optional<Dtype> tensor_type(hdf5::Type type) {
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32, Dtype::u8})
        if (hdf5::type_of(dtype) == type) return dtype;
    return std::nullopt;
}

void for_each_host_rows(const CheckpointTensor& tensor, Rows share,
                        FunctionRef<void(Tensor rows, int64_t first_row)> each) {
    if (share.count == 0) return;
    read_rows(*tensor.device, tensor.local.slice_rows(share.first, share.count),
              [&](Tensor rows, int64_t first) { each(rows, tensor.first_row + share.first + first); });
}

Rows share_of(const CheckpointTensor& tensor, size_t number) {
    if (!tensor.local) return {0, 0};
    const int64_t rows = tensor.local.rows();
    constexpr int64_t worth_sharing = 1 << 20;
    if (tensor.local.bytes() < worth_sharing)
        return {0, int(number % size_t(tensor.replicas)) == tensor.replica ? rows : 0};
    const int64_t each = div_ceil(rows, tensor.replicas);
    const int64_t first = std::min(rows, tensor.replica * each);
    return {first, std::min(each, rows - first)};
}

}  // namespace checkpoint_format

namespace {

// This rank's part of a tensor of a parameter, of which `rows` are the storage's.
void describe(CheckpointTensor& tensor, const Storage& storage, const Param& param, Tensor rows,
              const ShardPlace& place, const Communicator& replicas) {
    const Storage::Piece piece = storage.owned(param, rows);
    tensor.local = piece.rows;
    tensor.first_row = piece.first_row;
    tensor.first_col = piece.first_col;
    // every tensor-parallel rank has all of what they do not divide
    const bool divided = param.shard.tp == Split::rows || param.shard.tp == Split::cols;
    const int on_tp = divided ? 1 : place.tp, number = divided ? 0 : place.tp_rank;
    tensor.replica = (replicas.rank() * param.copies + param.copy) * on_tp + number;
    tensor.replicas = replicas.size() * param.copies * on_tp;
}

// The names of all that is kept of any parameter, in the order in which they first come.
std::vector<std::string> moment_names(const Parameters& parameters) {
    std::vector<std::string> names;
    for (const Storage* storage : parameters.model())
        for (const Moment& moment : storage->kept())
            if (std::find(names.begin(), names.end(), moment.name) == names.end())
                names.push_back(moment.name);
    return names;
}

}  // namespace

std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, const Communicator& replicas,
                                                 bool optimizer) {
    std::vector<CheckpointTensor> all;
    const auto add = [&](const std::string& group, const Storage& storage, Tensor rows, Dtype dtype,
                         const Device& device) {
        for (const Param& param : storage.params()) {
            CheckpointTensor& tensor = all.emplace_back();
            tensor.path = group + param.name;
            tensor.device = &device;
            tensor.shape = param.shape;
            if (rows)
                describe(tensor, storage, param, rows, parameters.place(), replicas);
            else  // another pipeline rank's
                tensor.local =
                    Tensor(nullptr, dtype, param.shape.rank == 1 ? Shape{0} : Shape{0, param.shape.cols()});
        }
    };
    for (const Storage* storage : parameters.model())
        add("model/", *storage, storage->master, parameters.types().master, parameters.master_device());
    if (!optimizer) return all;
    for (const std::string& name : moment_names(parameters))
        for (const Storage* storage : parameters.model())
            for (size_t i = 0; i < storage->kept().size(); ++i)
                if (const Moment& moment = storage->kept()[i]; moment.name == name)
                    add("optimizer/" + name + "/", *storage, storage->moments[i], moment.dtype,
                        parameters.moments_device());
    return all;
}

}  // namespace coeus
