// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/algorithm_cache.hpp"

#include "coeus/base/host_name.hpp"
#include "coeus/base/log.hpp"

#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace coeus::cuda {

namespace {

constexpr const char* date_format = "%Y-%m-%dT%H:%M:%SZ";

int64_t date_of(const std::string& text) {
    tm utc = {};
    return strptime(text.c_str(), date_format, &utc) ? int64_t(timegm(&utc)) : 0;
}

// Versions before steady searches take a text with watts for no timing, and time the algorithm again.
std::string text_of(const Timing& timing) {
    return fmt::format(
        "seconds {:.3e} date {} host {} driver {}{}\n", timing.seconds, date_text(timing.date), timing.host,
        timing.driver,
        timing.steady ? fmt::format(" watts {} mhz {}", timing.steady->watts, timing.steady->megahertz) : "");
}

std::optional<Timing> timing_of(const std::string& text) {
    std::istringstream words(text);
    std::string name, date;
    Timing timing;
    words >> name >> timing.seconds >> name >> date >> name >> timing.host >> name >> timing.driver;
    if (Timing::Steady steady; words >> name >> steady.watts >> name >> steady.megahertz)
        timing.steady = steady;
    timing.date = date_of(date);
    return timing.seconds > 0 && text_of(timing) == text ? std::optional(timing) : std::nullopt;
}

Algorithm algorithm_of(const std::string& digits) {
    constexpr size_t of_word = 16;
    Algorithm algorithm = {};
    for (size_t i = 0; i < algorithm.size() && (i + 1) * of_word <= digits.size(); ++i)
        algorithm[i] = std::strtoull(digits.substr(i * of_word, of_word).c_str(), nullptr, 16);
    return algorithm;
}

std::optional<KeptAlgorithm> algorithm_in(const std::string& text) {
    std::istringstream words(text);
    KeptAlgorithm kept;
    std::string digits;
    std::getline(words, kept.problem, '\t');
    std::getline(words, digits);
    kept.algorithm = algorithm_of(digits);
    return kept.text() == text ? std::optional(kept) : std::nullopt;
}

// The content of a file; only the beginning if it is longer than files of Coeus.
std::string content_of(const std::filesystem::path& file) {
    constexpr int most = 4096;
    std::string text(size_t(most), '\0');
    std::ifstream in(file, std::ios::binary);
    in.read(text.data(), most);
    text.resize(size_t(in.gcount()));
    return text;
}

// Part of a temporary file's name that no other process on any host uses.
std::string name_of_this_process() {
    return fmt::format("{}.{}", file_name_of(host_name()), getpid());
}

}  // namespace

std::string date_text(int64_t date) {
    const auto seconds = time_t(date);
    tm utc = {};
    gmtime_r(&seconds, &utc);
    std::array<char, 32> text = {};
    strftime(text.data(), text.size(), date_format, &utc);
    return text.data();
}

Timing Timing::now(double seconds, int driver, std::optional<Steady> steady) {
    return {seconds, int64_t(time(nullptr)), file_name_of(host_name()), driver, steady};
}

// The problem, a tab, the words of the algorithm. Coeus 0.2 requires exactly this.
std::string KeptAlgorithm::text() const {
    std::string all = problem + "\t";
    for (const uint64_t word : algorithm) all += fmt::format("{:016x}", word);
    return all + "\n";
}

std::string KeptAlgorithm::timing_text() const {
    return text() + text_of(timing.value());
}

std::optional<KeptAlgorithm> KeptAlgorithm::read(const std::filesystem::path& file) {
    const std::string text = content_of(file), timing_text = content_of(file.string() + timing_suffix);
    std::optional<KeptAlgorithm> kept = algorithm_in(text);
    if (kept && timing_text.starts_with(text)) kept->timing = timing_of(timing_text.substr(text.size()));
    return kept;
}

std::string file_name_of(const std::string& text) {
    std::string name = text;
    for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr(".,-", c)) c = '_';
    return name;
}

std::optional<double> operations_of(const std::string& problem) {
    // the sizes come after the types of operands and result
    const size_t of_result = problem.find('-'),
                 begin = of_result == std::string::npos ? of_result : problem.find('-', of_result + 1);
    if (begin == std::string::npos) return std::nullopt;
    std::istringstream sizes(problem.substr(begin + 1));
    int64_t m = 0, n = 0, k = 0;
    char first = 0, second = 0;
    sizes >> m >> first >> n >> second >> k;
    const bool is_product = sizes && first == 'x' && second == 'x' && m > 0 && n > 0 && k > 0;
    return is_product ? std::optional(2.0 * double(m) * double(n) * double(k)) : std::nullopt;
}

std::string backward_in(const KeptAlgorithm& kept) {
    Algorithm rest = kept.algorithm;
    const uint64_t number = std::exchange(rest[0], 0);
    if (!kept.problem.starts_with("attention of ") || rest != Algorithm{} || number > 1) return "";
    return number == 1 ? "own" : "cuDNN";
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

std::optional<KeptAlgorithm> AlgorithmCache::find(const std::string& problem) {
    if (!keeps()) return std::nullopt;
    const std::string path = path_of(problem);
    if (access(path.c_str(), R_OK) != 0) return std::nullopt;
    std::optional<KeptAlgorithm> kept = KeptAlgorithm::read(path);
    if (kept && kept->problem == problem) return kept;
    reject(problem, "it was not written by Coeus");
    return std::nullopt;
}

void AlgorithmCache::reject(const std::string& problem, const std::string& why) {
    rejected_ = problem;
    if (!has_warned_) log::warn("ignoring {}: {}", path_of(problem), why);
    has_warned_ = true;
}

std::string AlgorithmCache::write_temporary(const std::string& text) const {
    std::string temporary = folder_ + "/." + name_of_this_process();
    if ((std::ofstream(temporary, std::ios::binary) << text).flush()) return temporary;
    unlink(temporary.c_str());
    return "";
}

std::optional<KeptAlgorithm> AlgorithmCache::keep(const KeptAlgorithm& found) {
    if (!keeps()) return std::nullopt;
    const std::string path = path_of(found.problem), temporary = write_temporary(found.text());
    if (temporary.empty()) return std::nullopt;
    // link() creates the file completely or not at all, and fails if a file of that name exists
    const bool is_first = rejected_ != found.problem ? link(temporary.c_str(), path.c_str()) == 0
                                                     : rename(temporary.c_str(), path.c_str()) == 0;
    const bool has_other = !is_first && errno == EEXIST;
    unlink(temporary.c_str());
    rejected_.clear();
    if (!is_first) return has_other ? find(found.problem) : std::nullopt;
    if (found.timing) renew(found);
    return found;
}

bool AlgorithmCache::replace(const KeptAlgorithm& found) {
    const std::string temporary = keeps() ? write_temporary(found.text()) : "";
    if (temporary.empty()) return false;
    const bool is_kept = rename(temporary.c_str(), path_of(found.problem).c_str()) == 0;
    if (!is_kept) unlink(temporary.c_str());
    if (is_kept && found.timing) renew(found);
    return is_kept;
}

void AlgorithmCache::renew(const KeptAlgorithm& kept) const {
    const std::string temporary = keeps() ? write_temporary(kept.timing_text()) : "",
                      path = path_of(kept.problem) + timing_suffix;
    if (!temporary.empty() && rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

}  // namespace coeus::cuda
