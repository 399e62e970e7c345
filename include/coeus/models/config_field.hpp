// SPDX-License-Identifier: Apache-2.0
// ConfigField: what is known of a field of a model's configuration besides its value. Each part of a model
// lists its fields with for_each_field(part, visit); config_fields.hpp has the list of a whole model.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

namespace coeus {

enum class FieldKind : uint8_t {
    identity,  ///< the name of the model
    shape,     ///< determines shapes of weights
    constant,  ///< no shape depends on it, but the weights were trained with one value
    limit      ///< neither: the longest sequence, the rule for initial values, how experts are balanced
};

/// Limit of the length of a sequence, in positions.
inline constexpr int64_t most_positions = int64_t(1) << 40;

struct ConfigField {
    const char* name;           ///< in descriptions; the option "model.<name>" overrides it
    const char* hub = nullptr;  ///< usual key in config.json; null: the family's own code handles it
    FieldKind kind = FieldKind::shape;
    bool is_required = false;  ///< a description without it is damaged; others have defaults
    bool is_later = false;     ///< added after the first version: described only if it is not the default
    int64_t least = 1, most = int64_t(1) << 24;  ///< limits of an integer
    bool may_be_zero = false;                    ///< a real number; false: it must be greater than 0
    const char* usual = "";                      ///< usual value of a real number, for messages

    /// A required size with a usual key.
    static constexpr ConfigField size(const char* name, const char* hub) {
        return {.name = name, .hub = hub, .is_required = true};
    }
};

/// `Config` is this part, const or not: the list of its fields serves reading and writing.
template <class Config, class Part>
concept ConfigOf = std::same_as<std::remove_const_t<Config>, Part>;

/// The name of a value of an enumeration in descriptions and decks: names_of(Enum()) is an array of them. The
/// first name of a value is the one that is written.
template <class Enum>
struct EnumName {
    const char* name;
    Enum value;
};

/// The divisors of n below and above a wrong value, for messages: "6 or 8". Divisors above `most` are not
/// valid either, so they are left out.
std::string divisors_near(int64_t n, int64_t value, int64_t most);

}  // namespace coeus
