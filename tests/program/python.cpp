// SPDX-License-Identifier: Apache-2.0
#include "program/python.hpp"

#include "support/paths.hpp"

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

namespace coeus::test {

std::string python_with(const std::string& name) {
    std::string upper = name;
    for (char& c : upper) c = char(std::toupper(uint8_t(c)));
    const char* given = std::getenv(("COEUS_" + upper + "_PYTHON").c_str());
    namespace fs = std::filesystem;
    const fs::path python =
        given ? fs::path(given) : fs::path(paths::program()).parent_path() / ("venv-" + name) / "bin/python";
    return fs::exists(python) ? python.string() : "";
}

}  // namespace coeus::test
