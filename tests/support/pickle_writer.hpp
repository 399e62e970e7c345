// SPDX-License-Identifier: Apache-2.0
// Pickles and zip archives made by hand, for tests of their readers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coeus::test {

/// Opcodes that leave one value on the stack.
namespace pickled {

using Code = std::string;

Code none();
Code boolean(bool value);
Code integer(int64_t value);
Code real(double value);
Code text(const std::string& value);
Code tuple(const std::vector<Code>& elements);
Code list(const std::vector<Code>& elements);
Code dict(const std::vector<std::pair<Code, Code>>& items);
Code global(const std::string& module, const std::string& name);
/// The result of calling a global with a tuple, as Python would make it.
Code call(const Code& function, const Code& arguments);
/// An instance with this state.
Code instance(const Code& type, const Code& state);
Code persistent(const Code& id);
/// A complete pickle of protocol 4.
std::string pickle(const Code& value);

}  // namespace pickled

/// An archive whose members are stored without compression.
std::string stored_zip(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace coeus::test
