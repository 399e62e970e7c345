// SPDX-License-Identifier: Apache-2.0
// Repetitions: which steps were computed twice, since rows of experts had no room (Engine::update()).
#pragma once

#include <bitset>
#include <cstdint>

namespace coeus {

class Repetitions {
public:
    /// Notes a step.
    void add(bool is_repeated) {
        total_ += is_repeated ? 1 : 0;
        of_late_ = of_late_ << 1 | std::bitset<10>(is_repeated);
    }
    int64_t total() const { return total_; }
    /// Three or more of the last ten steps.
    bool are_frequent() const { return of_late_.count() >= 3; }

private:
    int64_t total_ = 0;
    std::bitset<10> of_late_;
};

}  // namespace coeus
