// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/optimizer.hpp"

#include "adam.hpp"
#include "coeus/base/text.hpp"
#include "muon.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace coeus {

namespace {

struct Maker {
    std::string_view name;
    std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options, uint64_t seed, size_t group);
};

// one for each of optimizer_kinds
constexpr std::array makers = {Maker{"AdamW", make_adam}, Maker{"Adam", make_adam}, Maker{"Muon", make_muon}};
static_assert(std::ranges::equal(makers, optimizer_kinds, {}, &Maker::name, &OptimizerKind::name));

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, uint64_t seed, size_t group) {
    for (const Maker& maker : makers)
        if (options.name == maker.name) return maker.make(options, seed, group);
    throw ConfigError("name = \"{}\": must be one of {}", options.name, join(optimizer_names(), ", "));
}

}  // namespace coeus
