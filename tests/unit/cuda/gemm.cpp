// SPDX-License-Identifier: Apache-2.0
// The choice among cuBLASLt's algorithms for a product, with the emulation's stand-in; the results of
// products are tested in tests/gpu.
#include "coeus/kernels/autotune.hpp"
#include "coeus/kernels/kernels.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/cublasLt.h"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t m = 6, n = 4, k = 8;

/// Two equal products of a new Exec: how many products the library was given for each.
struct Given {
    size_t first, second;
    bool operator==(const Given&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Given& given) {
    return out << given.first << " and " << given.second;
}

Given two_products(const std::string& folder) {
    const Memory& memory = the_gpu().memory();
    const OwnedTensor a(Dtype::f32, {m, k}, "a", memory), b(Dtype::f32, {k, n}, "b", memory),
        d(Dtype::f32, {m, n}, "d", memory);
    Exec planning, exec(the_gpu());
    dry_cuda_kernels().gemm(planning, d, a.view, b.view, {});
    exec.workspace = Arena(planning.workspace.peak(), "workspace", memory);
    if (!folder.empty()) autotune_products(exec, folder);
    const auto product = [&] {
        const size_t before = emulation::products();
        cuda_kernels().gemm(exec, d, a.view, b.view, {});
        exec.queue->finish();
        return emulation::products() - before;
    };
    const size_t first = product();
    return {first, product()};
}

constexpr Given no_search = {1, 1};

std::vector<fs::path> files_of(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
}

}  // namespace

TEST_CASE("products search if they are told to, once for each shape, in the first of all runs") {
    const TemporaryFolder folder;
    CHECK(two_products("") == no_search);
    const Given given = two_products(folder.path());
    CHECK(given.first > 10);
    CHECK(given.second == 1);
    REQUIRE(files_of(folder.path()).size() == 1);
    CHECK(files_of(folder.path()).front().filename().string().find("6x4x8") != std::string::npos);
    CHECK(two_products(folder.path()) == no_search);
}

TEST_CASE("a search for algorithms begins only when nothing else is under way on the device") {
    const TemporaryFolder folder;
    const Memory& memory = the_gpu().memory();
    const OwnedTensor a(Dtype::f32, {m, k}, "a", memory), b(Dtype::f32, {k, n}, "b", memory),
        d(Dtype::f32, {m, n}, "d", memory);
    Exec exec(the_gpu()), other(the_gpu());
    exec.workspace = Arena(int64_t(32) << 20, "workspace", memory);
    autotune_products(exec, folder.path());
    const std::unique_ptr<Event> event = the_gpu().make_event();
    for (int i = 0; i < 1000; ++i) cuda_kernels().zero(other, b);
    event->record(*other.queue);
    REQUIRE_FALSE(event->passed());
    cuda_kernels().gemm(exec, d, a.view, b.view, {});
    CHECK(event->passed());
    exec.queue->finish();
}

TEST_CASE("products search again if the stored algorithm is not valid for the library") {
    const TemporaryFolder folder;
    two_products(folder.path());
    const fs::path file = files_of(folder.path()).front();
    std::string text;
    std::getline(std::ifstream(file), text);
    SECTION("a truncated entry") {
        text.resize(text.size() / 2);
    }
    SECTION("an unknown algorithm") {
        text.replace(text.find('\t') + 1, 16, "00000000000000ff");
    }
    std::ofstream(file) << text << "\n";
    CHECK(two_products(folder.path()).first > 10);
    CHECK(two_products(folder.path()) == no_search);
}

TEST_CASE("products do not search if nothing can be stored") {
    const TemporaryFolder folder;
    std::ofstream(folder / "file") << "not a folder\n";
    CHECK(two_products(folder / "file") == no_search);
}
