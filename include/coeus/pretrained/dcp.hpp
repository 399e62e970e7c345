// SPDX-License-Identifier: Apache-2.0
// DcpFolder: a folder with a distributed checkpoint of PyTorch (torch.distributed.checkpoint), as torchtitan
// writes it. The file .metadata is a pickle that lists the parts of all tensors; *.distcp files contain the
// parts, each a stream of torch.save. Coeus reads it without PyTorch, and never executes code that a pickle
// refers to.
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
    /// True if the folder has a file .metadata.
    static bool is_at(const std::string& path);

    /// ConfigError with file and reason: no such folder, damaged, of an unknown kind.
    explicit DcpFolder(const std::string& path);

    struct Entry {
        Dtype dtype;
        Shape shape;  ///< global shape
    };
    /// Names of all tensors, in alphabetical order.
    std::vector<std::string> names() const;
    bool has(const std::string& name) const;
    /// ConfigError, with the nearest existing name, if there is no such tensor.
    Entry entry(const std::string& name) const;

    /// Reads rows [first_row, +rows) of a tensor of one or two extents, all columns, in its type. The rows
    /// may be spread over any number of parts. ConfigError if a part is damaged or missing.
    void read(const std::string& name, Tensor rows, int64_t first_row) const;
    /// The value of a tensor with one element; none if there is no tensor of this name.
    std::optional<int64_t> integer(const std::string& name) const;
    /// Returns the memory of pages that were read to the system.
    void release() const;

private:
    /// A rectangle of a tensor, and the place of its stream.
    struct Part {
        Shape offsets, sizes;
        size_t file;
        int64_t position, bytes;
    };
    struct Stored {
        Entry entry;
        std::vector<Part> parts;  ///< in ascending order; each element of the tensor is in exactly one
    };
    struct Payload;
    class Reader;
    const Stored& stored(const std::string& name) const;
    Payload payload(const std::string& name, const Part& part, Dtype dtype) const;

    std::string path_;
    std::map<std::string, Stored> tensors_;
    std::vector<MappedFile> files_;
    mutable std::set<const Part*> compared_;  // parts whose checksums were verified
};

}  // namespace coeus
