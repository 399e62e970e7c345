// SPDX-License-Identifier: Apache-2.0
// How often long work logs a line if it cannot draw a bar. Tests change it.
#pragma once

#include <atomic>

namespace coeus {

/// Seconds between two lines of a ProgressBar, if there is no terminal.
extern std::atomic<double> progress_interval;

}  // namespace coeus
