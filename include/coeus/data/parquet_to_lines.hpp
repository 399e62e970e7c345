// SPDX-License-Identifier: Apache-2.0
// The way from a Parquet file to JSON Lines for what does not read Parquet itself.
#pragma once

#include <string>

namespace coeus {

/// The command that prints a field of a Parquet file as JSON Lines with the field "text". It needs Python
/// with pyarrow.
std::string parquet_to_lines(const std::string& file, const std::string& field);

}  // namespace coeus
