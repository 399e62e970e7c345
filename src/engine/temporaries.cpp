// SPDX-License-Identifier: Apache-2.0
#include "coeus/engine/temporaries.hpp"

#include "coeus/plan/memory.hpp"

#include <fmt/format.h>

namespace coeus {

void Temporaries::allocate(const LayerMemory& planned, const Memory& memory) {
    usual_ = Arena(planned.temporaries, "temporaries", memory);
    paired_ = Arena(planned.paired_temporaries, "temporaries of pairs", memory);
}

void Temporaries::report(LayerMemory& used) const {
    used.temporaries = usual_.peak();
    used.paired_temporaries = paired_.peak();
}

void Temporaries::observe(ArenaObserver* observer) {
    usual_.observe(observer);
    paired_.observe(observer);
}

std::vector<std::pair<std::string, const Arena*>> Temporaries::arenas() const {
    std::vector<std::pair<std::string, const Arena*>> all = {{term::temporaries, &usual_}};
    if (paired_.bytes() > 0) all.emplace_back(fmt::format("{} of pairs", term::temporaries), &paired_);
    return all;
}

}  // namespace coeus
