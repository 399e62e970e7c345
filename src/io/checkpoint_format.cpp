// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_format.hpp"

#include "coeus/state/parameters.hpp"

#include <algorithm>

namespace coeus {

namespace checkpoint_format {

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

std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, const Communicator& replicas,
                                                 bool optimizer) {
    const ShardPlace& place = parameters.place();
    std::vector<CheckpointTensor> all;
    const auto add = [&](const char* group, Tensor Storage::*member) {
        for (const Storage& storage : parameters.storages()) {
            for (const Param& param : storage.params()) {
                const Storage::Piece piece = storage.owned(param, storage.*member);
                // every tensor-parallel rank has all of what they do not divide
                const bool divided = param.shard.tp == Split::rows || param.shard.tp == Split::cols;
                const int copies = divided ? 1 : place.tp, copy = divided ? 0 : place.tp_rank;
                all.push_back({.path = group + param.name,
                               .shape = param.shape,
                               .local = piece.rows,
                               .first_row = piece.first_row,
                               .first_col = piece.first_col,
                               .replica = replicas.rank() * copies + copy,
                               .replicas = replicas.size() * copies});
            }
        }
    };
    add("model/", &Storage::master);
    if (optimizer) {
        add("optimizer/exp_avg/", &Storage::exp_avg);
        add("optimizer/exp_avg_sq/", &Storage::exp_avg_sq);
    }
    return all;
}

}  // namespace coeus
