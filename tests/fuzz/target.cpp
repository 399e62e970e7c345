// SPDX-License-Identifier: Apache-2.0
#include "target.hpp"

#include "coeus/base/error.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

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

Target::Target(std::string target_name, ReadInput read, Seeds first)
    : name(std::move(target_name)), read_input(read), seeds(first) {
    targets().push_back(*this);
}

void Target::check_input(std::string_view input) const {
    try {
        read_input(input);
    } catch (const ConfigError&) {
    } catch (const std::exception& error) {
        std::fprintf(stderr, "not a ConfigError: %s\n", error.what());
        std::abort();
    }
}

std::vector<Target>& targets() {
    static std::vector<Target> all;
    return all;
}

}  // namespace coeus::fuzz
