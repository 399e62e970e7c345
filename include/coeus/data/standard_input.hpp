// SPDX-License-Identifier: Apache-2.0
// StandardInput: the text that another program writes to this one, as a corpus.
#pragma once

#include "coeus/data/corpus.hpp"

#include <filesystem>

namespace coeus {

/// Holds all of the standard input in a temporary file, since a corpus is read twice: for its hash, and for
/// its tokens. Removes the file at its end.
class StandardInput {
public:
    /// Reads to the end into `file`, whose folder is created if needed. ConfigError: the input is a terminal,
    /// or is empty. StoppedError if the process is asked to stop meanwhile.
    explicit StandardInput(std::filesystem::path file);
    ~StandardInput();
    StandardInput(const StandardInput&) = delete;
    StandardInput& operator=(const StandardInput&) = delete;

    Corpus corpus(Corpus::Kind kind, BadLines bad_lines, const std::string& field) const;

private:
    std::filesystem::path file_;
};

}  // namespace coeus
