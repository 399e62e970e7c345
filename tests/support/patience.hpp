// SPDX-License-Identifier: Apache-2.0
// How long tests wait. A test waits for events: a line of a run's output (run_shell()), the end of a process,
// an answer of a thread; nothing is expected within a time. Seconds are left in two places only, and both are
// patience(): the end of a wait for what may never come, and time-outs that the program under test is given,
// which a rank that is merely slow must not run into.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace coeus::test {

/// So many seconds on an idle machine, more on a slow or busy one: times COEUS_TEST_PATIENCE if it is set,
/// else times how slow the machine is (how long a piece of work took at the first call) and how many
/// processes want each core now (1 to 30).
double patience(double seconds);
/// The same in whole seconds, for options; 1 at least.
int64_t whole_patience(double seconds);

/// Asks until it is so, where nothing tells of it (a scheduler's jobs); FAILs after patience(120), naming
/// what was waited for.
void wait_until(const std::string& what, const std::function<bool()>& is_so);

}  // namespace coeus::test
