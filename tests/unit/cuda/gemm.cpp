// SPDX-License-Identifier: Apache-2.0
// The choice among cuBLASLt's algorithms for a product, with the emulation's stand-in; the results of
// products are tested in tests/gpu.
#include "coeus/base/log.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/cublasLt.h"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <ctime>
#include <fstream>
#include <sstream>

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

Given two_products(const ProductOptions& options) {
    const Memory& memory = the_gpu().memory();
    const OwnedTensor a(Dtype::f32, {m, k}, "a", memory), b(Dtype::f32, {k, n}, "b", memory),
        d(Dtype::f32, {m, n}, "d", memory);
    Exec planning, exec(the_gpu());
    dry_cuda_kernels().gemm(planning, d, a.view, b.view, {});
    exec.workspace = Arena(planning.workspace.peak(), "workspace", memory);
    set_product_options(exec, options);
    const auto product = [&] {
        const size_t before = emulation::products();
        cuda_kernels().gemm(exec, d, a.view, b.view, {});
        exec.queue->finish();
        return emulation::products() - before;
    };
    const size_t first = product();
    return {first, product()};
}

Given two_products(const std::string& folder) {
    return two_products(ProductOptions{.folder = folder});
}

constexpr Given no_search = {1, 1};

/// The times of the library's suggestions while this object lives.
class Suggestions {
public:
    explicit Suggestions(const std::array<size_t, 3>& microseconds) {
        emulation::set_microseconds(microseconds);
    }
    ~Suggestions() { emulation::set_microseconds({1, 1, 1}); }
    Suggestions(const Suggestions&) = delete;
    Suggestions& operator=(const Suggestions&) = delete;
};

std::string content(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

/// The files of algorithms.
std::vector<fs::path> files_of(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() != cuda::timing_suffix)
            files.push_back(entry.path());
    return files;
}

cuda::KeptAlgorithm kept_in(const fs::path& folder) {
    const std::vector<fs::path> files = files_of(folder);
    REQUIRE(files.size() == 1);
    const auto kept = cuda::KeptAlgorithm::read(files.front());
    REQUIRE(kept);
    return *kept;
}
/// In the stand-in's algorithms, the second word is their number.
uint64_t number_of(const cuda::KeptAlgorithm& kept) {
    return kept.algorithm[1];
}

void set_date(const fs::path& folder, int64_t days_ago) {
    cuda::KeptAlgorithm kept = kept_in(folder);
    REQUIRE(kept.timing);
    kept.timing->date = int64_t(time(nullptr)) - days_ago * 86400;
    std::ofstream(files_of(folder).front().string() + cuda::timing_suffix) << kept.timing_text();
}

/// What is logged while two products run.
std::string said_by_two_products(const ProductOptions& options) {
    const TemporaryFolder folder;
    log::init({.file = (folder / "log").string(), .quiet = true});
    two_products(options);
    log::flush();
    log::init({});
    return content(folder / "log");
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
    set_product_options(exec, {.folder = folder.path()});
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

TEST_CASE("the search counts the GPU's time, and keeps it") {
    const TemporaryFolder folder;
    const Suggestions suggestions({5, 3, 4});
    const auto before = int64_t(time(nullptr));
    two_products(folder.path());
    const cuda::KeptAlgorithm kept = kept_in(folder.path());
    CHECK(number_of(kept) == 1);
    REQUIRE(kept.timing);
    CHECK(kept.timing->seconds == Approx(3e-6));
    CHECK(kept.timing->date >= before);
    CHECK(kept.timing->date <= int64_t(time(nullptr)));
    CHECK_FALSE(kept.timing->host.empty());
    CHECK(kept.timing->driver == 13000);
    CHECK(cuda::operations_of(kept.problem) == 2.0 * m * n * k);
}

TEST_CASE("a search restores the sums to which a product adds, from the GPU or, if it lacks room, the host") {
    const size_t bytes = size_t(m * n) * sizeof(float), room = 2 * bytes + (size_t(1) << 30);
    const bool has_room = GENERATE(true, false);
    CAPTURE(has_room);
    emulation::free_memory = has_room ? room : room - 1;
    const TemporaryFolder folder;
    constexpr int64_t ld = n + 3;
    const Memory& memory = the_gpu().memory();
    const OwnedTensor a(Dtype::f32, {m, k}, "a", memory), b(Dtype::f32, {k, n}, "b", memory),
        wide(Dtype::f32, {m, ld}, "d", memory);
    std::vector<float> values(size_t(m * ld)), result(values.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i + 1);
    the_gpu().copy(wide.view.data, values.data(), wide.view.bytes());
    const std::vector<float> ones(size_t(m * k), 1.0f);  // so that a product is k
    for (const OwnedTensor* operand : {&a, &b})
        the_gpu().copy(operand->view.data, ones.data(), operand->view.bytes());
    Exec exec(the_gpu());
    exec.workspace = Arena(int64_t(32) << 20, "workspace", memory);
    set_product_options(exec, {.folder = folder.path()});
    const Tensor d = wide.view.slice_cols(0, n), first_row = d.slice_rows(0, 1);
    cuda_kernels().gemm(exec, first_row, a.view.slice_rows(0, 1), b.view, {});  // makes events
    const size_t events_made = emulation::allocations();
    cuda_kernels().gemm(exec, d, a.view, b.view, d);
    CHECK(emulation::allocations() - events_made == (has_room ? 1 : 0));
    cuda_kernels().gemm(exec, d, a.view, b.view, d);
    CHECK(emulation::allocations() - events_made == (has_room ? 1 : 0));
    exec.queue->finish();
    the_gpu().copy(result.data(), wide.view.data, wide.view.bytes());
    for (size_t i = 0; i < size_t(m); ++i)
        for (size_t j = 0; j < size_t(n); ++j) {
            float& value = values[i * size_t(ld) + j];
            value = (i == 0 ? float(k) : value) + 2 * float(k);
        }
    CHECK(result == values);
    emulation::free_memory = emulation::all_memory;
}

TEST_CASE(
    "a steady search keeps the algorithm with the least steady time, and replaces another only if told to") {
    const TemporaryFolder folder;
    const auto search = [&](const std::array<size_t, 3>& microseconds, bool replaces) {
        const Suggestions suggestions(microseconds);
        const Memory& memory = the_gpu().memory();
        const OwnedTensor a(Dtype::f32, {m, k}, "a", memory), b(Dtype::f32, {k, n}, "b", memory),
            d(Dtype::f32, {m, n}, "d", memory);
        Exec exec(the_gpu());
        exec.workspace = Arena(int64_t(32) << 20, "workspace", memory);
        set_product_options(
            exec, {.folder = folder.path(), .steady = SteadySearch{.seconds = 2e-5, .replaces = replaces}});
        cuda_kernels().gemm(exec, d, a.view, b.view, {});
        cuda_kernels().gemm(exec, d, a.view, b.view, {});
        const std::vector<SearchedProduct> found = searched_products(exec);
        REQUIRE(found.size() == 1);
        CHECK(found[0].operations == 2.0 * m * n * k);
        CHECK(found[0].algorithms == 3);
        CHECK(found[0].shortest_turn == Approx(found[0].of_short_turns.seconds));
        CHECK(found[0].best.watts == 0);  // there is no driver to ask
        CHECK(found[0].end == SearchedProduct::End::not_kept);
        CHECK_THROWS_WITH(keep_searched(exec, "1x2x3"), Catch::Contains("was not searched for"));
        SearchedProduct kept = keep_searched(exec, found[0].problem);
        CHECK(kept.problem == kept_in(folder.path()).problem);
        return kept;
    };
    using End = SearchedProduct::End;
    const SearchedProduct first = search({5, 3, 4}, false);
    CHECK(first.end == End::kept);
    CHECK(first.best.seconds == Approx(3e-6));
    CHECK_FALSE(first.kept_before);
    CHECK(number_of(kept_in(folder.path())) == 1);
    CHECK(kept_in(folder.path()).timing->steady.has_value());
    // the kept one stays, with its new time
    const SearchedProduct again = search({2, 6, 4}, false);
    CHECK(again.end == End::had_been_kept);
    CHECK(again.best.seconds == Approx(2e-6));
    REQUIRE(again.kept_before);
    CHECK(again.kept_before->seconds == Approx(6e-6));
    CHECK(number_of(kept_in(folder.path())) == 1);
    CHECK(kept_in(folder.path()).timing->seconds == Approx(6e-6));
    const SearchedProduct replaced = search({2, 6, 4}, true);
    CHECK(replaced.end == End::replaced);
    CHECK(replaced.best.seconds == Approx(2e-6));
    CHECK(number_of(kept_in(folder.path())) == 0);
    CHECK(search({2, 6, 4}, true).end == End::had_been_kept);
    // a run takes it without a search
    CHECK(two_products(folder.path()) == no_search);
}

TEST_CASE("kept algorithms are timed again if they are old or if this is asked for, and used nevertheless") {
    const TemporaryFolder folder;
    {
        const Suggestions suggestions({5, 3, 4});
        two_products(folder.path());
    }
    const Suggestions suggestions({4, 5, 1});
    const std::string file = files_of(folder.path()).front().string();
    const ProductOptions none = {.folder = folder.path(), .recheck = Recheck::none},
                         old = {.folder = folder.path(), .recheck = Recheck::old},
                         all = {.folder = folder.path(), .recheck = Recheck::all};
    const std::string warning =
        "takes 0.005 ms, and cuBLASLt's first suggestion 0.004 ms. It is used nevertheless, so that a "
        "resumed run has the same bits. To search again, delete " +
        file;
    SECTION("all") {
        CHECK_THAT(said_by_two_products(all),
                   Catch::Contains("the algorithm kept for the product float32-float32-6x4x8-") &&
                       Catch::Contains(warning));
        REQUIRE(kept_in(folder.path()).timing);
        CHECK(kept_in(folder.path()).timing->seconds == Approx(5e-6));
    }
    SECTION("old ones") {
        set_date(folder.path(), 29);
        CHECK(said_by_two_products(old).empty());
        CHECK(two_products(old) == no_search);
        set_date(folder.path(), 31);
        CHECK(two_products(none) == no_search);
        CHECK_THAT(said_by_two_products(old), Catch::Contains(warning));
        CHECK(two_products(old) == no_search);  // it is new again
    }
    SECTION("those without a time, as Coeus 0.2 keeps them") {
        fs::remove(file + cuda::timing_suffix);
        const std::string text = content(file);
        CHECK_THAT(said_by_two_products(old), Catch::Contains(warning));
        CHECK(kept_in(folder.path()).timing);
        CHECK(content(file) == text);
    }
    SECTION("a difference of less than 5 % is not reported") {
        emulation::set_microseconds({100, 104, 1});
        CHECK(said_by_two_products(all).empty());
    }
    CHECK(number_of(kept_in(folder.path())) == 1);
}

TEST_CASE("without the file of an algorithm, products search again, whatever time was kept") {
    const TemporaryFolder folder;
    two_products(folder.path());
    fs::remove(files_of(folder.path()).front());
    const Suggestions suggestions({5, 3, 4});
    CHECK(two_products(folder.path()).first > 10);
    const cuda::KeptAlgorithm kept = kept_in(folder.path());
    CHECK(number_of(kept) == 1);
    REQUIRE(kept.timing);
    CHECK(kept.timing->seconds == Approx(3e-6));
}

TEST_CASE("a margin of multiprocessors is given to the library, and has algorithms of its own") {
    const TemporaryFolder folder;
    two_products(folder.path());
    CHECK(emulation::last_sm_count_target() == 0);
    const ProductOptions options = {.folder = folder.path(), .sm_margin = 16};
    CHECK(two_products(options).first > 10);
    CHECK(emulation::last_sm_count_target() == 132 - 16);
    CHECK(two_products(options) == no_search);
    CHECK(emulation::last_sm_count_target() == 132 - 16);
    const std::vector<fs::path> files = files_of(folder.path());
    REQUIRE(files.size() == 2);
    const bool is_first = files[0].filename().string().size() > files[1].filename().string().size();
    CHECK_THAT(files[is_first ? 0 : 1].filename().string(), Catch::EndsWith("-sms116"));
    CHECK(two_products(folder.path()) == no_search);
    CHECK(emulation::last_sm_count_target() == 0);
}

TEST_CASE("products in TF32 round operands in float32, and have algorithms of their own") {
    const TemporaryFolder folder;
    // 1 + 2^-11 is rounded up to 1 + 2^-10, and 1 + 2^-12 down to 1
    const std::vector<float> rows = {1 + 0x1p-11f, 1 + 0x1p-12f};
    const Memory& memory = the_gpu().memory();
    const auto product = [&](Dtype type, bool allow_tf32) {
        const OwnedTensor a(type, {2, 1}, "a", memory), b(type, {1, 1}, "b", memory),
            d(Dtype::f32, {2, 1}, "d", memory);
        OwnedTensor values(type, {2, 1}), one(type, {1, 1});
        for (int64_t i = 0; i < 2; ++i) set_element(values, i, double(rows[size_t(i)]));
        set_element(one, 0, 1);
        the_gpu().copy(a.view.data, values.view.data, a.view.bytes());
        the_gpu().copy(b.view.data, one.view.data, b.view.bytes());
        Exec exec(the_gpu());
        exec.workspace = Arena(int64_t(32) << 20, "workspace", memory);
        set_product_options(exec, {.folder = folder.path(), .allow_tf32 = allow_tf32});
        cuda_kernels().gemm(exec, d, a.view, b.view, {});
        exec.queue->finish();
        std::vector<float> result(2);
        the_gpu().copy(result.data(), d.view.data, d.view.bytes());
        return result;
    };
    CHECK(product(Dtype::f32, false) == rows);
    CHECK(product(Dtype::f32, true) == std::vector<float>{1 + 0x1p-10f, 1});
    CHECK(product(Dtype::f32, false) == rows);
    CHECK(product(Dtype::bf16, true) == std::vector<float>{1, 1});
    size_t with_tf32 = 0;
    for (const fs::path& file : files_of(folder.path())) {
        const std::string name = file.filename().string();
        if (!name.ends_with("-tf32")) continue;
        ++with_tf32;
        CHECK_THAT(name, Catch::StartsWith("float32-float32-2x1x1-"));
    }
    CHECK(files_of(folder.path()).size() == 3);
    CHECK(with_tf32 == 1);
}
