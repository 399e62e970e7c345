// SPDX-License-Identifier: Apache-2.0
// HubWeights: the tensors of a Hugging Face folder, which may be quantized. To its callers they are tensors
// of floating-point elements, under the names and with the shapes that the places of a model expect.
// Quantized tensors are decoded while they are read, and only the part that is read.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/file/quantized.hpp"
#include "coeus/file/safetensors.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The elements of one tensor in the order in which the folder stores them. It borrows the HubWeights.
class HubElements {
public:
    /// A type that represents the elements exactly (FP8: after their rounding to float32).
    Dtype dtype() const { return dtype_; }
    /// Reads elements [first, first + count) into adjacent elements of a floating-point type.
    void read(void* to, Dtype type, int64_t first, int64_t count) const;

private:
    friend class HubWeights;
    Quantization::Kind kind_ = Quantization::Kind::none;
    Dtype dtype_ = Dtype::f32;
    const std::byte *data_ = nullptr, *scales_ = nullptr;
    Fp8Blocks fp8_ = {};
};

class HubWeights {
public:
    /// ConfigError as read_quantization() and Safetensors::open().
    static HubWeights open(const std::string& folder);

    const std::string& folder() const { return folder_; }
    const Quantization& quantization() const { return quantization_; }
    const Safetensors& files() const { return files_; }

    /// True if the folder has this tensor, as it is or quantized.
    bool has(const std::string& name) const;
    /// The tensors that hold the elements and the scales of this tensor: "w" alone; "w" and "w_scale_inv"
    /// (FP8); "w_blocks" and "w_scales" (MXFP4).
    std::vector<std::string> stored_as(const std::string& name) const;
    /// The elements of a place's tensor. ConfigError, with folder and tensor: the tensor is missing, it has
    /// another shape or no floating-point type, its scales are missing or have another shape or type.
    HubElements elements(const HubPlace& place) const;
    /// The place with offset and strides that count the elements as HubElements does. `cols`: the columns of
    /// the parameter. Differs from `place` for MXFP4, which stores each matrix of a tensor transposed.
    /// LogicError if such a place is not inside of one matrix.
    HubPlace stored_place(const HubPlace& place, int64_t cols) const;

private:
    bool is_mxfp4(const std::string& name) const;
    void require_kind(Quantization::Kind kind, const std::string& tensor, const char* method) const;
    HubElements mxfp4(const HubPlace& place) const;
    HubElements fp8(const HubPlace& place) const;
    const Safetensors::Entry& scales_of(const std::string& tensor, const std::string& scales,
                                        const Shape& shape) const;
    std::string folder_;
    Quantization quantization_;
    Safetensors files_;
};

}  // namespace coeus
