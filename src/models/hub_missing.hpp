// SPDX-License-Identifier: Apache-2.0
// What architectures need that no part of a model has yet.
#pragma once

#include <string>

namespace coeus {

/// The arithmetic that a known architecture lacks here: "the gated delta rule".
/// "": it is not known, or it lacks a family alone.
std::string missing_arithmetic(const std::string& architecture);

}  // namespace coeus
