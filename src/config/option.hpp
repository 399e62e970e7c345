// SPDX-License-Identifier: Apache-2.0
// The option table. One entry per option has its name, field, meaning, rule, choices and status. Deck,
// command line, help, doc/decks.md, suggestions and the effective deck are all driven by it. Type and default
// are those of the field.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/file/toml.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coeus::config {

/// The field of a Config that an option sets. The value "none" resets an optional field.
using Slot = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                          Words*, std::vector<Words>*, std::vector<TomlTable>*, std::optional<bool>*,
                          std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*>;

enum class Type { boolean, integer, real, text, integers, reals, words, word_lists, tables };

enum class Status {
    works,
    dormant,    ///< belongs to a feature that is not implemented yet, or not used: checked, otherwise ignored
    no_effect,  ///< an option of torchtitan without a meaning here: type and choice are checked; a notice
                ///< explains why
    refused,    ///< an option of torchtitan that must not be ignored: refused for a reason, not only until it
                ///< is implemented
};

/// What a change of the option affects in a run that resumes from a checkpoint. The user is told about such
/// changes. `to_nothing`: no message, since the option concerns only output, or how work is divided, or since
/// it has its own message (the seed, the batch size).
enum class Matter { to_nothing, to_samples, to_learning_rate, to_run };
using enum Matter;

/// A rule for the value of a number.
struct Rule {
    const char* text;                         ///< "at least 1": completes "must be ..."
    bool (*holds)(double);                    ///< false for NaN
    double (*nearest)(double bad) = nullptr;  ///< a valid value near a bad one; null if there is none
};
extern const Rule capacity, chunk_mib, at_least_0, at_least_1, at_most_256, below_100, finite, all_or_some,
    all_or_two, step_or_newest, degree, degree_or_rest, one_or_two, positive, positive_or_infinite,
    not_negative, below_1, fraction, above_0_to_1;

struct Field {
    const char* name;
    Slot (*slot)(Config&);
};
/// COEUS_FIELD(training.steps): the option of that name and the field at that place in Config.
#define COEUS_FIELD(place)                                                                      \
    ::coeus::config::Field {                                                                    \
#place, [](::coeus::Config & config) -> ::coeus::config::Slot { return &config.place; } \
    }

struct Option {
    std::string name;
    Slot (*slot)(Config&) = nullptr;  ///< null: the value is not stored
    Type type = Type::text;
    std::string meaning;  ///< one or more sentences without the last full stop; code between backticks
    Status status = Status::works;
    Matter matters = to_nothing;
    std::string why;  ///< dormant: what it belongs to; else: the reason
    const Rule* rule = nullptr;
    Words choices;                       ///< empty: any value; not case-sensitive
    Words built = {};                    ///< the choices that work; empty: all
    std::string default_note;            ///< replaces the field's default in help; code between backticks
    std::optional<TomlValue> idle = {};  ///< without a field: the value that changes nothing (torchtitan's
                                         ///< default, or how Coeus always behaves); not set: false, 0, empty
    Words refused = {};                  ///< choices that are refused
    std::string refusal = {};            ///< why they are refused, and what to do instead

    Option obeys(const Rule& r) &&;
    Option one_of(Words all, Words that_work = {}) &&;
    Option defaults_to(std::string note) &&;
    Option idle_at(TomlValue value) &&;
    Option refuses(Words some, std::string reason) &&;
    bool is_optional() const;
    std::string section() const;  ///< "quantize.linear.float8", or "" at the top level
};

Option works(Field field, Matter matters, std::string meaning);
// options without a field: a change of them affects nothing
Option dormant(std::string name, Type type, std::string with, std::string meaning);
Option no_effect(std::string name, Type type, std::string why, std::string meaning);
Option refused(std::string name, Type type, std::string why, std::string meaning);

/// Another name of an option: a short one, or one in an older or newer torchtitan.
struct Alias {
    enum class Kind {
        same,       ///< only the name changed
        inverted,   ///< a boolean with the opposite meaning
        converter,  ///< a boolean that adds `converter` to model.converters
        retired,    ///< refused, with `name` as advice
    };
    std::string old_name, name;
    Kind kind = Kind::same;
};

/// All options, section by section (those without effect last in their section), and all aliases.
const std::vector<Option>& options();
const std::vector<Alias>& aliases();
/// The options, with the choices of `rules`.
std::vector<Option> options_with(const DeckRules& rules);
/// Null if there is none with that name.
const Option* find_option(std::string_view name);
const Alias* find_alias(std::string_view name);

/// The parts of options().
std::vector<Option> job_options();
std::vector<Option> model_options();
std::vector<Option> training_options();
std::vector<Option> parallel_options();
std::vector<Option> precision_options();
std::vector<Option> other_options();
std::vector<Option> ignored_options();

/// The converter that float8.enable_float8_linear and its older names stand for.
inline constexpr const char* float8_converter = "quantize.linear.float8";

}  // namespace coeus::config
