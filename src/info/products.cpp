// SPDX-License-Identifier: Apache-2.0
// coeus info --products: the algorithms that searches on GPUs have kept, and how fast they were.
#include "coeus/base/error.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/kernels/algorithm_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

namespace coeus::info {

namespace {

namespace fs = std::filesystem;

/// The content of a folder: kept algorithms by the names of their files, and files that are something else.
struct Folder {
    std::map<std::string, cuda::KeptAlgorithm> kept;
    std::vector<std::string> others;
};

std::optional<cuda::KeptAlgorithm> read(const fs::path& file) {
    std::optional<cuda::KeptAlgorithm> kept = cuda::KeptAlgorithm::read(file);
    const bool is_whole = kept && cuda::file_name_of(kept->problem) == file.filename().string() &&
                          (cuda::operations_of(kept->problem) || !cuda::backward_in(*kept).empty());
    return is_whole ? kept : std::nullopt;
}

/// The files of a folder and of the folders in it.
std::map<fs::path, Folder> read_folders(const fs::path& root) {
    std::map<fs::path, Folder> folders;
    std::error_code failed;
    constexpr auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator entry(root, options, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        if (entry.depth() > 0) entry.disable_recursion_pending();
        if (!entry->is_regular_file(failed) || entry->path().extension() == cuda::timing_suffix) continue;
        Folder& folder = folders[entry->path().parent_path()];
        const std::string name = entry->path().filename().string();
        if (auto kept = read(entry->path()))
            folder.kept.emplace(name, *std::move(kept));
        else
            folder.others.push_back(name);
    }
    if (failed)
        throw ConfigError("coeus info --products: cannot read {}: {}", root.string(), failed.message());
    return folders;
}

/// Which backward of attention; for products eight digits, the same for equal algorithms.
std::string algorithm_name(const cuda::KeptAlgorithm& kept) {
    if (std::string backward = cuda::backward_in(kept); !backward.empty()) return backward;
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t word : kept.algorithm) hash = (hash ^ word ^ word >> 32) * 0x100000001b3;
    return fmt::format("{:08x}", uint32_t(hash ^ hash >> 32));
}

void show(const fs::path& path, const Folder& folder) {
    size_t width = 4;
    for (const auto& [name, kept] : folder.kept)
        if (kept.timing) width = std::max(width, kept.timing->host.size());
    print("{}: {} product{}\n", path.string(), folder.kept.size(), folder.kept.size() == 1 ? "" : "s");
    if (!folder.kept.empty())
        print("  {:>8} {:>10} {:>4} {:>5}  {:<10}  {:<{}}  {:>6}  {:<9}  {}\n", "TFLOP/s", "ms", "W", "MHz",
              "date", "host", width, "driver", "algorithm", "product");
    for (const auto& [name, kept] : folder.kept) {
        std::string speed = "-", time = "-", watts = "-", clock = "-", date = "-", host = "-", driver = "-";
        if (const auto& timing = kept.timing) {
            if (const auto operations = cuda::operations_of(kept.problem))
                speed = fmt::format("{:.1f}", 1e-12 * *operations / timing->seconds);
            time = fmt::format("{:.4f}", 1e3 * timing->seconds);
            if (const auto& steady = timing->steady; steady && steady->watts > 0)
                watts = fmt::format("{}", steady->watts), clock = fmt::format("{}", steady->megahertz);
            date = cuda::date_text(timing->date).substr(0, 10);
            host = timing->host;
            driver = fmt::format("{}.{}", timing->driver / 1000, timing->driver % 1000 / 10);
        }
        print("  {:>8} {:>10} {:>4} {:>5}  {:<10}  {:<{}}  {:>6}  {:<9}  {}\n", speed, time, watts, clock,
              date, host, width, driver, algorithm_name(kept), kept.problem);
    }
    for (const std::string& name : folder.others)
        print("  skipped {}: it is not an algorithm that Coeus has kept\n", name);
}

}  // namespace

void show_products(const std::string& folder) {
    const std::string root = folder.empty() ? user_cache("products") : folder;
    if (root.empty())
        throw ConfigError(
            "coeus info --products: neither XDG_CACHE_HOME nor HOME is set, so there is no usual folder; "
            "give one: coeus info --products FOLDER");
    std::error_code unseen;
    const bool exists = fs::exists(root, unseen);
    if (exists && !fs::is_directory(root, unseen))
        throw ConfigError("coeus info --products: {} is a file; give its folder", root);
    if (!exists && !folder.empty())
        throw ConfigError("coeus info --products: {}: this folder does not exist", folder);
    const std::map<fs::path, Folder> folders = exists ? read_folders(root) : std::map<fs::path, Folder>();
    if (std::ranges::all_of(folders, [](const auto& entry) { return entry.second.kept.empty(); })) {
        const std::string text = fmt::format(
            "{} has no algorithms of products; a run on a GPU with kernels.autotune = true keeps them in {}",
            root, folder.empty() ? "it" : "~/.cache/coeus/products");
        if (!folder.empty()) throw ConfigError("coeus info --products: {}", text);
        print("{}\n", text);
        return;
    }
    bool is_first = true;
    for (const auto& [path, content] : folders) {
        if (!std::exchange(is_first, false)) print("\n");
        show(path, content);
    }
}

}  // namespace coeus::info
