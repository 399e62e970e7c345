// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/hub.hpp"

#include "coeus/device/host_rows.hpp"
#include "coeus/file/convert.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

namespace coeus {

namespace fs = std::filesystem;

bool is_hub_folder(const std::string& path) {
    std::error_code status;
    return fs::is_regular_file(fs::path(path) / "config.json", status);
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

// The tensor of a place. ConfigError if it does not have the shape that the place expects.
const Safetensors::Entry& entry_of(const std::string& folder, const Safetensors& weights,
                                   const HubPlace& place) {
    const Safetensors::Entry& entry = weights.entry(place.name);
    if (entry.shape != place.shape)
        throw ConfigError("{} is of another model: {} is {} in the file, {} in this model", folder,
                          place.name, entry.shape.text(), place.shape.text());
    return entry;
}

// Fills those of the rows [first_row, +rows) that are in a place.
void read_place(const HubPlace& place, const Safetensors::Entry& entry, Tensor rows, int64_t first_row,
                int64_t first_col) {
    const int64_t bytes = size_of(entry.dtype),
                  end = std::min(first_row + rows.rows(), place.first_row + place.rows);
    for (int64_t row = std::max(first_row, place.first_row); row < end; ++row) {
        auto* to = static_cast<std::byte*>(rows.slice_rows(row - first_row, 1).data);
        const std::byte* from = entry.data + place.index(row, first_col) * bytes;
        if (place.col_stride == 1) {
            convert_elements(to, rows.dtype, from, entry.dtype, rows.cols());
            continue;
        }
        for (int64_t col = 0; col < rows.cols(); ++col)
            convert_elements(to + col * size_of(rows.dtype), rows.dtype,
                             from + col * place.col_stride * bytes, entry.dtype, 1);
    }
}

}  // namespace

void read_hub_tensor(const std::string& folder, const Safetensors& weights, const HubTensor& tensor) {
    require_all_rows(tensor);
    for (const HubPlace& place : tensor.places) {
        const Safetensors::Entry& entry = entry_of(folder, weights, place);
        if (!tensor.blocks.empty() && !can_convert(tensor.blocks.front().local.dtype, entry.dtype))
            throw ConfigError(
                "{}: tensor '{}' has elements of type {}, but a floating-point type is expected", folder,
                place.name, name_of(entry.dtype));
    }
    for (const HeldBlock& block : tensor.blocks)
        write_rows(*tensor.device, block.local, [&](Tensor rows, int64_t first) {
            if (tensor.places.empty()) std::memset(rows.data, 0, size_t(rows.bytes()));
            for (const HubPlace& place : tensor.places)
                read_place(place, weights.entry(place.name), rows, block.first_row + first, block.first_col);
        });
}

void check_hub_weights(const std::string& folder, const Safetensors& weights,
                       const std::vector<HubTensor>& tensors, const HubIgnores& ignores) {
    std::set<std::string> taken;
    for (const HubTensor& tensor : tensors)
        for (const HubPlace& place : tensor.places) taken.insert(place.name);
    for (const std::string& name : weights.names())
        if (!taken.contains(name) && !ignores(name))
            throw ConfigError("{} is of another model: it has '{}', which no parameter of this model uses",
                              folder, name);
}

void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors,
                      const HubIgnores& ignores) {
    const Safetensors weights = Safetensors::open(folder);
    for (const HubTensor& tensor : tensors) read_hub_tensor(folder, weights, tensor);
    check_hub_weights(folder, weights, tensors, ignores);
}

}  // namespace coeus
