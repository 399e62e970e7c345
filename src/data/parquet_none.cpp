// SPDX-License-Identifier: Apache-2.0
// For a build without Arrow: the message that Parquet is converted by a pipe.
#include "coeus/base/error.hpp"
#include "coeus/data/parquet_to_lines.hpp"
#include "parquet.hpp"

namespace coeus {

bool reads_parquet() {
    return false;
}

std::unique_ptr<ByteStream> open_parquet(const std::string& path, const std::string& field) {
    throw ConfigError(
        "{}: this program was built without Arrow (COEUS_ARROW), which reads Parquet; this tokenizes it: {} "
        "| "
        "coeus tokenize - --tokenizer FOLDER --output FILE.h5",
        path, parquet_to_lines(path, field));
}

}  // namespace coeus
