// SPDX-License-Identifier: Apache-2.0
// Which kernel computes products of experts: by the GPU, the driver, the program and the user.
#include "coeus/base/log.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "pretended_gpu.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t many_rows = 264, few_rows = 40, depth_of_a = 72, columns_of_d = 136;

/// How kernels were launched, and what the log says.
struct Seen {
    std::string kernels;  ///< of each product: m(ma), w(gmma) or t (wgmma with TMA)
    std::string said;
    bool is_right = true;

    bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
};

char kernel_of(const emulation::Launch& launch) {
    return launch.threads == 288                                       ? 't'
           : launch.threads == 256 && launch.shared_bytes > (99 << 10) ? 'w'
                                                                       : 'm';
}

using Asked = std::optional<ExpertsKernel>;
constexpr Asked not_asked = std::nullopt;

std::string words_of(Asked asked) {
    return asked ? fmt::format("kernels.experts = \"{}\": ", name_of(*asked)) : "";
}

/// Two products of one group whose elements are 1. Without `has_kernels`, the GPU finds no kernels after it
/// was opened, and the products are not computed.
Seen two_products(Asked asked = {}, int64_t rows = many_rows, bool recorded = false,
                  bool has_kernels = true) {
    Seen seen;
    const TemporaryFolder folder;
    log::init({.file = (folder / "log").string(), .quiet = true});
    const auto gpu = open_gpu(0);
    const auto ones = [&](const Shape& shape) {
        OwnedTensor there(Dtype::bf16, shape, "operand", gpu->memory());
        const std::vector<bf16> values(size_t(shape.count()), bf16(1));
        gpu->copy(there.view.data, values.data(), there.view.bytes());
        return there;
    };
    const int64_t with_padding = rows + group_rows;
    const auto d = ones({with_padding, columns_of_d}), a = ones({with_padding, depth_of_a}),
               b = ones({depth_of_a, columns_of_d});
    const OwnedTensor places(Dtype::i32, {2}, "groups", gpu->memory());
    const int32_t begin_and_count[] = {0, int32_t(rows)};
    gpu->copy(places.view.data, begin_and_count, sizeof(begin_and_count));
    const Groups groups = {
        .begins = places.view.slice_rows(0, 1), .counts = places.view.slice_rows(1, 1), .assignments = rows};
    Exec exec(*gpu);
    set_product_options(exec, {.experts = asked});
    emulation::set_kernels_for_gpu(has_kernels);
    emulation::on_launch = [&](const emulation::Launch& launch) {
        seen.kernels += kernel_of(launch);
        return has_kernels;
    };
    if (recorded) exec.queue->begin_recording();
    for (int i = 0; i < 2; ++i) cuda_kernels().grouped_gemm(exec, d.view, a.view, {b.view, false}, groups);
    if (recorded) exec.queue->give(*exec.queue->end_recording());
    exec.queue->finish();
    emulation::on_launch = nullptr;
    emulation::set_kernels_for_gpu(true);
    std::vector<bf16> result(size_t(rows * columns_of_d));
    gpu->copy(result.data(), d.view.data, int64_t(result.size() * sizeof(bf16)));
    for (const bf16 sum : result) seen.is_right = seen.is_right && float(sum) == float(depth_of_a);
    log::flush();
    log::init({});
    seen.said = read_file(folder / "log");
    return seen;
}

struct Architecture {
    explicit Architecture(int number) : before(std::exchange(emulation::architecture, number)) {}
    ~Architecture() { emulation::architecture = before; }
    int before;
};

void check(const Seen& seen, const std::string& kernels, const std::string& warning) {
    CHECK(seen.kernels == kernels);
    CHECK(seen.is_right);
    if (warning.empty())
        CHECK(!seen.says("warning"));
    else
        CHECK(seen.says(" warning " + warning + "\n"));
    CHECK(count_of("warning", seen.said) == (warning.empty() ? 0 : 1));
}

}  // namespace

TEST_CASE("products of experts: on Hopper wgmma with TMA computes those with many rows, also in graphs") {
    check(two_products(), "tt", "");
    check(two_products(not_asked, many_rows, true), "tt", "");
    check(two_products(not_asked, few_rows), "mm", "");
}

TEST_CASE("products of experts: an option chooses the kernel") {
    struct Choice {
        ExpertsKernel kernel;
        const char *kernels, *of_few_rows;
    };
    for (const auto& [kernel, kernels, of_few_rows] :
         {Choice{ExpertsKernel::mma, "mm", "mm"}, Choice{ExpertsKernel::wgmma, "ww", "ww"},
          Choice{ExpertsKernel::tma, "tt", "tt"}}) {
        CAPTURE(name_of(kernel));
        check(two_products(kernel), kernels, "");
        check(two_products(kernel, few_rows), of_few_rows, "");
    }
}

TEST_CASE("products of experts: wgmma does without TMA if the driver does not describe matrices") {
    const WithoutMaps without;
    const std::string warning =
        "products of experts are computed by wgmma without TMA: this driver does not describe matrices for "
        "TMA";
    check(two_products(), "ww", warning);
    check(two_products(not_asked, few_rows), "mm", warning);
    check(two_products(ExpertsKernel::tma, few_rows), "ww", words_of(ExpertsKernel::tma) + warning);
    check(two_products(ExpertsKernel::mma), "mm", "");
    check(two_products(ExpertsKernel::wgmma), "ww", "");
}

TEST_CASE("products of experts: other GPUs use mma, which is a warning only if wgmma is asked for") {
    for (const int number : {80, 100}) {
        const Architecture architecture(number);
        for (const Asked asked :
             {not_asked, Asked(ExpertsKernel::mma), Asked(ExpertsKernel::wgmma), Asked(ExpertsKernel::tma)}) {
            CAPTURE(number, words_of(asked));
            check(two_products(asked), "mm",
                  !asked || asked == ExpertsKernel::mma
                      ? ""
                      : fmt::format("{}products of experts are computed by mma, not by wgmma: only GPUs of "
                                    "compute capability 9.0 have it, and emulated GPU has {}.0",
                                    words_of(asked), number / 10));
        }
    }
}

TEST_CASE("products of experts: a program without the kernel of wgmma computes by mma, and says so") {
    for (const Asked asked : {not_asked, Asked(ExpertsKernel::wgmma), Asked(ExpertsKernel::tma)}) {
        CAPTURE(words_of(asked));
        const Seen seen = two_products(asked, many_rows, false, false);
        CHECK(seen.kernels == "mm");
        CHECK(
            seen.says(words_of(asked) +
                      "products of experts are computed by mma, not by wgmma: this program does not have the "
                      "kernel for compute capability 9.0 ("));
        CHECK(count_of("products of experts", seen.said) == 1);
    }
}
