// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl_environment.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace coeus {

namespace {

constexpr const char* nvls = "NCCL_NVLS_ENABLE";
constexpr const char* algorithms = "NCCL_ALGO";
constexpr const char* order = "NCCL_LAUNCH_ORDER_IMPLICIT";

// An empty variable is none, as for NCCL.
std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

// NCCL_ALGO is a list of algorithms, or from 2.24 on lists for functions: "Ring,Tree", "^NVLS,NVLSTree",
// "AllReduce:NVLS;AllGather:^Ring". Lists that begin with ^ name what is not to be used.
bool names_nvls(std::string lists) {
    std::ranges::transform(lists, lists.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    for (size_t first = 0; first <= lists.size();) {
        const size_t end = std::min(lists.find(';', first), lists.size());
        std::string_view list = std::string_view(lists).substr(first, end - first);
        list.remove_prefix(list.find(':') + 1);  // 0 if there is none
        if (!list.starts_with('^') && list.find("nvls") != std::string_view::npos) return true;
        first = end + 1;
    }
    return false;
}

}  // namespace

std::string nvls_asked_by_user() {
    if (const std::string value = variable(nvls); !value.empty() && value != "0")
        return fmt::format("{} = {}", nvls, value);
    if (const std::string value = variable(algorithms); names_nvls(value))
        return fmt::format("{} = {}", algorithms, value);
    return "";
}

void turn_nvls_off() {
    if (nvls_asked_by_user().empty()) setenv(nvls, "0", 1);
}

std::optional<bool> launch_order_asked_by_user() {
    const std::string value = variable(order);
    return value.empty() ? std::nullopt : std::optional(value != "0");
}

void set_launch_order(bool implicit) {
    if (!launch_order_asked_by_user()) setenv(order, implicit ? "1" : "0", 1);
}

bool shared_gpus_allowed_by_user() {
    return std::strtol(variable("NCCL_MULTI_RANK_GPU_ENABLE").c_str(), nullptr, 10) != 0;
}

int max_ctas_asked_by_user() {
    constexpr long most = 1024;  // more than any GPU's kernel has
    return int(std::clamp(std::strtol(variable("NCCL_MAX_CTAS").c_str(), nullptr, 10), 0L, most));
}

}  // namespace coeus
