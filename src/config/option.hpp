// SPDX-License-Identifier: Apache-2.0
// The option table: one entry per option says name, field, meaning, rule, choices and status, and drives
// deck, command line, help, doc/decks.md, suggestions and the effective deck. Type and default are those of
// the field.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/file/toml.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coeus::config {

/// The field of a Config that an option sets. Optional fields may also be told "none".
using Slot = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                          Words*, std::vector<Words>*, std::vector<TomlTable>*, std::optional<bool>*,
                          std::optional<int64_t>*, std::optional<double>*>;

enum class Type { boolean, integer, real, text, integers, reals, words, word_lists, tables };

enum class Status {
    works,
    dormant,    ///< goes with something that is not built yet or not used: checked, otherwise unused
    not_built,  ///< only the default works; anything else is refused, in a dry run noticed; without a field
                ///< whatever is given
    no_effect,  ///< of torchtitan, without a meaning here: type and choice are checked, one notice says why
    refused,    ///< of torchtitan, and no run may pass over it: as not_built without a field, for good reason
};

/// What a change of the option means to a run that continues from a checkpoint: whether it is told to the
/// user, and as what. `to_nothing`: where things are written and shown, how the work is divided, and what has
/// a message of its own (the seed, the size of a batch).
enum class Matter { to_nothing, to_samples, to_learning_rate, to_run };
using enum Matter;

/// What a number has to be.
struct Rule {
    const char* text;                         ///< "at least 1": completes "must be ..."
    bool (*holds)(double);                    ///< false for NaN
    double (*nearest)(double bad) = nullptr;  ///< valid value near a bad one; null where there is none
};
extern const Rule at_least_0, at_least_1, at_most_256, below_100, finite, all_or_some, all_or_two,
    step_or_newest, degree, degree_or_rest, positive, positive_or_infinite, not_negative, below_1, fraction;

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
    Slot (*slot)(Config&) = nullptr;  ///< null: nothing is kept of it
    Type type = Type::text;
    std::string meaning;
    Status status = Status::works;
    Matter matters = to_nothing;
    std::string why;  ///< dormant: what it goes with; not_built: what is not built; else: the reason
    const Rule* rule = nullptr;
    Words choices;                       ///< empty: anything; compared without regard to case
    Words built = {};                    ///< the choices that work; empty: all
    std::string default_note;            ///< in place of the field's default in help
    std::optional<TomlValue> idle = {};  ///< without a field: the value that asks for nothing (torchtitan's
                                         ///< default, or what is so here); none: false, 0, empty
    Words refused = {};                  ///< no_effect: choices that no run may pass over
    std::string refusal = {};            ///< why, and what to do instead

    Option obeys(const Rule& r) &&;
    Option one_of(Words all, Words that_work = {}) &&;
    Option defaults_to(std::string note) &&;
    Option idle_at(TomlValue value) &&;
    Option refuses(Words some, std::string reason) &&;
    bool is_optional() const;
    std::string section() const;  ///< of the name: "quantize.linear.float8", or "" at the top
};

Option works(Field field, Matter matters, std::string meaning);
Option dormant(Field field, Matter matters, std::string with, std::string meaning);
Option not_built(Field field, Matter matters, std::string what, std::string meaning);
// without a field: a change of them means nothing to a run
Option dormant(std::string name, Type type, std::string with, std::string meaning);
Option not_built(std::string name, Type type, std::string what, std::string meaning);
Option no_effect(std::string name, Type type, std::string why, std::string meaning);
Option refused(std::string name, Type type, std::string why, std::string meaning);

/// A short name, or one of an older or newer torchtitan.
struct Alias {
    enum class Kind {
        same,       ///< only the name changed
        inverted,   ///< a boolean with the opposite meaning
        converter,  ///< a boolean that adds `converter` to model.converters
        retired,    ///< refused with `name` as advice
    };
    std::string old_name, name;
    Kind kind = Kind::same;
};

/// All options, section after section, in each those without effect last; and all aliases.
const std::vector<Option>& options();
const std::vector<Alias>& aliases();
/// Null where there is none of that name.
const Option* find_option(std::string_view name);
const Alias* find_alias(std::string_view name);

/// The parts of options().
std::vector<Option> job_options();
std::vector<Option> model_options();
std::vector<Option> training_options();
std::vector<Option> parallel_options();
std::vector<Option> other_options();
std::vector<Option> ignored_options();

/// The converter that float8.enable_float8_linear stands for.
inline constexpr const char* float8_converter = "quantize.linear.float8";

}  // namespace coeus::config
