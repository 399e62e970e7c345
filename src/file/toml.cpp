// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/toml.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"

#include <fmt/format.h>

// toml++ 3.3 uses assertions for some invalid texts, such as "[{a]"
#undef NDEBUG
namespace {
struct NotToml {};
[[noreturn]] void refuse_text() {
    throw NotToml();
}
}  // namespace
#define TOML_ASSERT(expression) ((expression) ? void() : refuse_text())
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <tuple>

namespace coeus {

namespace {

std::string place_of(const toml::source_region& source, const std::string& name) {
    return fmt::format("{}:{}:{}", name, source.begin.line, source.begin.column);
}

std::string quoted(const std::string& text) {
    std::string q = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            q += {'\\', c};
        else if (c == '\n')
            q += "\\n";
        else if (c == '\t')
            q += "\\t";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            q += fmt::format("\\u{:04x}", int(c));
        else
            q += c;
    }
    return q + '"';
}

bool is_bare(std::string_view key) {
    return !key.empty() && std::all_of(key.begin(), key.end(),
                                       [](unsigned char c) { return isalnum(c) || c == '_' || c == '-'; });
}

TomlValue value_of(const toml::node& node, const std::string& key, const std::string& name);

// A table on one line, with its keys in alphabetical order; the same for tables within it.
std::string inline_text(const toml::table& table, const std::string& key, const std::string& name) {
    std::vector<std::string> parts;
    for (const auto& [own_key, node] : table) {
        const toml::table* inner = node.as_table();
        parts.push_back(fmt::format(
            "{} = {}",
            is_bare(own_key.str()) ? std::string(own_key.str()) : quoted(std::string(own_key.str())),
            inner ? inline_text(*inner, key, name) : toml_text(value_of(node, key, name))));
    }
    return "{" + join(parts, ", ") + "}";
}

TomlValue value_of(const toml::node& node, const std::string& key, const std::string& name) {
    if (const auto* boolean = node.as_boolean()) return {boolean->get()};
    if (const auto* integer = node.as_integer()) return {integer->get()};
    if (const auto* real = node.as_floating_point()) return {real->get()};
    if (const auto* text = node.as_string()) return {text->get()};
    if (const toml::array* array = node.as_array()) {
        TomlValue::List list;
        for (const toml::node& element : *array) list.push_back(value_of(element, key, name));
        return {std::move(list)};
    }
    if (const toml::table* table = node.as_table()) return {TomlTable{inline_text(*table, key, name)}};
    throw ConfigError("{}: {}: a date or time is not possible here", place_of(node.source(), name), key);
}

struct Found {
    toml::source_position position;  // of the key
    TomlEntry entry;
};

void flatten(const toml::table& table, const std::string& prefix, const std::string& name,
             std::vector<Found>& found) {
    for (const auto& [key, node] : table) {
        const std::string path = prefix + std::string(key.str());
        if (const toml::table* inner = node.as_table())
            flatten(*inner, path + ".", name, found);
        else
            found.push_back(
                {key.source().begin, {path, value_of(node, path, name), place_of(key.source(), name)}});
    }
}

std::string real_text(double value) {
    std::string text = fmt::format("{}", value);  // the shortest text that reads back as the same bits
    // in TOML 1.0 is a real number and 1 an integer
    if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

constexpr int max_parts = 64;  // of a key; a.b has 2 parts

// The last character of the string that begins at `first`.
size_t end_of_string(std::string_view text, size_t first) {
    const char quote = text[first];
    const bool has_lines = text.substr(first, 3) == std::string(3, quote);
    const std::string end(has_lines ? 3 : 1, quote);
    for (size_t at = first + end.size(); at < text.size(); ++at) {
        if (text[at] == '\\' && quote == '"') {
            ++at;
        } else if (text.substr(at, end.size()) == end) {
            at += end.size() - 1;
            // one or two more quotes belong to the string
            for (int more = 0; more < 2 && has_lines && text.substr(at + 1, 1) == end.substr(0, 1); ++more)
                ++at;
            return at;
        } else if (text[at] == '\n' && !has_lines) {
            return at - 1;
        }
    }
    return text.size() - 1;
}

// ConfigError if a key has too many parts. Each part is a table within a table, and toml++ would overflow the
// stack.
void check_keys(std::string_view text, const std::string& name) {
    int64_t line = 1;
    int parts = 1;
    for (size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '"' || c == '\'') {
            const size_t first = at;
            at = end_of_string(text, first);
            const std::string_view inside = text.substr(first, at - first);
            line += std::count(inside.begin(), inside.end(), '\n');
        } else if (c == '#') {
            at = std::min(text.find('\n', at), text.size()) - 1;
        } else if (c == '.') {
            if (++parts > max_parts)
                throw ConfigError("{}:{}: a key has more than {} parts; write one with fewer dots", name,
                                  line, max_parts);
        } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
            parts = 1;
            line += c == '\n';
        }
    }
}

// What to do about a text that is not TOML, for the mistakes that are made most often; "" for others. `line`:
// where the error is, from 1.
std::string remedy(std::string_view text, const std::string& name, size_t line) {
    for (const char* ending : {".yaml", ".yml", ".json", ".py"})
        if (name.ends_with(ending))
            return fmt::format(
                ". This is a {} file by its name; a deck is TOML, with [section] and option = value (`coeus "
                "help options` lists them)",
                ending);
    for (size_t at = 1; at < line && !text.empty(); ++at)
        text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    constexpr size_t longest = 300;  // regular expressions take stack for each character
    const std::string written(text.substr(0, text.find('\n')));
    if (written.size() > longest) return "";
    static const std::regex without_quotes(
        R"(^\s*([A-Za-z_][\w.-]*)\s*=\s*([A-Za-z_./~][^"'\[\]{}#=]*?)\s*(#.*)?\r?$)");
    static const std::regex with_colon(R"(^\s*([A-Za-z_][\w.-]*)\s*:\s*(\S.*)?$)");
    std::smatch found;
    if (std::regex_match(written, found, without_quotes)) {
        const std::string value = found[2];
        if (value == "True" || value == "False")
            return fmt::format(". TOML writes {} = {}", found[1].str(), value == "True" ? "true" : "false");
        return fmt::format(". A text needs quotes: {} = \"{}\"", found[1].str(), value);
    }
    if (std::regex_match(written, found, with_colon))
        return ". A deck is TOML, not YAML: it has [section] and option = value";
    return "";
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& name) {
    if (text.starts_with("\x89HDF"))
        throw ConfigError("{}: is an HDF5 file (a token file or a checkpoint), not a TOML file", name);
    check_keys(text, name);
    std::vector<Found> found;
    try {
        flatten(toml::parse(text, name), "", name, found);
    } catch (const NotToml&) {
        throw ConfigError("{}: not valid TOML: a key or a value begins with an invalid character{}", name,
                          remedy(text, name, 0));
    } catch (const toml::parse_error& error) {
        throw ConfigError("{}: not valid TOML: {}{}", place_of(error.source(), name), error.description(),
                          remedy(text, name, error.source().begin.line));
    }
    // toml++ sorts by key, but messages should follow the order of the file
    std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return std::tie(a.position.line, a.position.column) < std::tie(b.position.line, b.position.column);
    });
    std::vector<TomlEntry> entries;
    for (Found& f : found) entries.push_back(std::move(f.entry));
    return entries;
}

std::vector<TomlEntry> read_toml(const std::filesystem::path& file) {
    constexpr int64_t most_bytes = 16 << 20;
    return parse_toml(read_text_file(file, most_bytes), file.string());
}

std::string toml_text(const TomlValue& value) {
    if (const bool* boolean = value.as<bool>()) return *boolean ? "true" : "false";
    if (const int64_t* integer = value.as<int64_t>()) return fmt::format("{}", *integer);
    if (const double* real = value.as<double>()) return real_text(*real);
    if (const std::string* text = value.as<std::string>()) return quoted(*text);
    if (const TomlTable* table = value.as<TomlTable>()) return table->text;
    std::vector<std::string> parts;
    for (const TomlValue& element : *value.as<TomlValue::List>()) parts.push_back(toml_text(element));
    return "[" + join(parts, ", ") + "]";
}

}  // namespace coeus
