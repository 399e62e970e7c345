// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/convert_weights.hpp"

#include "checkpoint_file.hpp"
#include "checkpoint_parts.hpp"
#include "coeus/comm/together.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace coeus {

using namespace checkpoint_format;

int64_t ArraySource::rows_at_a_time(const Shape& shape) {
    return checksum_block_rows(shape);
}

int64_t ArraySource::bytes() const {
    int64_t all = 0;
    for (const Array& array : arrays) all += array.shape.count() * size_of(array.dtype);
    return all;
}

ArraySource arrays_of_checkpoint(const std::string& path, bool moments) {
    struct Open {
        hdf5::File file;
        std::vector<std::vector<uint64_t>> sums;
    };
    const CheckpointHeader header = read_checkpoint_header(path);
    const auto open = std::make_shared<Open>(Open{open_with_parts(path, header.parts.size()), {}});
    ArraySource source;
    for (const CheckpointHeader::Array& array : header.arrays) {
        if (!moments && !array.path.starts_with("model/")) continue;
        const std::optional<Dtype> dtype = tensor_type(array.type);
        if (!dtype)
            throw ConfigError("{}: {} has elements of type {}, which no model has", path, array.path,
                              hdf5::name_of(array.type));
        source.arrays.push_back({array.path, *dtype, array.shape});
        const hdf5::Dataset sums = open->file.dataset(checksum_path(array.path));
        const int64_t rows = checksum_block_rows(array.shape);
        if (sums.int_attribute(block_rows_attribute) != rows ||
            sums.shape().count() != div_ceil(array.shape.rows(), rows))
            throw ConfigError("{}: the checksums of {} do not fit it", path, array.path);
        open->sums.push_back(sums.read_all<uint64_t>());
    }
    source.read = [open, path, arrays = source.arrays](size_t number, Tensor rows, int64_t first_row) {
        const ArraySource::Array& array = arrays[number];
        const int64_t cols = array.shape.cols(), first = first_row * cols;
        open->file.dataset(array.path)
            .read_elements(rows.data, hdf5::type_of(array.dtype), first, rows.count());
        const int64_t block = first_row / checksum_block_rows(array.shape);
        if (checksum_of(rows.data, size_of(array.dtype), first, rows.count()) !=
            open->sums[number][size_t(block)])
            throw ConfigError("{} is damaged: rows {} to {} of {} do not match their checksum", path,
                              first_row, first_row + rows.rows() - 1, array.path);
    };
    return source;
}

ArraySource arrays_of_hub(const std::string& folder, const std::vector<std::string>& paths,
                          const std::vector<HubTensor>& tensors, const HubIgnores& ignores,
                          NotFinite infinite) {
    const auto weights = std::make_shared<HubWeights>(HubWeights::open(folder));
    check_hub_weights(*weights, tensors, ignores);
    ArraySource source;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<HubPlace>& places = tensors[i].places;
        const Dtype dtype = places.empty() ? Dtype::f32 : weights->elements(places.front()).dtype();
        source.arrays.push_back({paths[i], dtype, tensors[i].shape});
    }
    source.read = [weights, tensors, infinite, mapped = PassingPages()](size_t number, Tensor rows,
                                                                        int64_t first_row) mutable {
        HubTensor part = tensors[number];
        part.blocks = {{rows, first_row}};
        read_hub_tensor(*weights, part, infinite);
        if (mapped.should_release(rows.bytes())) weights->files().release();
    };
    return source;
}

namespace {

// Calls each(array, rows, first row) for all rows of this rank's arrays: rank r of R has the arrays r, r + R,
// ...
template <class Each>
void for_each_block(const ArraySource& source, const Communicator& ranks, const ConversionProgress& progress,
                    const Each& each) {
    std::vector<std::byte> memory;
    int64_t done = 0;
    for (size_t i = size_t(ranks.rank()); i < source.arrays.size(); i += size_t(ranks.size())) {
        const ArraySource::Array& array = source.arrays[i];
        const int64_t cols = array.shape.cols(), step = ArraySource::rows_at_a_time(array.shape);
        for (int64_t first = 0; first < array.shape.rows(); first += step) {
            const int64_t rows = std::min(step, array.shape.rows() - first);
            memory.resize(size_t(rows * cols * size_of(array.dtype)));
            const Tensor block(memory.data(), array.dtype, {rows, cols});
            source.read(i, block, first);
            each(i, block, first);
            done += block.bytes();
            if (progress) progress(done);
        }
    }
}

}  // namespace

void write_checkpoint(const std::string& path, const TrainRecord& train, const ArraySource& source,
                      std::optional<Dtype> dtype, const Communicator& ranks,
                      const ConversionProgress& progress) {
    std::vector<CheckpointTensor> tensors;
    for (const ArraySource::Array& array : source.arrays)
        tensors.push_back(
            {.path = array.path, .shape = array.shape, .dtype = array.dtype, .is_exact = array.is_exact});
    CheckpointFile file(path, train, tensors, dtype, ranks);
    try {
        together(ranks, [&] {
            for_each_block(source, ranks, progress,
                           [&](size_t i, Tensor rows, int64_t first) { file.write(i, rows, first, 0); });
            file.sync();
        });
        file.publish();
    } catch (...) {
        if (ranks.rank() == 0) file.discard();
        throw;
    }
}

void write_hub(HubWriter& writer, const ArraySource& source, const Communicator& ranks,
               const ConversionProgress& progress) {
    together(ranks, [&] {
        for_each_block(source, ranks, progress,
                       [&](size_t i, Tensor rows, int64_t first) { writer.write(i, rows, first, 0); });
    });
    writer.publish();
}

void write_hub(HubWriter& writer, const std::vector<CheckpointTensor>& tensors, const Communicator& ranks) {
    together(ranks, [&] {
        for (size_t i = 0; i < tensors.size(); ++i)
            for_each_host_block(tensors[i], share_of(tensors[i], i), [&](const HeldBlock& block) {
                writer.write(i, block.local, block.first_row, block.first_col);
            });
    });
    writer.publish();
}

}  // namespace coeus
