// SPDX-License-Identifier: Apache-2.0
#include "layout_guard.hpp"

#include "coeus/io/checkpoint.hpp"
#include "coeus/io/checksum.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr int64_t word = 8;
constexpr uint64_t mark = 0x79614c7375656f43;       // "CoeusLay"
constexpr uint64_t hdf5_mark = 0x0a1a0a0d46444889;  // signature of HDF5's superblock
constexpr int64_t hdf5_end = 28;          // offset of the file's length in a superblock of version 2
constexpr int64_t shortest = 48;          // bytes of a file with only that superblock
constexpr int64_t most_ranges = 1 << 22;  // a damaged table must not need more memory than these

/// The sum over those of the bytes [0, end) that are in no range.
uint64_t sum_around(const RawFile& file, const std::vector<ByteRange>& ranges, int64_t end) {
    std::vector<std::byte> piece(1 << 16);
    uint64_t sum = 0;
    const auto add = [&](int64_t first, int64_t last) {
        while (first < last) {
            const int64_t count = std::min(int64_t(piece.size()), last - first);
            file.read(piece.data(), count, first);
            sum += checksum_of(piece.data(), 1, first, count);
            first += count;
        }
    };
    int64_t next = 0;
    for (const ByteRange& range : ranges) {
        add(next, range.first);
        next = range.first + range.bytes;
    }
    add(next, end);
    return sum;
}

bool ascending(const std::vector<ByteRange>& ranges, int64_t end) {
    int64_t next = 0;
    for (const ByteRange& range : ranges) {
        if (range.first < next || range.bytes < 0 || range.bytes > end - range.first) return false;
        next = range.first + range.bytes;
    }
    return true;
}

uint64_t word_at(const RawFile& file, int64_t offset) {
    uint64_t value = 0;
    file.read(&value, word, offset);
    return value;
}

/// True if the guard at the end of a file, which has the mark, fits the file.
bool fits(const RawFile& file, int64_t size) {
    const int64_t sum_place = size - 2 * word, count_place = size - 3 * word;
    const uint64_t count = word_at(file, count_place);
    if (count > uint64_t(std::min(most_ranges, count_place / int64_t(sizeof(ByteRange))))) return false;
    std::vector<ByteRange> ranges(size_t(count), ByteRange{});
    const int64_t table = int64_t(count * sizeof(ByteRange));
    file.read(ranges.data(), table, count_place - table);
    return ascending(ranges, count_place - table) &&
           sum_around(file, ranges, sum_place) == word_at(file, sum_place);
}

}  // namespace

void append_layout_guard(RawFile& file, std::vector<ByteRange> left_out) {
    std::erase_if(left_out, [](const ByteRange& range) { return range.bytes == 0; });
    std::sort(left_out.begin(), left_out.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.first < b.first; });
    int64_t end = file.size();
    const auto append = [&](const void* from, int64_t bytes) {
        file.write(from, bytes, end);
        end += bytes;
    };
    append(left_out.data(), int64_t(left_out.size() * sizeof(ByteRange)));
    const auto count = uint64_t(left_out.size());
    append(&count, word);
    const uint64_t sum = sum_around(file, left_out, end);
    append(&sum, word);
    append(&mark, word);
}

void require_sound_layout(const std::string& path) {
    const RawFile file = RawFile::open(path);
    const int64_t size = file.size();
    if (size < shortest) return;
    if (word_at(file, size - word) == mark) {
        if (!fits(file, size)) throw ConfigError("{} is damaged: its metadata is not what was written", path);
    } else if (word_at(file, 0) == hdf5_mark && uint64_t(size) > word_at(file, hdf5_end)) {
        throw ConfigError("{} is truncated or damaged: its last bytes are not what was written", path);
    }
}

}  // namespace coeus
