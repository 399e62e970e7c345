// SPDX-License-Identifier: Apache-2.0
#include "support/paths.hpp"

#include "coeus/base/error.hpp"
#include "support/support.hpp"

#include <filesystem>
#include <map>

namespace coeus::test::paths {

namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> read() {
    const fs::path file = fs::read_symlink("/proc/self/exe").parent_path() / "paths.txt";
    std::map<std::string, std::string> all;
    for (const std::string& line : lines_of(read_file(file))) {
        const size_t space = line.find(' ');
        all[line.substr(0, space)] = line.substr(space + 1);
    }
    return all;
}

std::string path(const std::string& name) {
    static const std::map<std::string, std::string> all = read();
    const auto found = all.find(name);
    if (found == all.end()) throw LogicError("paths.txt next to this program has no line " + name);
    return found->second;
}

}  // namespace

std::string source() {
    return path("source");
}
std::string program() {
    return path("program");
}
std::string emulated_program() {
    return path("emulated_program");
}
std::string cache() {
    return path("cache");
}
std::string mpirun() {
    return path("mpirun");
}
std::string naps() {
    return path("naps");
}
std::string exits() {
    return path("exits");
}
std::string counter() {
    return path("counter");
}
std::string disk() {
    return path("disk");
}
std::string bad_reads() {
    return path("bad_reads");
}
std::string hosts() {
    return path("hosts");
}
std::string nvml() {
    return path("nvml");
}
std::string nccl() {
    return path("nccl");
}
std::string nccl_unsplit() {
    return path("nccl_unsplit");
}
std::string nccl_old() {
    return path("nccl_old");
}
std::string nccl_partial() {
    return path("nccl_partial");
}
std::string nccl_shared() {
    return path("nccl_shared");
}
std::string nccl_emulated() {
    return path("nccl_emulated");
}

}  // namespace coeus::test::paths
