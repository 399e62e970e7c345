// SPDX-License-Identifier: Apache-2.0
// Folders of PyTorch's distributed checkpoints (torch.distributed.checkpoint), which torchtitan writes:
// .metadata, a pickle that says which part of which tensor is where, and *.distcp files of such parts, each a
// stream of torch.save. Read without PyTorch, and without executing what the pickles ask for.
#pragma once

#include "coeus/device/tensor.hpp"
#include "coeus/file/raw_file.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coeus {

class DcpFolder {
public:
    static bool is_at(const std::string& path);

    /// ConfigError naming file and reason: no such folder, damaged, of a kind that is not known.
    explicit DcpFolder(const std::string& path);

    struct Entry {
        Dtype dtype;
        Shape shape;  ///< global
    };
    /// Names of all tensors, in alphabetical order.
    std::vector<std::string> names() const;
    bool has(const std::string& name) const;
    /// ConfigError with the nearest name there is.
    Entry entry(const std::string& name) const;

    /// Rows [first_row, +rows) of a tensor of one or two extents, all columns, in its type: put together from
    /// however many parts. ConfigError where a part is damaged or absent.
    void read(const std::string& name, Tensor rows, int64_t first_row) const;
    /// The only element of a tensor; nothing where there is none of this name.
    std::optional<int64_t> integer(const std::string& name) const;
    /// Gives the memory of what was read back to the system.
    void release() const;

private:
    /// A rectangle of a tensor, and the stream that holds it.
    struct Part {
        Shape offsets, sizes;
        size_t file;
        int64_t position, bytes;
    };
    struct Stored {
        Entry entry;
        std::vector<Part> parts;  ///< in ascending order; each element of the tensor is in one
    };
    struct Payload;
    class Reader;
    const Stored& stored(const std::string& name) const;
    Payload payload(const std::string& name, const Part& part, Dtype dtype) const;

    std::string path_;
    std::map<std::string, Stored> tensors_;
    std::vector<MappedFile> files_;
    mutable std::set<const Part*> compared_;  // with their checksums
};

}  // namespace coeus
