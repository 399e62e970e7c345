// SPDX-License-Identifier: Apache-2.0
#include "coeus/hub/hub.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/device/host_rows.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/finite.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

namespace coeus {

namespace fs = std::filesystem;

bool is_hub_folder(const std::string& path) {
    return is_file_patiently(fs::path(path) / "config.json");
}

namespace {

// LogicError unless each row of a parameter that has a place is in exactly one.
void require_all_rows(const HubTensor& tensor) {
    if (tensor.places.empty()) return;
    std::vector<std::pair<int64_t, int64_t>> runs;  // first row, and the row after the last
    for (const HubPlace& place : tensor.places)
        runs.emplace_back(place.first_row, place.first_row + place.rows);
    std::ranges::sort(runs);
    int64_t covered = 0;
    for (const auto& [first, end] : runs) {
        require(first == covered, "the places of a parameter in a folder do not have each of its rows once");
        covered = end;
    }
    require(covered == tensor.shape.rows(),
            "the places of a parameter in a folder do not have each of its rows once");
}

// Calls use(an unsigned integer of this size).
template <class Use>
void with_bits(int64_t bytes, const Use& use) {
    switch (bytes) {
        case 2: return use(uint16_t());
        case 4: return use(uint32_t());
        case 8: return use(uint64_t());
        default: throw LogicError("a floating-point type of this size");
    }
}

// A place's tensor is read in tiles if adjacent rows of the parameter are at most this far apart in it, but
// not its columns: in transposed matrices, whose gate and up may take turns.
constexpr int64_t farthest_rows_of_tile = 4;
// Rows of a tile are adjacent in the tensor, its columns in the parameter: cache lines are used as a whole.
// The columns in the tile's memory are not a power of two apart, or they would share few sets of the cache.
constexpr int64_t tile_rows = 512, tile_cols = 32, tile_gap = 8;

// Fills `rows`, which are all in this place: the parameter's rows from first_row on, columns from first_col.
void read_tiles(const HubPlace& place, const HubElements& elements, const Tensor& rows, int64_t first_row,
                int64_t first_col) {
    const int64_t bytes = size_of(rows.dtype), apart = place.row_stride;
    const int64_t column = (tile_rows - 1) * apart + 1 + tile_gap;
    std::vector<std::byte> tile(size_t(tile_cols * column * bytes));
    for (int64_t row = 0; row < rows.rows(); row += tile_rows)
        for (int64_t col = 0; col < rows.cols(); col += tile_cols) {
            const int64_t row_count = std::min(tile_rows, rows.rows() - row);
            const int64_t col_count = std::min(tile_cols, rows.cols() - col);
            for (int64_t c = 0; c < col_count; ++c)
                elements.read(tile.data() + c * column * bytes, rows.dtype,
                              place.index(first_row + row, first_col + col + c), (row_count - 1) * apart + 1);
            with_bits(bytes, [&]<class Bits>(Bits) {
                const auto* from = reinterpret_cast<const Bits*>(tile.data());
                for (int64_t r = 0; r < row_count; ++r) {
                    auto* to = static_cast<Bits*>(rows.data) + (row + r) * rows.ld + col;
                    for (int64_t c = 0; c < col_count; ++c) to[c] = from[c * column + r * apart];
                }
            });
        }
}

// Fills those of the rows [first_row, +rows) that are in a place.
void read_place(const HubPlace& place, const HubElements& elements, const Tensor& rows, int64_t first_row,
                int64_t first_col) {
    const int64_t begin = std::max(first_row, place.first_row),
                  end = std::min(first_row + rows.rows(), place.first_row + place.rows);
    if (begin >= end) return;
    if (place.col_stride != 1 && place.row_stride <= farthest_rows_of_tile && place.rotated_heads == 0)
        return read_tiles(place, elements, rows.slice_rows(begin - first_row, end - begin), begin, first_col);
    for (int64_t row = begin; row < end; ++row) {
        auto* to = static_cast<std::byte*>(rows.slice_rows(row - first_row, 1).data);
        const int64_t from = place.index(row, first_col);
        if (place.col_stride == 1) {
            elements.read(to, rows.dtype, from, rows.cols());
            continue;
        }
        for (int64_t col = 0; col < rows.cols(); ++col)
            elements.read(to + col * size_of(rows.dtype), rows.dtype, from + col * place.col_stride, 1);
    }
}

using Sources = std::vector<std::pair<HubPlace, HubElements>>;

// ConfigError if one of these rows has an element that is not finite. It names the element of the tensor.
void require_finite_elements(const HubWeights& weights, const Sources& sources, const Tensor& rows,
                             int64_t first_row, int64_t first_col) {
    if (!any_not_finite(rows)) return;
    std::vector<double> row(size_t(rows.cols()));
    for (int64_t r = 0; r < rows.rows(); ++r) {
        convert_elements(row.data(), Dtype::f64, rows.slice_rows(r, 1).data, rows.dtype, rows.cols());
        const auto bad = std::ranges::find_if(row, [](double value) { return !std::isfinite(value); });
        if (bad == row.end()) continue;
        for (const auto& [place, elements] : sources)
            if (first_row + r >= place.first_row && first_row + r < place.first_row + place.rows)
                throw ConfigError(
                    "{}: tensor '{}' has an element that is not finite, in {}", weights.folder(),
                    weights.stored_as(place.name).front(),
                    elements.position(place.index(first_row + r, first_col + (bad - row.begin()))));
    }
}

}  // namespace

void read_hub_tensor(const HubWeights& weights, const HubTensor& tensor, NotFinite infinite) {
    require_all_rows(tensor);
    const int64_t cols = tensor.shape.cols();
    Sources sources;
    for (const HubPlace& place : tensor.places)
        sources.emplace_back(weights.stored_place(place, cols), weights.elements(place));
    for (const HeldBlock& block : tensor.blocks)
        write_rows(*tensor.device, block.local, [&](Tensor rows, int64_t first) {
            if (sources.empty()) std::memset(rows.data, 0, size_t(rows.bytes()));
            for (const auto& [place, elements] : sources)
                read_place(place, elements, rows, block.first_row + first, block.first_col);
            if (infinite == NotFinite::refuse)
                require_finite_elements(weights, sources, rows, block.first_row + first, block.first_col);
        });
}

void check_hub_weights(const HubWeights& weights, const std::vector<HubTensor>& tensors,
                       const HubIgnores& ignores) {
    std::set<std::string> taken;
    for (const HubTensor& tensor : tensors)
        for (const HubPlace& place : tensor.places) {
            weights.elements(place);  // throws if there are none
            for (const std::string& name : weights.stored_as(place.name)) taken.insert(name);
        }
    for (const std::string& name : weights.files().names())
        if (const auto of_text = weights.text_name(name);
            of_text && !taken.contains(name) && !ignores(*of_text))
            throw ConfigError("{} is of another model: it has '{}', which no parameter of this model uses",
                              weights.folder(), name);
}

namespace {

// The first element in which two tensors of a folder differ; none if they are equal.
std::optional<int64_t> first_difference(const HubElements& a, const HubElements& b, int64_t count) {
    constexpr int64_t piece = 1 << 14;
    std::vector<double> values[2] = {std::vector<double>(piece), std::vector<double>(piece)};
    for (int64_t first = 0; first < count; first += piece) {
        const int64_t n = std::min(piece, count - first);
        a.read(values[0].data(), Dtype::f64, first, n);
        b.read(values[1].data(), Dtype::f64, first, n);
        for (size_t i = 0; i < size_t(n); ++i)
            if (!(values[0][i] == values[1][i])) return first + int64_t(i);
    }
    return std::nullopt;
}

}  // namespace

void check_hub_copies(const HubWeights& weights, const std::vector<HubTensor>& tensors,
                      const HubCopies& copies) {
    std::set<std::string> taken;
    for (const HubTensor& tensor : tensors)
        for (const HubPlace& place : tensor.places) taken.insert(place.name);
    for (const std::string& stored : weights.files().names()) {
        const std::optional<std::string> name = weights.text_name(stored);
        if (!name || taken.contains(*name)) continue;
        const std::optional<HubCopy> copy = copies(*name);
        if (!copy || !weights.has(copy->of)) continue;
        const Shape &shape = weights.files().entry(stored).shape,
                    of = weights.files().entry(weights.name_in_files(copy->of)).shape;
        if (shape != of)
            throw ConfigError("{}: '{}' must be a copy of '{}', but is {}, not {}; {}", weights.folder(),
                              stored, weights.name_in_files(copy->of), shape.text(), of.text(),
                              copy->otherwise);
        if (const std::optional<int64_t> element =
                first_difference(weights.elements(HubPlace::whole(*name, shape)),
                                 weights.elements(HubPlace::whole(copy->of, shape)), shape.count()))
            throw ConfigError(
                "{}: the model has one tensor for '{}' and '{}', but they differ, first in row {}; {}",
                weights.folder(), stored, weights.name_in_files(copy->of), *element / shape.cols(),
                copy->otherwise);
    }
}

void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors,
                      const HubIgnores& ignores, NotFinite infinite) {
    const HubWeights weights = HubWeights::open(folder);
    check_hub_weights(weights, tensors, ignores);
    for (const HubTensor& tensor : tensors) read_hub_tensor(weights, tensor, infinite);
}

}  // namespace coeus
