// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/parquet_to_lines.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

namespace coeus {

std::string parquet_to_lines(const std::string& file, const std::string& field) {
    return fmt::format(
        "python3 -c 'import json, sys, pyarrow.parquet as q; [print(json.dumps({{\"text\": t}})) for b in "
        "q.ParquetFile(sys.argv[1]).iter_batches(columns=[sys.argv[2]]) for t in b[0].to_pylist()]' {} {}",
        in_shell(file), in_shell(field));
}

}  // namespace coeus
