// SPDX-License-Identifier: Apache-2.0
// The structure of token files, by format. Each function returns it, or throws ConfigError that names the
// file and what is amiss.
#pragma once

#include "coeus/data/token_file.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace coeus {

/// The files of a Megatron-LM pair.
struct MegatronPair {
    std::string data, index;
};
/// For the .idx or the .bin of a pair, or for the common part of their names. Nothing if there is no index
/// (for an .idx: if it does not exist).
std::optional<MegatronPair> megatron_pair(const std::filesystem::path& path);

/// True if a file begins as llm.c's token files do, with 256 numbers of 32 bits, or as NumPy's arrays do.
bool is_llm_c_file(const std::filesystem::path& path);
bool is_numpy_file(const std::filesystem::path& path);

/// HDF5: /tokens, /documents, /loss_mask and attributes.
TokenFile::Layout hdf5_layout(const std::string& path);
/// .idx: "MMIDIDX\0\0", u64 version, u8 type of the ids, u64 number S of sequences, u64 number D of bounds,
/// i32 lengths [S], i64 offsets in bytes [S], i64 bounds of documents in sequences [D], from 0 to S. Nothing
/// is aligned. Refused: what does not follow from the lengths, and bytes after the bounds.
TokenFile::Layout megatron_layout(const MegatronPair& pair);
/// 256 numbers of 32 bits (magic, version, number of tokens, zeros), then the ids: 16 bits for GPT-2
/// (20240520, version 1), 32 bits for Llama 3 (20240801, version 7).
TokenFile::Layout llm_c_layout(const std::string& path);
/// NumPy's format, versions 1 to 3: one dimension of integers without sign, or of int32 or int64.
TokenFile::Layout numpy_layout(const std::string& path);

/// The structure of a file of any of these formats.
TokenFile::Layout layout_of(const std::filesystem::path& path);

}  // namespace coeus
