// SPDX-License-Identifier: Apache-2.0
#include "target.hpp"

#include "coeus/base/error.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace coeus::fuzz {

namespace fs = std::filesystem;

namespace {

struct Scratch {
    fs::path path = fs::temp_directory_path() / ("coeus-fuzz-" + std::to_string(getpid()));
    Scratch() { fs::create_directories(path); }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

}  // namespace

const fs::path& scratch() {
    static const Scratch folder;
    return folder.path;
}

std::string write_scratch(const std::string& name, std::string_view content) {
    const fs::path path = scratch() / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
}

std::string read_scratch(const std::string& name) {
    std::ifstream in(scratch() / name, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    return content.str();
}

void check_input(std::string_view input) {
    try {
        read_input(input);
    } catch (const ConfigError&) {
    } catch (const std::exception& error) {
        std::fprintf(stderr, "not a ConfigError: %s\n", error.what());
        std::abort();
    }
}

}  // namespace coeus::fuzz
