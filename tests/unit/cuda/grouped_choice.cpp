// SPDX-License-Identifier: Apache-2.0
// Which kernel computes products of experts: by the clock, by what is kept, and by whether wgmma is right.
#include "../../../src/kernels/cuda/matrix_difference.hpp"
#include "coeus/base/log.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/cuda.h"
#include "stand_ins/cuda/runtime.hpp"
#include "stand_ins/cuda/wgmma.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace coeus;
using namespace coeus::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t rows_of_group = 264, depth_of_a = 72,
                  columns_of_d = 136;  // of one group, which is large enough for a search
constexpr const char* problem_text = "experts1-wgmma2-bfloat16-n-72x136";

bool is_wgmma(const emulation::Launch& launch) {
    return launch.threads == 256 && launch.shared_bytes > 99 << 10;
}
bool is_tma(const emulation::Launch& launch) {
    return launch.threads == 288;
}

/// How kernels were launched, and what the log says.
struct Seen {
    std::string kernels;  ///< of each launch of a product: m(ma), w(gmma) or t (wgmma with TMA)
    std::string said;
    float first = 0, gap = 0;  ///< the first sum, and an element of d that belongs to no group

    char last() const { return kernels.back(); }
    bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
};

/// Two products. Each element of a is 1; of b 2 (or `value_of_b`) in the first 64 columns, twice that in the
/// next ones, and so on. Without `has_kernels`, the GPU finds no kernels after it was opened.
Seen two_expert_products(const ProductOptions& options, bool recorded = false, float value_of_b = 2,
                         bool has_kernels = true) {
    Seen seen;
    const TemporaryFolder folder;
    log::init({.file = (folder / "log").string(), .quiet = true});
    const auto gpu = open_gpu(0);
    const auto filled = [&](const Shape& shape, float value, bool grows = false) {
        OwnedTensor host(Dtype::bf16, shape, "host", host_device().memory()),
            there(Dtype::bf16, shape, "there", gpu->memory());
        for (int64_t i = 0; i < shape.count(); ++i)
            host.view.as<bf16>()[i] = bf16(value * float(grows ? 1 + i % shape.cols() / 64 : 1));
        gpu->copy(there.view.data, host.view.data, host.view.bytes());
        return there;
    };
    const auto d = filled({rows_of_group + group_rows, columns_of_d}, 7),
               a = filled({rows_of_group + group_rows, depth_of_a}, 1),
               b = filled({depth_of_a, columns_of_d}, value_of_b, true);
    OwnedTensor places(Dtype::i32, {2}, "groups", gpu->memory());
    const int32_t begin_and_count[] = {0, int32_t(rows_of_group)};
    gpu->copy(places.view.data, begin_and_count, sizeof(begin_and_count));
    const Groups groups = {.begins = places.view.slice_rows(0, 1),
                           .counts = places.view.slice_rows(1, 1),
                           .assignments = rows_of_group};
    Exec exec(*gpu);
    emulation::set_kernels_for_gpu(has_kernels);
    set_product_options(exec, options);
    emulation::on_launch = [&](const emulation::Launch& launch) {
        if (launch.threads == 128 || is_wgmma(launch) || is_tma(launch))
            seen.kernels += is_tma(launch) ? 't' : is_wgmma(launch) ? 'w' : 'm';
        return true;
    };
    if (recorded) exec.queue->begin_recording();
    for (int i = 0; i < 2; ++i) cuda_kernels().grouped_gemm(exec, d.view, a.view, {b.view, false}, groups);
    if (recorded) exec.queue->give(*exec.queue->end_recording());
    exec.queue->finish();
    emulation::on_launch = nullptr;
    emulation::set_kernels_for_gpu(true);
    std::vector<bf16> result(size_t(d.view.count()));
    gpu->copy(result.data(), d.view.data, d.view.bytes());
    seen.first = float(result.front());
    seen.gap = float(result.back());
    log::flush();
    log::init({});
    seen.said = read_file(folder / "log");
    return seen;
}

/// While it lives, kernels of wgmma take so many microseconds, without and with TMA, and others 10.
struct Durations {
    explicit Durations(size_t of_wgmma, size_t of_tma = 10) {
        emulation::duration_of = [of_wgmma, of_tma](const emulation::Launch& launch) {
            return is_wgmma(launch) ? of_wgmma : is_tma(launch) ? of_tma : size_t(10);
        };
    }
    ~Durations() { emulation::duration_of = nullptr; }
};

/// While it lives, the emulated GPU ignores the leading offset of operands: wgmma gives wrong results.
struct WrongOffsets {
    WrongOffsets() { emulation::ignores_leading_offset = true; }
    ~WrongOffsets() { emulation::ignores_leading_offset = false; }
};

struct Architecture {
    explicit Architecture(int number) : before(std::exchange(emulation::architecture, number)) {}
    ~Architecture() { emulation::architecture = before; }
    int before;
};

struct Setting {
    explicit Setting(const char* value) { setenv("COEUS_EXPERTS_WGMMA", value, 1); }
    ~Setting() { unsetenv("COEUS_EXPERTS_WGMMA"); }
};

void check_is_right(const Seen& seen) {
    CHECK(seen.first == 2 * depth_of_a);
    CHECK(seen.gap == 7);
}

/// The folder in which the choices of the emulated GPU are.
fs::path choices_in(const fs::path& folder) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) return entry.path();
    return {};
}

}  // namespace

TEST_CASE("products of experts: the fastest kernel is chosen once, and kept") {
    const Setting setting("search");
    struct Times {
        size_t wgmma, tma;
        char fastest;
        const char* name;
    };
    for (const Times& times :
         {Times{5, 8, 'w', "wgmma"}, Times{8, 5, 't', "wgmma+tma"}, Times{20, 5, 't', "wgmma+tma"},
          Times{5, 5, 'w', "wgmma"}, Times{20, 30, 'm', "mma"}}) {
        INFO(times.wgmma << ", " << times.tma);
        const TemporaryFolder folder;
        {
            const Durations durations(times.wgmma, times.tma);
            const Seen seen = two_expert_products({.folder = folder.path()});
            check_is_right(seen);
            CHECK(seen.last() == times.fastest);
            CHECK(seen.kernels.starts_with("mwt"));
            CHECK(seen.kernels.size() > 20);
            CHECK(seen.says(fmt::format("{} is computed by {}\n", problem_text, times.name)));
        }
        REQUIRE(fs::exists(choices_in(folder.path()) / problem_text));
        // the next run does not search, whichever is faster now; it compares the results before it uses wgmma
        const Durations durations(times.tma, times.wgmma);
        const Seen seen = two_expert_products({.folder = folder.path()});
        check_is_right(seen);
        CHECK(seen.kernels ==
              (times.fastest == 'm' ? "mm" : std::string("m") + std::string(3, times.fastest)));
    }
}

TEST_CASE("products of experts: mma is used if all take equally long, and if no choice can be kept") {
    const Setting setting("search");
    const TemporaryFolder folder;
    CHECK(two_expert_products({.folder = folder.path()}).last() == 'm');
    const Durations durations(5, 5);
    CHECK(two_expert_products({}).kernels == "mm");
    CHECK(two_expert_products({.folder = folder.path()}, true).kernels == "mm");
}

TEST_CASE("products of experts: without maps of matrices TMA is not used, and no choice is kept") {
    const auto without_maps = [](const ProductOptions& options) {
        emulation::has_tensor_maps = false;
        const Seen seen = two_expert_products(options);
        emulation::has_tensor_maps = true;
        check_is_right(seen);
        CHECK(count_of("this driver does not describe matrices for TMA", seen.said) == 1);
        return seen;
    };
    {
        const Setting setting("search");
        const TemporaryFolder folder, with_wgmma, with_tma;
        {
            const Durations durations(5, 8);
            CHECK(two_expert_products({.folder = with_wgmma.path()}).last() == 'w');
        }
        const Durations durations(8, 5);
        const Seen seen = without_maps({.folder = folder.path()});
        CHECK(seen.kernels == "mm");
        CHECK(seen.says(
            "COEUS_EXPERTS_WGMMA=search: products of experts without a kept choice are not timed, but "
            "computed by mma: this driver does not describe matrices for TMA, and a choice without TMA would "
            "be kept. COEUS_EXPERTS_WGMMA=1 uses wgmma without TMA, and without a search\n"));
        CHECK(!fs::exists(choices_in(folder.path()) / problem_text));
        // so a run with a newer driver times all kernels
        CHECK(two_expert_products({.folder = folder.path()}).last() == 't');
        // what a process with all kernels has kept is used if it can be
        CHECK(without_maps({.folder = with_wgmma.path()}).kernels == "mwww");
        CHECK(two_expert_products({.folder = with_tma.path()}).last() == 't');
        CHECK(without_maps({.folder = with_tma.path()}).kernels == "mm");
    }
    {
        const Setting setting("tma");
        const Seen seen = without_maps({});
        CHECK(seen.kernels == "mm");
        CHECK(
            seen.says("COEUS_EXPERTS_WGMMA=tma: products of experts are computed by mma, not by wgmma: this "
                      "driver does not describe matrices for TMA\n"));
    }
    // a kernel that is not asked for is not missed
    const Setting setting("1");
    emulation::has_tensor_maps = false;
    const Seen seen = two_expert_products({});
    emulation::has_tensor_maps = true;
    CHECK(seen.last() == 'w');
    CHECK(!seen.says("TMA"));
}

TEST_CASE("products of experts: wgmma is not used if its result differs, whatever is kept") {
    const Setting setting("search");
    const TemporaryFolder folder;
    const Durations durations(5);
    {
        const WrongOffsets wrong;
        const Seen first = two_expert_products({.folder = folder.path()});
        check_is_right(first);
        CHECK(first.last() == 'm');
        CHECK(first.says("by wgmma differs from that by mma by"));
    }
    // that it is not right is kept too
    CHECK(two_expert_products({.folder = folder.path()}).last() == 'm');

    const TemporaryFolder other_folder;
    CHECK(two_expert_products({.folder = other_folder.path()}).last() == 'w');
    const WrongOffsets wrong;
    const Seen later = two_expert_products({.folder = other_folder.path()});
    check_is_right(later);
    CHECK(later.last() == 'm');
    CHECK(later.says("by wgmma differs from that by mma by"));
}

TEST_CASE("products of experts: a result of zeros does not show that wgmma is right") {
    const Setting setting("search");
    const TemporaryFolder folder;
    const Durations durations(5);
    const Seen seen = two_expert_products({.folder = folder.path()}, false, 0);
    CHECK(seen.last() == 'm');
    CHECK(seen.says("shows nothing"));
    // and decides nothing: neither for a run that finds no choice, nor for one that finds wgmma
    CHECK(two_expert_products({.folder = folder.path()}).last() == 'w');
    CHECK(two_expert_products({.folder = folder.path()}, false, 0).last() == 'm');
    CHECK(two_expert_products({.folder = folder.path()}).last() == 'w');
}

TEST_CASE("products of experts: the environment variable, and GPUs without wgmma") {
    const TemporaryFolder folder;
    const Durations durations(5);
    CHECK(two_expert_products({.folder = folder.path()}).kernels == "mm");
    {
        const Setting setting("0");
        CHECK(two_expert_products({.folder = folder.path()}).kernels == "mm");
    }
    {
        const Setting setting("1");
        const Seen seen = two_expert_products({});
        check_is_right(seen);
        CHECK(seen.last() == 'w');
        {
            const WrongOffsets wrong;
            CHECK(two_expert_products({}).last() == 'm');
        }
    }
    {
        const Setting setting("tma");
        const Seen seen = two_expert_products({});
        check_is_right(seen);
        CHECK(seen.kernels == "mttt");
        CHECK(two_expert_products({}, false, 0).kernels == "mtmmtm");
        const WrongOffsets wrong;
        const Seen others = two_expert_products({});
        check_is_right(others);
        CHECK(others.kernels == "mtmm");
        CHECK(others.says("by wgmma+tma differs from that by mma by"));
    }
    for (const char* const value : {"1", "tma", "search"})
        for (const int number : {80, 100}) {
            const Setting setting(value);
            const Architecture architecture(number);
            const Seen other = two_expert_products({.folder = folder.path()});
            CHECK(other.kernels == "mm");
            CHECK(other.says(fmt::format(
                "COEUS_EXPERTS_WGMMA={}: products of experts are computed by mma, not by wgmma: only GPUs of "
                "compute capability 9.0 have it, and emulated GPU has {}.0",
                value, number / 10)));
        }
    // a GPU without it is a warning only if it is asked for
    const Architecture architecture(80);
    CHECK(!two_expert_products({}).says("COEUS_EXPERTS_WGMMA"));
}

TEST_CASE("products of experts: a program without the kernel of wgmma computes by mma, and says so") {
    const TemporaryFolder folder;
    const Durations durations(5);
    for (const char* asked : {"1", "tma", "search"}) {
        const Setting setting(asked);
        const Seen seen = two_expert_products({.folder = folder.path()}, false, 2, false);
        check_is_right(seen);
        CHECK(seen.kernels == "mm");
        CHECK(
            seen.says(fmt::format("COEUS_EXPERTS_WGMMA={}: products of experts are computed by mma, not by "
                                  "wgmma: this program does not "
                                  "have the kernel for compute capability 9.0 (",
                                  asked)));
        CHECK(count_of("COEUS_EXPERTS_WGMMA", seen.said) == 1);
    }
}

TEST_CASE("differences of results are relative to the norm of a tile") {
    const auto difference = [](std::vector<float> expected, std::vector<float> with) {
        const Shape shape = {1, int64_t(expected.size())};
        return cuda::difference_of(Tensor(expected.data(), Dtype::f32, shape),
                                   Tensor(with.data(), Dtype::f32, shape));
    };
    constexpr float infinity = std::numeric_limits<float>::infinity(),
                    nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(difference({3, 4}, {3, 4}).largest == 0);
    CHECK(!difference({3, 4}, {3, 4}).all_zero);
    CHECK(difference({3, 4}, {3, 4.5}).largest == Approx(0.1));
    CHECK(difference({0, 0}, {0, 0}).largest == 0);
    CHECK(difference({0, 0}, {0, 0}).all_zero);
    CHECK(std::isinf(difference({0, 0}, {0, 1e-9f}).largest));
    for (const float bad : {infinity, -infinity, nan}) {
        CHECK(std::isinf(difference({bad, 4}, {bad, 4}).largest));
        CHECK(std::isinf(difference({3, 4}, {3, bad}).largest));
    }
    // a small tile beside a large one counts as much
    std::vector<float> expected(128, 1000.0f), with(128, 1000.0f);
    for (size_t i = 64; i < 128; ++i) expected[i] = with[i] = 1e-3f;
    with[127] = 0;
    CHECK(difference(expected, with).largest == Approx(1.0 / 8));
}
