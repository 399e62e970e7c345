// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl_environment.hpp"

#include "support/catch.hpp"
#include "support/environment.hpp"

#include <cstdlib>
#include <string>

using namespace coeus;

namespace {

std::string asked_by(const char* name, const char* value) {
    const test::EnvironmentVariable set(name, value);
    return nvls_asked_by_user();
}

std::string value_after_turning_off() {
    turn_nvls_off();
    const char* const value = std::getenv("NCCL_NVLS_ENABLE");
    return value ? value : "none";
}

}  // namespace

TEST_CASE("NVLS is turned off unless the user asks for it") {
    unsetenv("NCCL_NVLS_ENABLE");
    unsetenv("NCCL_ALGO");
    CHECK(nvls_asked_by_user() == "");
    for (const char* value : {"", "0"}) {
        const test::EnvironmentVariable set("NCCL_NVLS_ENABLE", value);
        CHECK(nvls_asked_by_user() == "");
        CHECK(value_after_turning_off() == "0");
    }
    for (const std::string value : {"1", "2"}) {
        const test::EnvironmentVariable set("NCCL_NVLS_ENABLE", value.c_str());
        CHECK(nvls_asked_by_user() == "NCCL_NVLS_ENABLE = " + value);
        CHECK(value_after_turning_off() == value);
    }
    {
        const test::EnvironmentVariable set("NCCL_ALGO", "NVLS");
        CHECK(value_after_turning_off() == "none");  // NCCL would have no algorithm left
    }
    CHECK(value_after_turning_off() == "0");
    CHECK(nvls_asked_by_user() == "");
    unsetenv("NCCL_NVLS_ENABLE");
}

TEST_CASE("NCCL's launch order is set unless the user has set it") {
    const std::string order = "NCCL_LAUNCH_ORDER_IMPLICIT";
    unsetenv(order.c_str());
    CHECK(!launch_order_asked_by_user());
    for (const bool implicit : {true, false}) {
        const test::EnvironmentVariable set(order.c_str(), "");
        set_launch_order(implicit);
        CHECK(launch_order_asked_by_user() == implicit);
        set_launch_order(!implicit);
        CHECK(launch_order_asked_by_user() == implicit);
    }
}

TEST_CASE("NVLS is asked for by a list of algorithms that names it") {
    unsetenv("NCCL_NVLS_ENABLE");
    CHECK(asked_by("NCCL_ALGO", "nvlstree,Ring") == "NCCL_ALGO = nvlstree,Ring");
    CHECK(asked_by("NCCL_ALGO", "AllReduce:Ring;ReduceScatter:NVLS") != "");
    CHECK(asked_by("NCCL_ALGO", "Ring;AllReduce:^Tree,Ring;AllGather:tree,NVLS") != "");
    for (const char* without : {"", "Ring", "Ring,Tree", "^NVLS,NVLSTree", "AllReduce:^NVLS;Ring", ";"})
        CHECK(asked_by("NCCL_ALGO", without) == "");
}
