// SPDX-License-Identifier: Apache-2.0
// How long tests wait. A test waits for events: a line of a run's output (run_shell()), the end of a process,
// an answer of a thread. Nothing is expected within a given time. Only two kinds of times are left, and both
// use patience(): the end of a wait for an event that may never come, and time-outs of the tested program,
// which must be long enough for a rank that is merely slow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace coeus::test {

/// `seconds` on an idle machine, more on a slow or busy one: times COEUS_TEST_PATIENCE if it is set,
/// otherwise times the slowness of the machine (the time of a piece of work) and the number of processes that
/// want each core (1 to 30). Both are measured at each call, at most once a second; the largest counts.
double patience(double seconds);
/// The same in whole seconds, for options; at least 1.
int64_t whole_patience(double seconds);

/// Asks again and again until `is_so` returns true, for events that are not announced (jobs of a scheduler).
/// FAILs after patience(120) and names `what`.
void wait_until(const std::string& what, const std::function<bool()>& is_so);

}  // namespace coeus::test
