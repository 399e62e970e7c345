// SPDX-License-Identifier: Apache-2.0
#include "coeus/hub/hub_weights.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/hub_json.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

namespace coeus {

namespace {

const std::string blocks_ending = "_blocks", scales_ending = "_scales";  // MXFP4
const std::string inverse_scale_ending = "_scale_inv";                   // FP8

bool is_float(Dtype type) {
    return can_convert(Dtype::f32, type);
}

ConfigError of_another_model(const std::string& folder, const std::string& name, const Shape& there,
                             const Shape& here) {
    return ConfigError("{} is of another model: {} is {} in the file, {} in this model", folder, name,
                       there.text(), here.text());
}

// The last two extents of a tensor, and the number of such matrices.
struct Matrices {
    int64_t count, rows, cols;

    explicit Matrices(const Shape& shape) : rows(shape[shape.rank - 2]), cols(shape[shape.rank - 1]) {
        count = rows * cols > 0 ? shape.count() / (rows * cols) : 0;
    }
};

}  // namespace

void HubElements::read_in(int64_t first, int64_t end) const {
    const auto bytes_of = [&](const Safetensors::Entry& entry, int64_t begin, int64_t after) {
        files_->read_in(entry, entry.data + begin, after - begin);
    };
    switch (kind_) {
        case PackedFormat::Kind::none:
            bytes_of(*values_, first * size_of(dtype_), end * size_of(dtype_));
            break;
        case PackedFormat::Kind::mxfp4:
            bytes_of(*values_, first / 2, div_ceil(end, 2));
            bytes_of(*scales_, first / mxfp4_block, div_ceil(end, mxfp4_block));
            break;
        case PackedFormat::Kind::fp8:
            bytes_of(*values_, first, end);
            bytes_of(*scales_, 0, scales_->shape.count() * size_of(scales_->dtype));
            break;
    }
}

void HubElements::read(void* to, Dtype type, int64_t first, int64_t count) const {
    read_in(first, first + count);
    if (kind_ == PackedFormat::Kind::none) {
        convert_elements(to, type, values_->data + first * size_of(dtype_), dtype_, count);
        return;
    }
    std::array<float, 512> values;
    auto* out = static_cast<std::byte*>(to);
    for (const int64_t end = first + count; first < end;) {
        const int64_t n = std::min(end - first, int64_t(values.size()));
        if (kind_ == PackedFormat::Kind::mxfp4)
            decode_mxfp4(values.data(), values_->data, scales_->data, first, n);
        else
            decode_fp8(values.data(), fp8_, first, n);
        convert_elements(out, type, values.data(), Dtype::f32, n);
        out += n * size_of(type);
        first += n;
    }
}

std::string HubElements::position(int64_t element) const {
    switch (kind_) {
        case PackedFormat::Kind::none: return fmt::format("element {}", element);
        case PackedFormat::Kind::mxfp4: {
            const int64_t block = element / mxfp4_block;
            return fmt::format("block {} (scale {} of E8M0)", block, int(scales_->data[block]));
        }
        case PackedFormat::Kind::fp8: break;
    }
    const int64_t row = element / fp8_.cols, col = element % fp8_.cols;
    return fmt::format(
        "element {}, of the block of row {} and column {} of scales (code {:#04x})", element,
        row / fp8_.rows * div_ceil(fp8_.rows, fp8_.block_rows) + row % fp8_.rows / fp8_.block_rows,
        col / fp8_.block_cols, int(fp8_.codes[element]));
}

// "language_model.model.layers.0" in folders of transformers 4, "model.language_model.layers.0" in those of
// transformers 5, which keep "lm_head".
std::vector<HubWeights::Prefix> HubWeights::prefixes_of(const std::string& folder, const Safetensors& files) {
    const std::filesystem::path file = std::filesystem::path(folder) / "config.json";
    if (!is_file_patiently(file) || !read_hub_config(folder).root().contains("text_config")) return {{}};
    const std::string within = "model.language_model.";
    for (const std::string& name : files.names())
        if (name.starts_with(within)) return {{"model.", within}, {"lm_head.", "lm_head."}};
    return {{"", "language_model."}};
}

HubWeights HubWeights::open(const std::string& folder) {
    HubWeights weights;
    weights.folder_ = folder;
    weights.packed_format_ = read_packed_format(folder);
    weights.files_ = Safetensors::open(folder);
    weights.prefixes_ = prefixes_of(folder, weights.files_);
    return weights;
}

std::string HubWeights::name_in_files(const std::string& name) const {
    for (const auto& [alone, in_files] : prefixes_)
        if (name.starts_with(alone)) return in_files + name.substr(alone.size());
    return name;
}

std::optional<std::string> HubWeights::text_name(const std::string& in_files) const {
    for (const Prefix& prefix : prefixes_)
        if (in_files.starts_with(prefix.in_files))
            return prefix.alone + in_files.substr(prefix.in_files.size());
    return std::nullopt;
}

int64_t HubWeights::count_others() const {
    return std::ranges::count_if(files_.names(), [&](const std::string& name) { return !text_name(name); });
}

bool HubWeights::is_mxfp4(const std::string& name) const {
    return !files_.has(name) && files_.has(name + blocks_ending);
}

bool HubWeights::has(const std::string& of_text) const {
    const std::string name = name_in_files(of_text);
    return files_.has(name) || is_mxfp4(name);
}

std::vector<std::string> HubWeights::stored_as(const std::string& of_text) const {
    const std::string name = name_in_files(of_text);
    if (is_mxfp4(name)) return {name + blocks_ending, name + scales_ending};
    if (files_.has(name) && files_.entry(name).dtype == Dtype::fp8_e4m3)
        return {name, name + inverse_scale_ending};
    return {name};
}

void HubWeights::require_kind(PackedFormat::Kind kind, const std::string& tensor, const char* method) const {
    if (packed_format_.kind != kind)
        throw ConfigError(
            "{}: tensor '{}' is quantized, but config.json has no quantization_config with quant_method "
            "\"{}\"",
            folder_, tensor, method);
}

const Safetensors::Entry& HubWeights::scales_of(const std::string& tensor, const std::string& scales,
                                                const Shape& shape) const {
    if (!files_.has(scales))
        throw ConfigError("{}: tensor '{}' is quantized ({}), but there is no tensor '{}' with its scales",
                          folder_, tensor, packed_format_.text(), scales);
    const Safetensors::Entry& entry = files_.entry(scales);
    if (entry.shape != shape)
        throw ConfigError("{}: tensor '{}' is {}, but the scales of '{}' ({}) must be {}", folder_, scales,
                          entry.shape.text(), tensor, packed_format_.text(), shape.text());
    return entry;
}

HubElements HubWeights::mxfp4(const HubPlace& place) const {
    const std::string blocks = place.name + blocks_ending, scales = place.name + scales_ending;
    require_kind(PackedFormat::Kind::mxfp4, blocks, "mxfp4");
    const int rank = place.shape.rank;
    if (rank != 3)
        throw ConfigError("{}: tensor '{}' cannot be MXFP4: {} is {}, not [experts, rows, columns]", folder_,
                          blocks, place.name, place.shape.text());
    const Matrices matrices(place.shape);
    if (matrices.rows % mxfp4_block != 0)
        throw ConfigError("{}: tensor '{}' cannot be MXFP4: {} has {} rows, not a multiple of {}", folder_,
                          blocks, place.shape.text(), matrices.rows, mxfp4_block);
    Shape scales_shape = place.shape;
    scales_shape[rank - 2] = matrices.cols;
    scales_shape[rank - 1] = matrices.rows / mxfp4_block;
    Shape shape = scales_shape;
    shape[shape.rank++] = mxfp4_block_bytes;
    const Safetensors::Entry& entry = files_.entry(blocks);
    if (entry.shape != shape) throw of_another_model(folder_, blocks, entry.shape, shape);
    const Safetensors::Entry& exponents = scales_of(blocks, scales, scales_shape);
    for (const auto& [name, type] : {std::pair(blocks, entry.dtype), std::pair(scales, exponents.dtype)})
        if (type != Dtype::u8)
            throw ConfigError("{}: tensor '{}' has elements of type {}, but MXFP4 has uint8", folder_, name,
                              name_of(type));
    HubElements elements;
    elements.kind_ = PackedFormat::Kind::mxfp4;
    elements.dtype_ = Dtype::bf16;  // two bits of significand
    elements.files_ = &files_;
    elements.values_ = &entry;
    elements.scales_ = &exponents;
    return elements;
}

HubElements HubWeights::fp8(const HubPlace& place) const {
    const std::string scales = place.name + inverse_scale_ending;
    require_kind(PackedFormat::Kind::fp8, place.name, "fp8");
    if (place.shape.rank < 2)
        throw ConfigError("{}: tensor '{}' is {}, but only matrices can be FP8", folder_, place.name,
                          place.shape.text());
    const Matrices matrices(place.shape);
    Shape shape = place.shape;
    shape[shape.rank - 2] = div_ceil(matrices.rows, packed_format_.block_rows);
    shape[shape.rank - 1] = div_ceil(matrices.cols, packed_format_.block_cols);
    const Safetensors::Entry& entry = scales_of(place.name, scales, shape);
    if (!is_float(entry.dtype))
        throw ConfigError("{}: tensor '{}' has elements of type {}, but scales have a floating-point type",
                          folder_, scales, name_of(entry.dtype));
    HubElements elements;
    elements.kind_ = PackedFormat::Kind::fp8;
    elements.files_ = &files_;
    elements.values_ = &files_.entry(place.name);
    elements.scales_ = &entry;
    elements.fp8_ = {.codes = elements.values_->data,
                     .scales = entry.data,
                     .scale_type = entry.dtype,
                     .rows = matrices.rows,
                     .cols = matrices.cols,
                     .block_rows = packed_format_.block_rows,
                     .block_cols = packed_format_.block_cols};
    return elements;
}

HubElements HubWeights::elements(const HubPlace& of_text) const {
    HubPlace place = of_text;
    place.name = name_in_files(of_text.name);
    if (is_mxfp4(place.name)) return mxfp4(place);
    const Safetensors::Entry& entry = files_.entry(place.name);
    if (entry.shape != place.shape) throw of_another_model(folder_, place.name, entry.shape, place.shape);
    if (entry.dtype == Dtype::fp8_e4m3) return fp8(place);
    if (!is_float(entry.dtype))
        throw ConfigError("{}: tensor '{}' has elements of type {}, but a floating-point type is expected",
                          folder_, place.name, name_of(entry.dtype));
    HubElements elements;
    elements.dtype_ = entry.dtype;
    elements.files_ = &files_;
    elements.values_ = &entry;
    return elements;
}

HubPlace HubWeights::stored_place(const HubPlace& place, int64_t cols) const {
    if (!is_mxfp4(name_in_files(place.name))) return place;
    const Matrices matrices(place.shape);
    const int64_t size = matrices.rows * matrices.cols, at = place.offset % size;
    int64_t last_row = at / matrices.cols, last_col = at % matrices.cols;  // of the place, in its matrix
    HubPlace stored = place;
    stored.offset = place.offset - at + last_col * matrices.rows + last_row;
    const auto turn = [&](int64_t& stride, int64_t steps) {
        const bool down = stride % matrices.cols == 0;
        (down ? last_row : last_col) += (steps - 1) * (down ? stride / matrices.cols : stride);
        stride = down ? stride / matrices.cols : stride * matrices.rows;
    };
    turn(stored.row_stride, place.rows);
    turn(stored.col_stride, cols);
    require(last_row < matrices.rows && last_col < matrices.cols,
            "the place of a parameter in an MXFP4 tensor is not inside of one matrix");
    return stored;
}

}  // namespace coeus
