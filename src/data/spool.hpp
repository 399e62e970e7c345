// SPDX-License-Identifier: Apache-2.0
// Appends numbers of 2, 4 or 8 bytes to a plain file. When their count is known, they are copied to an array
// in an HDF5 file.
#pragma once

#include "coeus/file/raw_file.hpp"
#include "coeus/hdf5/hdf5.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace coeus {

class Spool {
public:
    /// Creates a file, or opens one and keeps its first `count` numbers.
    Spool(const std::string& path, hdf5::Type type, int64_t count)
        : file_(count > 0 ? RawFile::open_for_update(path) : RawFile::create(path)),
          type_(type),
          width_(hdf5::size_of(type)),
          count_(count) {}

    int64_t count() const { return count_; }

    template <class T>
    void append(std::span<const T> values) {
        bytes_.resize(values.size() * size_t(width_));
        std::byte* to = bytes_.data();
        for (const T value : values) {  // only for little-endian machines, like the token file itself
            const auto number = uint64_t(value);
            std::memcpy(to, &number, size_t(width_));
            to += width_;
        }
        file_.write(bytes_.data(), int64_t(bytes_.size()), count_ * width_);
        count_ += int64_t(values.size());
    }

    void sync() { file_.sync(); }

    /// Writes all numbers to a new HDF5 dataset `name`.
    void copy_to(hdf5::File& file, const std::string& name) const {
        hdf5::Dataset array = file.create_dataset(name, type_, {count_});
        if (type_ == hdf5::Type::u16) copy<uint16_t>(array);
        if (type_ == hdf5::Type::u32) copy<uint32_t>(array);
        if (type_ == hdf5::Type::u64) copy<uint64_t>(array);
    }

private:
    template <class T>
    void copy(hdf5::Dataset& array) const {
        std::vector<T> part(1 << 22);
        for (int64_t at = 0; at < count_; at += int64_t(part.size())) {
            part.resize(size_t(std::min(count_ - at, int64_t(part.size()))));
            file_.read(part.data(), int64_t(part.size() * sizeof(T)), at * int64_t(sizeof(T)));
            array.write(std::span<const T>(part), at);
        }
    }

    RawFile file_;
    hdf5::Type type_;
    int64_t width_, count_;
    std::vector<std::byte> bytes_;
};

}  // namespace coeus
