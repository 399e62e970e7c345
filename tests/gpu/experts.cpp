// SPDX-License-Identifier: Apache-2.0
// Products of experts by wgmma, which an H100 has and the emulated GPU too. On other GPUs mma computes them.
#include "coeus/base/log.hpp"
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cstdlib>

using namespace coeus;
using namespace coeus::test;

namespace {

/// While it lives, wgmma computes all products of experts that it can, and the log is in a file.
class WithWgmma {
public:
    WithWgmma() {
        setenv("COEUS_EXPERTS_WGMMA", "1", 1);
        log::init({.file = file(), .quiet = true});
    }
    ~WithWgmma() {
        log::init({});
        unsetenv("COEUS_EXPERTS_WGMMA");
    }
    std::string said() const {
        log::flush();
        return read_file(file());
    }

private:
    std::string file() const { return (folder_ / "log").string(); }
    TemporaryFolder folder_;
};

std::vector<KernelCase> expert_products() {
    std::vector<KernelCase> list = test_cases();
    std::erase_if(list, [](const KernelCase& c) { return !c.name.starts_with("grouped_gemm"); });
    const size_t cases = list.size();
    for (size_t i = 0; i < cases; ++i) {
        KernelCase c = list[i];
        c.name += ", sums in float32";
        for (Argument& argument : c.arguments)
            if (argument.name == "d") argument.kind = Kind::acc;
        list.push_back(std::move(c));
    }
    return list;
}

}  // namespace

TEST_CASE("GPU kernels: products of experts by wgmma agree with double, and write nothing else") {
    const WithWgmma with;
    for (const KernelCase& c : expert_products()) {
        const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16),
                       result = run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16);
        for (size_t i = 0; i < c.arguments.size(); ++i) {
            INFO(c.name << ", " << c.arguments[i].name);
            if (c.arguments[i].role != Role::input)
                CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= c.bound_bf16);
            CHECK(nothing_beside(c, result, i));
        }
    }
    const std::string said = with.said();
    CHECK(said.find("by wgmma differs") == std::string::npos);
    if (the_gpu().architecture() == 90) {
        CHECK(said.find("-t-200x328 is computed by wgmma") != std::string::npos);
        CHECK(said.find("-n-200x328 is computed by wgmma") != std::string::npos);
        CHECK(said.find("-weights-200x328 is computed by wgmma") != std::string::npos);
        CHECK(said.find("is computed by mma") == std::string::npos);
    }
}

TEST_CASE("GPU kernels: products of experts by wgmma give the same bits each time") {
    const WithWgmma with;
    for (const KernelCase& c : expert_products()) {
        set_order(1);
        const Operands first = run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16);
        for (const uint64_t order : {2, 3}) {
            set_order(order);
            INFO(c.name << ", order " << order);
            CHECK(same_bits(first, run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16)));
        }
    }
}
