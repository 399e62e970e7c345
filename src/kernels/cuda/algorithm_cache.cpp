// SPDX-License-Identifier: Apache-2.0
#include "algorithm_cache.hpp"

#include "coeus/base/host_name.hpp"
#include "coeus/base/log.hpp"

#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace coeus::cuda {

namespace {

// The text of a file: the problem, a tab, the words of the algorithm.
std::string text_of(const std::string& problem, const Algorithm& algorithm) {
    std::string text = problem + "\t";
    for (const uint64_t word : algorithm) text += fmt::format("{:016x}", word);
    return text + "\n";
}

std::optional<Algorithm> algorithm_of(const std::string& text, const std::string& problem) {
    constexpr size_t digits = 16;
    const size_t begin = problem.size() + 1;
    Algorithm algorithm = {};
    if (text.size() != begin + digits * algorithm.size() + 1) return std::nullopt;
    for (size_t i = 0; i < algorithm.size(); ++i)
        algorithm[i] = std::strtoull(text.substr(begin + i * digits, digits).c_str(), nullptr, 16);
    return text_of(problem, algorithm) == text ? std::optional(algorithm) : std::nullopt;
}

// Part of a temporary file's name that no other process on any host uses.
std::string name_of_this_process() {
    return fmt::format("{}.{}", file_name_of(host_name()), getpid());
}

}  // namespace

std::string file_name_of(const std::string& text) {
    std::string name = text;
    for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr(".,-", c)) c = '_';
    return name;
}

AlgorithmCache::AlgorithmCache(const std::string& folder) {
    if (folder.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    if (access(folder.c_str(), R_OK | W_OK | X_OK) == 0) folder_ = folder;
}

std::string AlgorithmCache::path_of(const std::string& problem) const {
    return folder_ + "/" + file_name_of(problem);
}

std::optional<Algorithm> AlgorithmCache::find(const std::string& problem) {
    if (!keeps()) return std::nullopt;
    std::ifstream in(path_of(problem), std::ios::binary);
    if (!in) return std::nullopt;
    std::ostringstream text;
    text << in.rdbuf();
    const std::optional<Algorithm> algorithm = algorithm_of(text.str(), problem);
    if (!algorithm) reject(problem, "it was not written by Coeus");
    return algorithm;
}

void AlgorithmCache::reject(const std::string& problem, const std::string& why) {
    rejected_ = problem;
    if (!has_warned_) log::warn("ignoring {}: {}", path_of(problem), why);
    has_warned_ = true;
}

std::optional<Algorithm> AlgorithmCache::keep(const std::string& problem, const Algorithm& algorithm) {
    if (!keeps()) return std::nullopt;
    const std::string path = path_of(problem), temporary = folder_ + "/." + name_of_this_process();
    if (!(std::ofstream(temporary, std::ios::binary) << text_of(problem, algorithm)).flush()) {
        unlink(temporary.c_str());
        return std::nullopt;
    }
    // link() creates the file completely or not at all, and fails if a file of that name exists
    const bool is_first = rejected_ != problem ? link(temporary.c_str(), path.c_str()) == 0
                                               : rename(temporary.c_str(), path.c_str()) == 0;
    const bool has_other = !is_first && errno == EEXIST;
    unlink(temporary.c_str());
    rejected_.clear();
    if (is_first) return algorithm;
    return has_other ? find(problem) : std::nullopt;
}

}  // namespace coeus::cuda
