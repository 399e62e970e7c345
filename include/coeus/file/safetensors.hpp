// SPDX-License-Identifier: Apache-2.0
// Safetensors: reads safetensors files. A file has 8 bytes with the length of a JSON header, the header, then
// the elements:
//   {"norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}, "__metadata__": {...}}
// Offsets count from the end of the header; tensors follow each other without gaps or overlaps. Format:
// huggingface.co/docs/safetensors. Several files may share one index (model.safetensors.index.json).
#pragma once

#include "coeus/device/tensor.hpp"
#include "coeus/file/raw_file.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus {

/// One or several memory-mapped files as one set of tensors. Elements are read in place when they are used.
class Safetensors {
public:
    struct Entry {
        Dtype dtype;
        Shape shape;
        size_t file;            ///< number of the mapped file
        const std::byte* data;  ///< may be unaligned
    };

    /// True for a folder with model.safetensors or its index.
    static bool is_at(const std::string& folder);
    /// `path`: a .safetensors file, an index (.json), or a folder with model.safetensors or its index.
    /// ConfigError, with file and tensor: truncated, foreign, overlapping offsets, unknown dtype, size and
    /// shape that disagree, an index that names a tensor in the wrong file.
    static Safetensors open(const std::string& path);

    /// Names in alphabetical order.
    std::vector<std::string> names() const;
    bool has(const std::string& name) const { return entries_.contains(name); }
    /// Tensors that the index names and no file has, such as the head of a model with tied embeddings.
    std::vector<std::string> ghosts() const;
    /// ConfigError if no file has the tensor: the file in which the index looks for it, or the nearest
    /// existing name.
    const Entry& entry(const std::string& name) const;

    /// Reads elements [first, first + out.count()) of the flattened tensor. Converts F64, F32, F16 and BF16
    /// to a floating-point type, or I64, I32 and U8 to an integer type. ConfigError for other pairs.
    void read(const std::string& name, Tensor out, int64_t first = 0) const;
    /// All elements.
    template <class T>
    std::vector<T> read_all(const std::string& name) const {
        std::vector<T> out(size_t(entry(name).shape.count()));
        read(name, Tensor(out.data(), dtype_of<T>(), {int64_t(out.size())}));
        return out;
    }

    /// Reads bytes of a tensor's data now, patiently, before they are used in place. ReadError if they cannot
    /// be read.
    void read_in(const Entry& entry, const std::byte* first, int64_t bytes) const {
        files_[entry.file].read_in({first, size_t(bytes)});
    }

    /// Returns the memory of pages that were read to the system: for callers that read everything once.
    void release() const {
        for (const MappedFile& file : files_) file.release();
    }

private:
    void add_file(const std::string& path);
    void add_index(const std::string& path);
    std::string path_;  // as given, for messages
    std::vector<MappedFile> files_;
    std::map<std::string, Entry> entries_;
    std::map<std::string, std::string> ghosts_;  // name, and what is wrong
};

/// A tensor in the header of a file.
struct SafetensorsEntry {
    std::string name;
    Dtype dtype;  ///< f64, f32, f16, bf16, fp8_e4m3, i64, i32 or u8
    Shape shape;
};
/// The beginning of a file: the length and the header. The tensors follow it in the order of `entries`.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace coeus
