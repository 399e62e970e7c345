// SPDX-License-Identifier: Apache-2.0
// safetensors files: 8 bytes with the length n of a JSON header, the header, then the elements:
//   {"norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}, "__metadata__": {...}}
// Offsets count from the end of the header; tensors follow each other without gaps or overlaps.
// Format: huggingface.co/docs/safetensors. Several files may share one index (model.safetensors.index.json).
#pragma once

#include "coeus/device/tensor.hpp"
#include "coeus/file/raw_file.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus {

/// One or several memory-mapped files as one set of tensors. Elements are read in place when asked for.
class Safetensors {
public:
    struct Entry {
        Dtype dtype;
        Shape shape;
        size_t file;            ///< which of the mapped files
        const std::byte* data;  ///< not aligned to anything
    };

    /// A .safetensors file, an index (.json), or a folder with model.safetensors or its index. ConfigError
    /// naming file and tensor: truncated, foreign, overlapping offsets, unknown dtype, size and shape that
    /// disagree, an index that names an absent tensor.
    static Safetensors open(const std::string& path);

    /// Names in alphabetical order.
    std::vector<std::string> names() const;
    bool has(const std::string& name) const { return entries_.contains(name); }
    /// ConfigError with the nearest name there is.
    const Entry& entry(const std::string& name) const;

    /// Elements [first, first + count) of the flattened tensor, converted from F64, F32, F16 or BF16 to a
    /// floating type, or from I64, I32, U8 to an integer type; ConfigError for the other pairs.
    void read(const std::string& name, Tensor out, int64_t first = 0) const;
    /// All elements.
    template <class T>
    std::vector<T> read_all(const std::string& name) const {
        std::vector<T> out(size_t(entry(name).shape.count()));
        read(name, Tensor(out.data(), dtype_of<T>(), {int64_t(out.size())}));
        return out;
    }

    /// Gives the memory of what was read back to the system: for those who pass through once.
    void release() const {
        for (const MappedFile& file : files_) file.release();
    }

private:
    void add_file(const std::string& path);
    void add_index(const std::string& path);
    std::string path_;  // as given, for messages
    std::vector<MappedFile> files_;
    std::map<std::string, Entry> entries_;
};

/// What a file says of a tensor before its elements.
struct SafetensorsEntry {
    std::string name;
    Dtype dtype;  ///< f64, f32, f16, bf16, i64, i32 or u8
    Shape shape;
};
/// The beginning of a file, length and header, with these tensors behind each other after it.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace coeus
