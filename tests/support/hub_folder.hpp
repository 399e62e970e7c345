// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders with random weights.
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"
#include "support/write_safetensors.hpp"

#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace coeus::test {

/// The tensors of a folder, and their memory.
class FolderTensors {
public:
    /// The new tensor, which the caller fills.
    Tensor add(const std::string& name, Dtype type, const Shape& shape);
    /// Writes them and config.json into a new folder.
    void write(const std::filesystem::path& folder, const Json& config) const;

private:
    std::deque<OwnedTensor> memory_;
    std::vector<NamedTensor> named_;
};

/// The same numbers in every program.
using Numbers = std::mt19937;
/// One of 0, 1 ... limit - 1.
int below(int limit, Numbers& random);
/// A number between -0.25 and 0.25, exact in bfloat16.
double small_number(Numbers& random);

/// The tensors of a model's folder, by name.
std::map<std::string, Shape> folder_shapes(const DecoderConfig& model);
/// A small model of a family: dim, layers, heads and vocabulary of a flavour are replaced.
DecoderConfig small_model(const std::string& family, const std::string& flavor, int64_t dim, int64_t kv_heads,
                          int64_t head_dim);

/// Writes a model's folder, in float32.
void write_random_folder(const std::filesystem::path& folder, const DecoderConfig& model);
/// How a folder with further parts names the tensors of its text model.
enum class TextNames { outside, inside };
/// Writes the same weights twice: as the folder of a model for texts, and as that of a model of this
/// architecture, with a part for images of three tensors. Outside: "language_model.model.norm.weight", in the
/// form in which Llama 4 is published. Inside: "model.language_model.norm.weight", as of transformers 5.
void write_folder_with_images(const std::filesystem::path& of_text, const std::filesystem::path& with_images,
                              const DecoderConfig& model, const std::string& architecture,
                              TextNames names = TextNames::outside);

}  // namespace coeus::test
