// SPDX-License-Identifier: Apache-2.0
// For a build without Arrow: the message that Parquet is converted by a pipe.
#include "coeus/base/error.hpp"
#include "parquet.hpp"

namespace coeus {

bool reads_parquet() {
    return false;
}

std::unique_ptr<ByteStream> open_parquet(const std::string& path, const std::string& field) {
    throw ConfigError(
        "{0}: this program was built without Arrow (COEUS_ARROW), which reads Parquet; this tokenizes it: "
        "python3 "
        "-c 'import json, sys, pyarrow.parquet as q; [print(json.dumps({{\"text\": t}})) for f in "
        "sys.argv[1:] for "
        "b in q.ParquetFile(f).iter_batches(columns=[\"{1}\"]) for t in b[0].to_pylist()]' {0} | coeus "
        "tokenize - "
        "--tokenizer FOLDER --output FILE.h5",
        path, field);
}

}  // namespace coeus
