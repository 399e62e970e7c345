// SPDX-License-Identifier: Apache-2.0
// The fuzzing targets. Each file of tests/fuzz that is named after a reader defines its target, in a
// namespace of its own. libfuzzer.cpp calls the only target of its program with inputs that libFuzzer finds
// (`make fuzz`). replay.cpp calls one of all targets with a bounded number of random inputs (`make test`).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace coeus::fuzz {

/// The fuzzing target of a reader.
struct Target {
    /// Reads the input. A wrong input must end with a ConfigError. Anything else (another exception, a crash,
    /// a hang, heavy use of memory) is a finding.
    using ReadInput = void (*)(std::string_view);
    /// Returns small valid inputs to begin with.
    using Seeds = std::vector<std::string> (*)();

    std::string name;
    ReadInput read_input;
    Seeds seeds;

    /// Adds itself to targets().
    Target(std::string name, ReadInput read_input, Seeds seeds);
    /// Reads the input and ignores ConfigErrors; any other exception ends the process with a message.
    void check_input(std::string_view input) const;
};

/// Those of this program.
std::vector<Target>& targets();

/// A folder of this process, removed when the process ends.
const std::filesystem::path& scratch();
/// Writes a file into scratch() and returns its path.
std::string write_scratch(const std::string& name, std::string_view content);
std::string read_scratch(const std::string& name);

}  // namespace coeus::fuzz
