// SPDX-License-Identifier: Apache-2.0
// coeus info for safetensors files: their tensors, types and sizes. --verify reads every element.
#include "coeus/file/safetensors.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/small_floats.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/convert.hpp"
#include "safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace coeus::info {

namespace {

bool is_float(Dtype type) {
    return type == Dtype::fp8_e4m3 || can_convert(Dtype::f64, type);
}

// Elements [first, first + values.size()) of a tensor; those of 8 bits without their scale.
void read_floats(const Safetensors& weights, const std::string& name, int64_t first,
                 std::vector<double>& values) {
    const Safetensors::Entry& entry = weights.entry(name);
    if (entry.dtype != Dtype::fp8_e4m3)
        return weights.read(name, Tensor(values.data(), Dtype::f64, {int64_t(values.size())}), first);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = e4m3_value(uint8_t(entry.data[first + int64_t(i)]));
}

int64_t bytes_of(const Safetensors::Entry& entry) {
    return entry.shape.count() * size_of(entry.dtype);
}

}  // namespace

void list_tensors(const Safetensors& weights) {
    std::map<std::string, int64_t> elements;  // by type
    std::set<size_t> files;
    int64_t bytes = 0, count = 0;
    for (const std::string& name : weights.names()) {
        const Safetensors::Entry& entry = weights.entry(name);
        elements[name_of(entry.dtype)] += entry.shape.count();
        files.insert(entry.file);
        bytes += bytes_of(entry);
        count += entry.shape.count();
    }
    std::vector<std::string> types;
    for (const auto& [type, n] : elements) types.push_back(fmt::format("{} of {}", with_commas(n), type));
    if (const std::vector<std::string> ghosts = weights.ghosts(); !ghosts.empty())
        entry("missing", fmt::format("{} that the index names and no file has, such as {}", ghosts.size(),
                                     printable(ghosts.front())));
    entry("tensors", fmt::format("{} in {} file{}, {}", weights.names().size(), files.size(),
                                 files.size() == 1 ? "" : "s", bytes_text(double(bytes))));
    entry("elements",
          elements.size() == 1 ? types[0] : fmt::format("{}: {}", with_commas(count), join(types, ", ")));
    for (const std::string& name : weights.names()) {
        const Safetensors::Entry& entry = weights.entry(name);
        print("  {:<60} {:<11} {}\n", printable(name), name_of(entry.dtype), entry.shape.text());
    }
}

void verify_tensors(const std::string& place, const Safetensors& weights) {
    int64_t total = 0, done = 0, bad = 0;
    for (const std::string& name : weights.names()) total += bytes_of(weights.entry(name));
    std::string first_bad;
    {
        ProgressBar bar("verifying", total, true);
        std::vector<double> piece;
        for (const std::string& name : weights.names()) {
            const Safetensors::Entry& entry = weights.entry(name);
            constexpr int64_t most = 1 << 16;
            for (int64_t at = 0; is_float(entry.dtype) && at < entry.shape.count(); at += most) {
                piece.resize(size_t(std::min(most, entry.shape.count() - at)));
                read_floats(weights, name, at, piece);
                for (const double value : piece)
                    if (!std::isfinite(value) && bad++ == 0) first_bad = name;
                bar.update(done + at * size_of(entry.dtype));
            }
            done += bytes_of(entry);
        }
    }
    if (bad > 0)
        throw ConfigError("{}: {} elements are not finite, the first of them in tensor '{}'", place,
                          with_commas(bad), first_bad);
    entry("verified", fmt::format("{} read, all elements are finite", bytes_text(double(total))));
}

void show_safetensors(const std::string& place, const Options& options) {
    const Safetensors weights = Safetensors::open(place);
    print("{}: safetensors\n", place);
    list_tensors(weights);
    if (options.verify) verify_tensors(place, weights);
}

}  // namespace coeus::info
