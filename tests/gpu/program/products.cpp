// SPDX-License-Identifier: Apache-2.0
// coeus products on a GPU, as a user starts it.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// `coeus products` of a tiny deck, with a folder of products of its own.
Outcome search(const TemporaryFolder& folder, const fs::path& cache, const Arguments& more, int ranks = 0) {
    write_file(folder / "tiny.toml", "[job]\ndescription = \"products\"\n");
    Arguments tiny = tiny_run(folder / "run", "absent.h5", {"--device=cuda", "--seconds=1e-6"});
    tiny.front() = "products";
    tiny.insert(tiny.begin() + 1, (folder / "tiny.toml").string());
    return run_coeus(tiny + more, ranks, {{"XDG_CACHE_HOME", cache.string()}});
}

fs::path first_algorithm(const fs::path& cache) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(cache / "coeus/products"))
        if (entry.is_regular_file() && entry.path().extension() != ".time") files.push_back(entry.path());
    REQUIRE_FALSE(files.empty());
    return *std::min_element(files.begin(), files.end());
}

}  // namespace

TEST_CASE("GPU: products searches for the products of a step, keeps them, and runs take them") {
    const TemporaryFolder folder;
    const Outcome first =
        search(folder, folder / "cache", {"--validation.enable", "--validation.dataset_path=absent.h5"});
    INFO(first.output);
    REQUIRE(first.exit_code == 0);
    CHECK_THAT(first.output, Contains("short turns") && Contains("  kept  ") && Contains(" products, in "));
    CHECK(count_of("kept before", first.output) == 0);
    const Outcome again = search(folder, folder / "cache", {});
    INFO(again.output);
    CHECK(again.exit_code == 0);
    CHECK(count_of("  kept  ", again.output) == 0);
    CHECK_THAT(again.output, Contains("  kept before"));
    // another algorithm than the best one is replaced only if that is asked for
    const fs::path file = first_algorithm(folder / "cache");
    const std::string best = read_file(file);
    std::string other = best;
    other[other.find('\t') + 32] = '1';  // the number of the algorithm
    write_file(file, other);
    CHECK(search(folder, folder / "cache", {}).exit_code == 0);
    CHECK(read_file(file) == other);
    const Outcome replaced = search(folder, folder / "cache", {"--replace"});
    INFO(replaced.output);
    CHECK(replaced.exit_code == 0);
    CHECK(count_of("  replaced, took ", replaced.output) == 1);
    CHECK(read_file(file) == best);
    // ranks with equal products show them once
    const Outcome two = search(folder, folder / "cache", {"--parallelism.data_parallel_shard_degree=2"}, 2);
    INFO(two.output);
    CHECK(two.exit_code == 0);
    CHECK(count_of(" products, in ", two.output) == 1);
}

TEST_CASE("GPU: products refuses what would keep nothing, before it takes memory") {
    const TemporaryFolder folder;
    const auto refused = [&](const fs::path& cache, const Arguments& more, const std::string& text) {
        const Outcome outcome = search(folder, cache, more);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 2);
        CHECK_THAT(outcome.output, Contains(text));
        CHECK(count_of("Searching on", outcome.output) == 0);
    };
    refused(folder / "cache", {"--device=cpu"},
            "coeus products: this run would compute on the CPU (device = \"cpu\")");
    refused(
        folder / "cache", {"--kernels.no_autotune"},
        "kernels.autotune = false: runs of this deck take cuBLASLt's first suggestions, whatever is kept");
    write_file(folder / "file", "not a folder\n");
    refused(folder / "file", {}, "/file/coeus/products cannot be written to");
    refused(folder / "cache", {"--parallelism.tensor_parallel_degree=2"},
            "parallelism.tensor_parallel_degree");
    refused(folder / "cache", {"--second=1"}, "--second");
    refused(folder / "cache", {"--seconds=0"}, "--seconds");
    refused(folder / "cache", {"other.toml"}, "coeus products: takes one deck, but got ");
}
