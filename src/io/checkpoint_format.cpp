// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_format.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/device/host_rows.hpp"
#include "coeus/state/parameters.hpp"
#include "coeus/state/replica.hpp"

#include <algorithm>

namespace coeus {

namespace checkpoint_format {

bool checksums_fit(const Shape& array, const Shape& checksums, int64_t block_rows) {
    if (block_rows < 1) return false;
    const int64_t rows = array.rows(), in_a_block = std::min(block_rows, std::max(rows, int64_t(1)));
    return checksums == Shape{div_ceil(rows, in_a_block)};
}

std::vector<std::filesystem::path> entries_of(const std::string& folder, std::error_code& status) {
    return entries_patiently(folder, status);
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

void for_each_block(const CheckpointTensor& tensor, Rows share, FunctionRef<void(const HeldBlock&)> each) {
    int64_t before = 0;  // rows of the blocks before this one
    for (const HeldBlock& block : tensor.blocks) {
        const int64_t rows = block.local.rows(), begin = std::max<int64_t>(0, share.first - before),
                      end = std::min(rows, share.first + share.count - before);
        if (begin < end)
            each({block.local.slice_rows(begin, end - begin), block.first_row + begin, block.first_col});
        before += rows;
    }
}

void for_each_host_block(const CheckpointTensor& tensor, Rows share,
                         FunctionRef<void(const HeldBlock&)> each) {
    for_each_block(tensor, share, [&](const HeldBlock& block) {
        read_rows(*tensor.device, block.local, [&](Tensor rows, int64_t first) {
            each({rows, block.first_row + first, block.first_col});
        });
    });
}

Rows share_of(const CheckpointTensor& tensor, size_t number) {
    const int64_t rows = tensor.rows();
    constexpr int64_t worth_sharing = 1 << 20;
    if (tensor.count() * size_of(tensor.dtype) < worth_sharing)
        return {0, int(number % size_t(tensor.replicas)) == tensor.replica ? rows : 0};
    const int64_t each = div_ceil(rows, tensor.replicas);
    const int64_t first = std::min(rows, tensor.replica * each);
    return {first, std::min(each, rows - first)};
}

}  // namespace checkpoint_format

namespace {

// The names of all moments of all parameters, in the order in which they first occur.
std::vector<std::string> moment_names(const Parameters& parameters) {
    std::vector<std::string> names;
    for (const Storage* storage : parameters.model())
        for (const Moment& moment : storage->kept())
            if (std::find(names.begin(), names.end(), moment.name) == names.end())
                names.push_back(moment.name);
    return names;
}

}  // namespace

int64_t CheckpointTensor::rows() const {
    int64_t rows = 0;
    for (const HeldBlock& block : blocks) rows += block.local.rows();
    return rows;
}

int64_t CheckpointTensor::count() const {
    return blocks.empty() ? 0 : rows() * blocks.front().local.cols();
}

std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, bool optimizer) {
    std::vector<CheckpointTensor> all;
    const auto add = [&](const std::string& group, const Storage& storage, Tensor rows, Dtype dtype,
                         const Device& device) {
        for (const Param& param : storage.params()) {
            const Replica replica = replica_of(param, storage.place());
            all.push_back({.path = group + param.name,
                           .shape = param.shape,
                           .dtype = dtype,
                           .blocks = blocks_of(storage, param, rows),
                           .replica = replica.number,
                           .replicas = replica.count,
                           .device = &device,
                           .is_exact = param.is_exact});
        }
    };
    for (const Storage* storage : parameters.model())
        add("model/", *storage, storage->master, storage->master_type(), parameters.master_device(*storage));
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
