// SPDX-License-Identifier: Apache-2.0
// coeus info A --diff B: shows which arrays of two checkpoints, runs or Hugging Face folders differ, and by
// how much.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace coeus::info {

namespace {

struct Difference {
    int64_t elements = 0;              // number of elements that differ
    double largest = 0;                // largest difference; NaN if an element is NaN
    double sum = 0, sum_of_first = 0;  // sums of squares: of the differences, of the first array

    void add(double a, double b) {
        sum_of_first += a * a;
        if (a == b) return;
        ++elements;
        const double difference = std::fabs(a - b);
        if (!(difference <= largest)) largest = difference;
        sum += difference * difference;
    }
};

// Compares two arrays with the same shape, block by block.
Difference difference_of(const ArraySource& a, size_t in_a, const ArraySource& b, size_t in_b) {
    const ArraySource::Array &first = a.arrays[in_a], &second = b.arrays[in_b];
    const int64_t cols = first.shape.cols(), step = ArraySource::rows_at_a_time(first.shape);
    std::vector<std::byte> stored;
    std::vector<double> values[2];
    Difference difference;
    for (int64_t row = 0; row < first.shape.rows(); row += step) {
        const int64_t rows = std::min(step, first.shape.rows() - row), count = rows * cols;
        for (const int side : {0, 1}) {
            const Dtype dtype = side == 0 ? first.dtype : second.dtype;
            stored.resize(size_t(count * size_of(dtype)));
            values[side].resize(size_t(count));
            (side == 0 ? a : b)
                .read(side == 0 ? in_a : in_b, Tensor(stored.data(), dtype, {rows, cols}), row);
            convert_elements(values[side].data(), Dtype::f64, stored.data(), dtype, count);
        }
        for (size_t i = 0; i < size_t(count); ++i) difference.add(values[0][i], values[1][i]);
    }
    return difference;
}

}  // namespace

void show_difference(const std::string& path, const std::string& other) {
    const Pretrained first(path), second(other);
    const ArraySource a = first.arrays(true, alone(), NotFinite::keep),
                      b = second.arrays(true, alone(), NotFinite::keep);
    std::map<std::string, size_t> in_b;
    for (size_t i = 0; i < b.arrays.size(); ++i) in_b[b.arrays[i].path] = i;
    std::vector<std::string> lines, alone;
    int64_t compared = 0;
    for (size_t i = 0; i < a.arrays.size(); ++i) {
        const ArraySource::Array& array = a.arrays[i];
        const auto found = in_b.find(array.path);
        if (found == in_b.end()) {
            alone.push_back(fmt::format("only in {}: {}", first.path(), array.path));
            continue;
        }
        const ArraySource::Array& same = b.arrays[found->second];
        ++compared;
        if (array.shape != same.shape)
            lines.push_back(
                fmt::format("{:<56} {} and {}", array.path, array.shape.text(), same.shape.text()));
        else if (const Difference d = difference_of(a, i, b, found->second); d.elements > 0)
            lines.push_back(
                fmt::format("{:<56} {} of {} elements, at most by {:.3g}, in total by {:.2g} of its norm",
                            array.path, with_commas(d.elements), with_commas(array.shape.count()), d.largest,
                            std::sqrt(d.sum / d.sum_of_first)));
        in_b.erase(found);
    }
    for (const auto& [name, number] : in_b)
        alone.push_back(fmt::format("only in {}: {}", second.path(), name));
    print("{} and {}: {} arrays in both, {} differ\n", first.path(), second.path(), compared,
          lines.empty() ? "none" : std::to_string(lines.size()));
    for (const std::string& line : lines) print("  {}\n", line);
    constexpr size_t most = 8;
    for (size_t i = 0; i < std::min(most, alone.size()); ++i) print("  {}\n", alone[i]);
    if (alone.size() > most) print("  ... and {} more that only one of them has\n", alone.size() - most);
}

}  // namespace coeus::info
