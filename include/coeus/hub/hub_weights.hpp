// SPDX-License-Identifier: Apache-2.0
// HubWeights: the tensors of a Hugging Face folder, which may be quantized. To its callers they are tensors
// of floating-point elements, under the names and with the shapes that the places of a model expect.
// Quantized tensors are decoded while they are read, and only the part that is read.
// If config.json has a "text_config", the folder has other parts too, such as one for images. Only the
// tensors of the text model are seen, under the names that they have in a folder of the text model alone.
// file/safetensors.hpp reads the files, and the index if there are several.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/file/packed_formats.hpp"
#include "coeus/file/safetensors.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The elements of one tensor in the order in which the folder stores them. It borrows the HubWeights.
class HubElements {
public:
    /// A type that represents the elements exactly (FP8: after their rounding to float32).
    Dtype dtype() const { return dtype_; }
    /// Reads elements [first, first + count) into adjacent elements of a floating-point type. ReadError if
    /// the file cannot be read.
    void read(void* to, Dtype type, int64_t first, int64_t count) const;
    /// An element's position, for messages: "element 70", "block 2 (scale 255 of E8M0)".
    std::string position(int64_t element) const;

private:
    friend class HubWeights;
    void read_in(int64_t first, int64_t end) const;
    PackedFormat::Kind kind_ = PackedFormat::Kind::none;
    Dtype dtype_ = Dtype::f32;
    const Safetensors* files_ = nullptr;
    const Safetensors::Entry *values_ = nullptr,
                             *scales_ = nullptr;  // elements, blocks or codes; no scales: null
    Fp8Blocks fp8_ = {};
};

class HubWeights {
public:
    /// ConfigError as read_packed_format() and Safetensors::open().
    static HubWeights open(const std::string& folder);

    const std::string& folder() const { return folder_; }
    const PackedFormat& packed_format() const { return packed_format_; }
    const Safetensors& files() const { return files_; }
    /// The name of a tensor in the files.
    std::string name_in_files(const std::string& name) const;
    /// The inverse. None for a tensor that does not belong to the text model.
    std::optional<std::string> text_name(const std::string& in_files) const;
    /// How many tensors do not belong to the text model.
    int64_t count_others() const;

    /// True if the folder has this tensor, as it is or quantized.
    bool has(const std::string& of_text) const;
    /// The tensors of the files that hold the elements and the scales of this tensor: "w" alone; "w" and
    /// "w_scale_inv" (FP8); "w_blocks" and "w_scales" (MXFP4).
    std::vector<std::string> stored_as(const std::string& of_text) const;
    /// The elements of a place's tensor. ConfigError, with folder and tensor: the tensor is missing, it has
    /// another shape or no floating-point type, its scales are missing or have another shape or type.
    HubElements elements(const HubPlace& of_text) const;
    /// The place with offset and strides that count the elements as HubElements does. `cols`: the columns of
    /// the parameter. Differs from `place` for MXFP4, which stores each matrix of a tensor transposed.
    /// LogicError if such a place is not inside of one matrix.
    HubPlace stored_place(const HubPlace& place, int64_t cols) const;

private:
    // these take names in the files
    bool is_mxfp4(const std::string& name) const;
    void require_kind(PackedFormat::Kind kind, const std::string& tensor, const char* method) const;
    HubElements mxfp4(const HubPlace& place) const;
    HubElements fp8(const HubPlace& place) const;
    const Safetensors::Entry& scales_of(const std::string& tensor, const std::string& scales,
                                        const Shape& shape) const;
    // The beginning of names of the text model alone, and of the same names in the files.
    struct Prefix {
        std::string alone, in_files;
    };
    static std::vector<Prefix> prefixes_of(const std::string& folder, const Safetensors& files);
    std::string folder_;
    std::vector<Prefix> prefixes_;  // of which a name has one
    PackedFormat packed_format_;
    Safetensors files_;
};

}  // namespace coeus
