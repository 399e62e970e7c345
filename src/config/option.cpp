// SPDX-License-Identifier: Apache-2.0
#include "option.hpp"

#include "coeus/base/error.hpp"
#include "coeus/config/deck_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace coeus::config {

namespace {

constexpr double max_degree = 65536;
constexpr double max_files = 256;  // every system lets a process open this many
constexpr double max_chunk_mib = 65536;
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr Type type_of() {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) return Type::boolean;
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>)
        return Type::integer;
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) return Type::real;
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return Type::integers;
    if constexpr (std::is_same_v<T, std::vector<double>>) return Type::reals;
    if constexpr (std::is_same_v<T, Words>) return Type::words;
    if constexpr (std::is_same_v<T, std::vector<Words>>) return Type::word_lists;
    if constexpr (std::is_same_v<T, std::vector<TomlTable>>) return Type::tables;
    return Type::text;
}

Option option_of(Field field, Matter matters, std::string meaning) {
    Config config;
    Option option;
    option.name = field.name;
    option.slot = field.slot;
    option.type = std::visit([]<class T>(T*) { return type_of<T>(); }, field.slot(config));
    option.meaning = std::move(meaning);
    option.matters = matters;
    return option;
}

template <class T>
std::map<std::string, const T*, std::less<>> index(const std::vector<T>& all, std::string T::*name) {
    std::map<std::string, const T*, std::less<>> by_name;
    for (const T& one : all) {
        const bool is_new = by_name.emplace(one.*name, &one).second;
        require(is_new, "an option is in the table twice");
    }
    return by_name;
}

template <class T>
const T* find_in(const std::map<std::string, const T*, std::less<>>& by_name, std::string_view name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
}

}  // namespace

const Rule at_least_0 = {"at least 0", [](double v) { return v >= 0; }, [](double) { return 0.0; }};
const Rule at_least_1 = {"at least 1", [](double v) { return v >= 1; }, [](double) { return 1.0; }};
const Rule all_or_some = {"at least 1, or -1", [](double v) { return v >= 1 || v == -1; },
                          [](double v) { return v < -0.5 ? -1.0 : 1.0; }};
const Rule step_or_newest = {"at least 0, or -1 for the newest", [](double v) { return v >= -1; },
                             [](double) { return -1.0; }};
const Rule all_or_two = {"at least 2, or 0 to keep all", [](double v) { return v >= 2 || v == 0; },
                         [](double v) { return v < 0 ? 0.0 : 2.0; }};
const Rule at_most_256 = {"from 1 to 256", [](double v) { return v >= 1 && v <= max_files; },
                          [](double v) { return v < 1 ? 1.0 : max_files; }};
const Rule chunk_mib = {"from 1 to 65536", [](double v) { return v >= 1 && v <= max_chunk_mib; },
                        [](double v) { return v < 1 ? 1.0 : max_chunk_mib; }};
const Rule below_100 = {"from 1 to 99", [](double v) { return v >= 1 && v <= 99; },
                        [](double v) { return v < 1 ? 1.0 : 99.0; }};
const Rule finite = {"a finite number", [](double v) { return std::isfinite(v); }};
const Rule one_or_two = {"1 or 2", [](double v) { return v == 1 || v == 2; },
                         [](double v) { return v < 1 ? 1.0 : 2.0; }};
const Rule degree = {"from 1 to 65536", [](double v) { return v >= 1 && v <= max_degree; },
                     [](double v) { return v < 1 ? 1.0 : max_degree; }};
const Rule degree_or_rest = {"from 1 to 65536, or -1 for the ranks that are left",
                             [](double v) { return (v >= 1 && v <= max_degree) || v == -1; },
                             [](double v) { return v > max_degree ? max_degree : -1.0; }};
const Rule capacity = {"at least 0.05", [](double v) { return v >= 0.05 && v < infinity; },
                       [](double) { return 0.05; }};
const Rule positive = {"greater than 0", [](double v) { return v > 0 && v < infinity; }};
const Rule positive_or_infinite = {"greater than 0 (inf: no limit)", [](double v) { return v > 0; }};
const Rule not_negative = {"at least 0", [](double v) { return v >= 0 && v < infinity; },
                           [](double) { return 0.0; }};
const Rule below_1 = {"at least 0 and less than 1", [](double v) { return v >= 0 && v < 1; }};
const Rule fraction = {"from 0 to 1", [](double v) { return v >= 0 && v <= 1; },
                       [](double v) { return v > 1 ? 1.0 : 0.0; }};
const Rule above_0_to_1 = {"greater than 0 and at most 1", [](double v) { return v > 0 && v <= 1; },
                           [](double) { return 1.0; }};

Option Option::obeys(const Rule& r) && {
    rule = &r;
    return std::move(*this);
}

Option Option::one_of(Words all, Words that_work) && {
    choices = std::move(all);
    built = std::move(that_work);
    return std::move(*this);
}

Option Option::defaults_to(std::string note) && {
    default_note = std::move(note);
    return std::move(*this);
}

Option Option::idle_at(TomlValue value) && {
    idle = std::move(value);
    return std::move(*this);
}

Option Option::refuses(Words some, std::string reason) && {
    refused = std::move(some);
    refusal = std::move(reason);
    return std::move(*this);
}

bool Option::is_optional() const {
    if (slot == nullptr) return false;
    Config config;
    const Slot place = slot(config);
    return std::holds_alternative<std::optional<bool>*>(place) ||
           std::holds_alternative<std::optional<int64_t>*>(place) ||
           std::holds_alternative<std::optional<double>*>(place) ||
           std::holds_alternative<std::optional<std::string>*>(place);
}

std::string Option::section() const {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
}

Option works(Field field, Matter matters, std::string meaning) {
    return option_of(field, matters, std::move(meaning));
}

namespace {

Option without_field(std::string name, Type type, Status status, std::string why, std::string meaning) {
    Option option;
    option.name = std::move(name);
    option.type = type;
    option.meaning = std::move(meaning);
    option.status = status;
    option.why = std::move(why);
    return option;
}

}  // namespace

Option dormant(std::string name, Type type, std::string with, std::string meaning) {
    return without_field(std::move(name), type, Status::dormant, std::move(with), std::move(meaning));
}

Option no_effect(std::string name, Type type, std::string why, std::string meaning) {
    return without_field(std::move(name), type, Status::no_effect, std::move(why), std::move(meaning));
}

Option refused(std::string name, Type type, std::string why, std::string meaning) {
    return without_field(std::move(name), type, Status::refused, std::move(why), std::move(meaning));
}

const std::vector<Option>& options() {
    static const std::vector<Option> all = [] {
        std::vector<Option> table;
        for (auto& part : {job_options(), model_options(), training_options(), parallel_options(),
                           precision_options(), other_options(), ignored_options()})
            table.insert(table.end(), part.begin(), part.end());
        // the options of a section together; sections in the order in which they first appear
        std::map<std::string, size_t> sections;
        for (const Option& option : table) sections.emplace(option.section(), sections.size());
        std::ranges::stable_sort(table, {}, [&](const Option& option) { return sections[option.section()]; });
        return table;
    }();
    return all;
}

std::vector<Option> options_with(const DeckRules& rules) {
    std::vector<Option> table = options();
    for (const DeckRules::Choices& choices : rules.choices) {
        const auto option = std::ranges::find(table, choices.option, &Option::name);
        require(option != table.end(), "choices of an option that is not in the table");
        option->choices = choices.all;
        option->built = choices.built;
    }
    return table;
}

const Option* find_option(std::string_view name) {
    static const auto by_name = index(options(), &Option::name);
    return find_in(by_name, name);
}

const Alias* find_alias(std::string_view name) {
    static const auto by_name = index(aliases(), &Alias::old_name);
    return find_in(by_name, name);
}

}  // namespace coeus::config
