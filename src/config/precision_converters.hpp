// SPDX-License-Identifier: Apache-2.0
// model.converters: which parts of a model are computed in 8 bits. A converter has the name of the section of
// its options.
#pragma once

#include "errors.hpp"
#include "option.hpp"

#include <string>

namespace coeus::config {

/// The converter without which this option has no effect, if the deck does not use it; else "".
std::string missing_converter(const Option& option, const Config& config);
/// Gives every converter and recipe the first of its names.
void name_converters_uniquely(Config& config);
/// The rules over several options.
void check_converters(Errors& errors, const Config& config);

}  // namespace coeus::config
