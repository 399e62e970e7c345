// SPDX-License-Identifier: Apache-2.0
#include "value.hpp"

#include "coeus/base/text.hpp"
#include "suggestions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <strings.h>
#include <system_error>

namespace coeus::config {

namespace {

template <class T>
std::optional<T> parse_number(const std::string& text) {
    T number = {};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// "1_000" as in TOML: underscores between digits
std::string without_underscores(const std::string& word) {
    std::string plain;
    for (size_t i = 0; i < word.size(); ++i) {
        const bool between_digits =
            i > 0 && i + 1 < word.size() && isdigit(uint8_t(word[i - 1])) && isdigit(uint8_t(word[i + 1]));
        if (word[i] != '_' || !between_digits) plain += word[i];
    }
    return plain;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    if (text.empty()) return parts;
    for (size_t start = 0;;) {
        const size_t end = text.find(separator, start);
        const std::string part = text.substr(start, end - start);
        const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
        parts.push_back(first == std::string::npos ? "" : part.substr(first, last - first + 1));
        if (end == std::string::npos) return parts;
        start = end + 1;
    }
}

const char* description(Type type) {
    switch (type) {
        case Type::boolean: return "true or false";
        case Type::integer: return "a whole number";
        case Type::real: return "a number";
        case Type::text: return "text in quotes";
        case Type::integers: return "whole numbers, such as [0, 1] or \"0,1\"";
        case Type::reals: return "numbers, such as [0.7, 0.3] or \"0.7,0.3\"";
        case Type::words: return "a list of texts, such as [\"a\", \"b\"] or \"a,b\"";
        case Type::word_lists:
            return "a list of lists of texts, such as [[\"a\"], [\"b\", \"c\"]] or \"a;b,c\"";
        case Type::tables: return "a list of tables, such as [{key = 1}, {key = 2}]";
    }
    return "";
}

[[noreturn]] void reject_type(const Option& option, const Setting& setting) {
    reject(setting, fmt::format("must be {}", description(option.type)));
}

void check_rule(const Option& option, const Setting& setting, double number) {
    if (option.rule == nullptr || option.rule->holds(number)) return;
    std::string rule = fmt::format("must be {}", option.rule->text);
    if (option.rule->nearest != nullptr && !std::isnan(number))
        rule += fmt::format("; the nearest valid value is {}", option.rule->nearest(number));
    reject(setting, rule);
}

// "wsd" is not a shape of the decay, but a schedule whose decay is short.
std::string more_about(const Option& option, const std::string& text) {
    if (option.name != "lr_scheduler.decay_type" || strcasecmp(text.c_str(), "wsd") != 0) return "";
    return "; for warm-up, stable, decay set lr_scheduler.decay_ratio, the share of the steps in which the "
           "rate decays, such as 0.2";
}

// The choice, spelled as in the table.
std::string check_choice(const Option& option, const Setting& setting, const std::string& text) {
    if (option.choices.empty()) return text;
    for (const std::string& choice : option.choices)
        if (strcasecmp(choice.c_str(), text.c_str()) == 0) return choice;
    const std::string meant = foreign_value(text, option.choices),
                      near = meant.empty() ? nearest_name(text, option.choices) : meant;
    reject(setting, fmt::format("{} be {}{}", option.choices.size() == 1 ? "can only" : "must",
                                option.choices.size() == 1 ? option.choices[0]
                                                           : "one of " + join(option.choices, ", "),
                                near.empty() ? "" : "; did you mean " + near + "?") +
                        more_about(option, text));
}

int64_t integer_of(const Option& option, const Setting& setting, const TomlValue& value) {
    int64_t number = 0;
    if (const int64_t* integer = value.as<int64_t>())
        number = *integer;
    else if (const double* real = value.as<double>();
             real != nullptr && *real == std::floor(*real) && std::fabs(*real) <= 0x1p53)
        number = int64_t(*real);  // 1e3
    else
        reject_type(option, setting);
    check_rule(option, setting, double(number));
    return number;
}

// Each stores a value in a field of its type.
void store(bool& field, const Option& option, const Setting& setting, const TomlValue& value) {
    const bool* boolean = value.as<bool>();
    if (boolean == nullptr) reject_type(option, setting);
    field = *boolean;
}

void store(int64_t& field, const Option& option, const Setting& setting, const TomlValue& value) {
    field = integer_of(option, setting, value);
}

void store(double& field, const Option& option, const Setting& setting, const TomlValue& value) {
    if (const int64_t* integer = value.as<int64_t>())
        field = double(*integer);
    else if (const double* real = value.as<double>())
        field = *real;
    else
        reject_type(option, setting);
    check_rule(option, setting, field);
}

void store(std::string& field, const Option& option, const Setting& setting, const TomlValue& value) {
    const std::string* text = value.as<std::string>();
    if (text == nullptr) reject_type(option, setting);
    field = check_choice(option, setting, *text);
}

// The list that a text on the command line spells as a deck does: ["a.txt", "b.txt"]. A pattern of files may
// begin with a bracket too ([ab].txt), which is not TOML.
std::optional<TomlValue::List> spelled_list(const std::string& text, const std::string& place) {
    if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
    try {
        const std::vector<TomlEntry> entries = parse_toml("list = " + text, place);
        const auto* list = entries.size() == 1 ? entries[0].value.as<TomlValue::List>() : nullptr;
        return list ? std::optional(*list) : std::nullopt;
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

// The elements of a list, or of a text with separators between them.
TomlValue::List list_of(const Option& option, const Setting& setting, const TomlValue& value,
                        char separator) {
    if (const TomlValue::List* list = value.as<TomlValue::List>()) return *list;
    const std::string* text = value.as<std::string>();
    if (text == nullptr) reject_type(option, setting);
    if (auto spelled = spelled_list(*text, setting.place)) return *spelled;
    TomlValue::List list;
    for (const std::string& part : split(*text, separator))
        list.push_back(option.type == Type::integers || option.type == Type::reals
                           ? value_of_word(Type::real, part)
                           : TomlValue{part});
    return list;
}

void store(std::vector<int64_t>& field, const Option& option, const Setting& setting,
           const TomlValue& value) {
    field.clear();
    if (value.as<int64_t>() != nullptr) return field.push_back(integer_of(option, setting, value));
    for (const TomlValue& element : list_of(option, setting, value, ','))
        field.push_back(integer_of(option, setting, element));
}

void store(std::vector<double>& field, const Option& option, const Setting& setting, const TomlValue& value) {
    field.clear();
    const bool one = value.as<int64_t>() != nullptr || value.as<double>() != nullptr;
    for (const TomlValue& element : one ? TomlValue::List{value} : list_of(option, setting, value, ','))
        store(field.emplace_back(), option, setting, element);
}

void store(Words& field, const Option& option, const Setting& setting, const TomlValue& value) {
    field.clear();
    for (const TomlValue& element : list_of(option, setting, value, ','))
        store(field.emplace_back(), option, setting, element);
}

void store(std::vector<Words>& field, const Option& option, const Setting& setting, const TomlValue& value) {
    field.clear();
    for (const TomlValue& element : list_of(option, setting, value, ';'))
        store(field.emplace_back(), option, setting, element);
}

// Tables are given as in a deck, or as text: "{key = 1}, {key = 2}".
void store(std::vector<TomlTable>& field, const Option& option, const Setting& setting,
           const TomlValue& value) {
    const std::string* text = value.as<std::string>();
    if (text != nullptr) {
        const bool is_list = text->starts_with('[');
        const auto entries =
            parse_toml(fmt::format("tables = {}", is_list ? *text : "[" + *text + "]"), setting.place);
        return store(field, option, setting, entries.front().value);
    }
    const auto* list = value.as<TomlValue::List>();
    if (list == nullptr) reject_type(option, setting);
    field.clear();
    for (const TomlValue& element : *list) {
        if (element.as<TomlTable>() == nullptr) reject_type(option, setting);
        field.push_back(*element.as<TomlTable>());
    }
}

template <class T>
void store(std::optional<T>& field, const Option& option, const Setting& setting, const TomlValue& value) {
    const std::string* text = value.as<std::string>();
    if (text != nullptr && strcasecmp(text->c_str(), "none") == 0)
        field.reset();
    else
        store(field.emplace(), option, setting, value);
}

// Checks only the type, for options without a field.
void check_type(const Option& option, const Setting& setting) {
    const auto check = [&]<class T>(T field) { store(field, option, setting, setting.value); };
    switch (option.type) {
        case Type::boolean: return check(std::optional<bool>());
        case Type::integer: return check(std::optional<int64_t>());
        case Type::real: return check(std::optional<double>());
        case Type::text: return check(std::string());
        case Type::integers: return check(std::vector<int64_t>());
        case Type::reals: return check(std::vector<double>());
        case Type::words: return check(Words());
        case Type::word_lists: return check(std::vector<Words>());
        case Type::tables: return check(std::vector<TomlTable>());
    }
}

TomlValue written(bool field) {
    return {field};
}
TomlValue written(int64_t field) {
    return {field};
}
TomlValue written(double field) {
    return {field};
}
TomlValue written(const std::string& field) {
    return {field};
}
TomlValue written(const TomlTable& field) {
    return {field};
}
template <class T>
TomlValue written(const std::vector<T>& field) {
    TomlValue::List list;
    for (const T& element : field) list.push_back(written(element));
    return {std::move(list)};
}

template <class T>
std::optional<TomlValue> load(const T& field) {
    return written(field);
}
template <class T>
std::optional<TomlValue> load(const std::optional<T>& field) {
    return field ? std::optional(written(*field)) : std::nullopt;
}

// The option's name for an alias; the value is converted in place.
std::string todays_name(Setting& setting) {
    const Alias* alias = find_alias(setting.name);
    if (alias == nullptr) {
        if (find_option(setting.name) == nullptr)
            throw ConfigError("{}: {}", setting.place, unknown_option(setting.name));
        return setting.name;
    }
    if (alias->kind == Alias::Kind::retired)
        throw ConfigError("{}: {} is not an option of Coeus; {}", setting.place, setting.name, alias->name);
    if (alias->kind == Alias::Kind::same) return alias->name;
    const bool* on = setting.value.as<bool>();
    if (on == nullptr) reject(setting, "must be true or false");
    if (alias->kind == Alias::Kind::inverted)
        setting.value = {!*on};
    else
        setting.value = {*on ? TomlValue::List{{std::string(float8_converter)}} : TomlValue::List{}};
    return alias->name;
}

}  // namespace

TomlValue value_of_word(Type type, const std::string& word) {
    if (type == Type::boolean) {
        if (strcasecmp(word.c_str(), "true") == 0 || word == "1") return {true};
        if (strcasecmp(word.c_str(), "false") == 0 || word == "0") return {false};
    }
    if (type == Type::integer || type == Type::real) {
        const std::string plain = without_underscores(word);
        if (const auto integer = parse_number<int64_t>(plain)) return {*integer};
        if (const auto real = parse_number<double>(plain)) return {*real};
    }
    return {word};
}

Type type_named(const std::string& name, const std::string& place) {
    const Alias* alias = find_alias(name);
    if (alias != nullptr && alias->kind == Alias::Kind::retired) return Type::text;
    if (alias != nullptr && alias->kind != Alias::Kind::same) return Type::boolean;
    const Option* option = find_option(alias != nullptr ? alias->name : name);
    if (option == nullptr) throw ConfigError("{}: {}", place, unknown_option(name));
    return option->type;
}

void add_layer(std::vector<Setting> given, Settings& settings, Errors& errors) {
    Settings layer;
    for (Setting& setting : given)
        errors.collect(
            [&] {
                const std::string name = todays_name(setting);
                const auto [other, is_new] = layer.emplace(name, setting);
                if (!is_new)
                    throw ConfigError("{}: {} and {} ({}) are the same option; remove one of the two",
                                      setting.place, setting.name, other->second.name, other->second.place);
            },
            setting.name);
    settings.merge(layer);
}

void assign(const Option& option, const Setting& setting, Config& config) {
    if (option.slot == nullptr) return check_type(option, setting);
    std::visit([&](auto* field) { store(*field, option, setting, setting.value); }, option.slot(config));
}

std::optional<TomlValue> value_of(const Option& option, Config& config) {
    if (option.slot == nullptr) return std::nullopt;
    return std::visit([](const auto* field) { return load(*field); }, option.slot(config));
}

void reject(const Setting& setting, const std::string& rule) {
    throw ConfigError("{}: {} = {}: {}", setting.place, setting.name, setting.text, rule);
}

}  // namespace coeus::config

namespace coeus {

std::optional<std::variant<bool, int64_t, double, std::string>> option_value(const Config& config,
                                                                             std::string_view name) {
    const config::Option* option = config::find_option(name);
    if (option == nullptr) return std::nullopt;
    Config fields = config;  // a slot points to a field that can be written
    const std::optional<TomlValue> value = config::value_of(*option, fields);
    if (!value) return std::nullopt;
    return std::visit(
        []<class T>(const T& held) -> std::optional<std::variant<bool, int64_t, double, std::string>> {
            if constexpr (std::is_same_v<T, TomlValue::List> || std::is_same_v<T, TomlTable>)
                return std::nullopt;
            else
                return held;
        },
        value->value);
}

}  // namespace coeus
