// SPDX-License-Identifier: Apache-2.0
// The general category of every character in one version of Unicode. The table is a part of the program, so
// that ids do not depend on the libraries of a machine.
#pragma once

#include <cstdint>
#include <span>

namespace coeus {

/// The order is that of tools/unicode_table.py. Cn: not assigned.
enum class Category : uint8_t {
    Lu,
    Ll,
    Lt,
    Lm,
    Lo,
    Mn,
    Mc,
    Me,
    Nd,
    Nl,
    No,
    Pc,
    Pd,
    Ps,
    Pe,
    Pi,
    Pf,
    Po,
    Sm,
    Sc,
    Sk,
    So,
    Zs,
    Zl,
    Zp,
    Cc,
    Cf,
    Cs,
    Co,
    Cn
};

/// "16.0.0"
extern const char* const unicode_version;

/// Runs of characters with one category, in order: the first character << 5 | the category. The first run
/// begins at U+0000.
std::span<const uint32_t> category_runs();

}  // namespace coeus
