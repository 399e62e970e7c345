// SPDX-License-Identifier: Apache-2.0
// Random moments at which a test disturbs the runs of the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus::test {

struct RandomMoment {
    int number;    ///< from 0; what else a test varies follows from it
    double place;  ///< from 0 to 1, such as a part of a run
};

/// The moments of a test, `count` in all; the short list has one of two (support/part.hpp). Each seed of the
/// parts has other moments.
std::vector<RandomMoment> random_moments(const std::string& name, uint64_t seed, int count);

/// For the end of a test: prints how many of the moments missed the run. How many do depends on the speed of
/// the machine. If all did, nothing was tested, and the case is skipped.
void count_missed(int missed, int moments);

}  // namespace coeus::test
