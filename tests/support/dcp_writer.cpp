// SPDX-License-Identifier: Apache-2.0
#include "support/dcp_writer.hpp"

#include <fstream>
#include <map>

namespace coeus::test {

using namespace pickled;
namespace fs = std::filesystem;

namespace {

const std::string classes = "torch.distributed.checkpoint.metadata";

Code numbers(const std::vector<int64_t>& values) {
    std::vector<Code> all;
    for (const int64_t value : values) all.push_back(integer(value));
    return tuple(all);
}
Code instance_of(const std::string& name, const std::vector<std::pair<Code, Code>>& fields) {
    return instance(global(classes, name), dict(fields));
}

void write_file(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
}

/// The stream of a part, in float32, filled with dcp_value().
std::string stream(const DcpMade& tensor, const DcpPart& part) {
    const bool matrix = part.sizes.size() > 1;
    const std::vector<int64_t> strides = !part.strides.empty() ? part.strides
                                         : matrix              ? std::vector<int64_t>{part.sizes[1], 1}
                                                               : std::vector<int64_t>(part.sizes.size(), 1);
    const std::vector<int64_t>& sizes = part.stored_sizes.empty() ? part.sizes : part.stored_sizes;
    const int64_t rows = part.sizes.empty() ? 1 : part.sizes[0], cols = matrix ? part.sizes[1] : 1;
    std::vector<float> elements(size_t(rows * cols));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
            elements[size_t((strides.empty() ? 0 : r * strides[0]) + (matrix ? c * strides[1] : 0))] =
                float(dcp_value(tensor.shape, (part.offsets.empty() ? 0 : part.offsets[0]) + r,
                                (matrix ? part.offsets[1] : 0) + c));
    const Code storage = persistent(tuple(
        {text("storage"), global("torch", part.storage), text("0"), text("cpu"), integer(rows * cols)}));
    return stored_zip(
        {{"archive/data.pkl",
          pickle(call(global("torch._utils", "_rebuild_tensor_v2"),
                      tuple({storage, integer(0), numbers(sizes), numbers(strides), boolean(false)})))},
         {"archive/byteorder", "little"},
         {"archive/data/0",
          {reinterpret_cast<const char*>(elements.data()),
           elements.size() * sizeof(float) - part.missing_bytes}}});
}

}  // namespace

double dcp_value(const std::vector<int64_t>& shape, int64_t row, int64_t col) {
    return double(row * (shape.size() > 1 ? shape[1] : 1) + col) + 0.5;
}

pickled::Code dcp_size(const std::vector<int64_t>& extents) {
    return call(global("torch", "Size"), tuple({numbers(extents)}));
}

void write_dcp(const fs::path& folder, const std::vector<DcpMade>& tensors,
               const std::function<void(std::string&)>& change) {
    std::vector<std::pair<Code, Code>> entries, places;
    std::map<std::string, std::string> files;
    for (const DcpMade& tensor : tensors) {
        std::vector<Code> chunks;
        for (const DcpPart& part : tensor.parts) {
            chunks.push_back(instance_of("ChunkStorageMetadata", {{text("offsets"), dcp_size(part.offsets)},
                                                                  {text("sizes"), dcp_size(part.sizes)}}));
            const std::string bytes = stream(tensor, part);
            std::string& file = files[part.file];
            places.emplace_back(instance_of("MetadataIndex", {{text("fqn"), text(tensor.name)},
                                                              {text("offset"), dcp_size(part.offsets)}}),
                                instance(global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                                         dict({{text("relative_path"), text(part.file)},
                                               {text("offset"), integer(int64_t(file.size()))},
                                               {text("length"), integer(int64_t(bytes.size()))}})));
            file += bytes;
        }
        const Code properties = instance(global(classes, "TensorProperties"),
                                         tuple({global("torch", tensor.dtype), boolean(false)}));
        entries.emplace_back(text(tensor.name),
                             instance_of("TensorStorageMetadata", {{text("properties"), properties},
                                                                   {text("size"), dcp_size(tensor.shape)},
                                                                   {text("chunks"), list(chunks)}}));
    }
    std::string metadata = pickle(instance_of(
        "Metadata", {{text("state_dict_metadata"), dict(entries)}, {text("storage_data"), dict(places)}}));
    if (change) change(metadata);
    write_file(folder / ".metadata", metadata);
    for (const auto& [name, bytes] : files)
        if (name.find('/') == std::string::npos) write_file(folder / name, bytes);
}

}  // namespace coeus::test
