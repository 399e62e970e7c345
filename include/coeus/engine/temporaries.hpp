// SPDX-License-Identifier: Apache-2.0
// Temporaries: the arenas of what computations need only while they run. The one of a pair that begins
// last has an arena of its own.
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/plan/layer_memory.hpp"

#include <string>
#include <utility>
#include <vector>

namespace coeus {

class Temporaries {
public:
    void allocate(const LayerMemory& planned, const Memory& memory);

    Arena& of(bool paired) { return paired ? paired_ : usual_; }
    const Arena& usual() const { return usual_; }
    /// Writes the peaks so far.
    void report(LayerMemory& used) const;
    /// Sets the observer of the arenas; null: none.
    void observe(ArenaObserver* observer);
    /// The arenas with their names; that of pairs only if it has memory.
    std::vector<std::pair<std::string, const Arena*>> arenas() const;

private:
    Arena usual_, paired_;
};

}  // namespace coeus
