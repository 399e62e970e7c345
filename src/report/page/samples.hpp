// SPDX-License-Identifier: Apache-2.0
// The texts that validations have written, by step.
#pragma once

#include "coeus/report/report.hpp"

#include <string>
#include <vector>

namespace coeus::report {

/// "" if no run has a samples.jsonl.
std::string samples_html(const std::vector<RunData>& runs);

}  // namespace coeus::report
