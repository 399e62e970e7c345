// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/json.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

constexpr int64_t most_json_values = 1 << 24;  // each takes about 50 bytes
constexpr size_t max_depth = 256;              // levels of nesting; a file with more is damaged

// Receives the parser's events and fills a Json. Pointers to containers on the stack stay valid, since only
// the innermost container grows.
class Builder {
public:
    explicit Builder(std::string name) : name_(std::move(name)) {}

    bool null() { return add({}); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(int64_t value) { return add(value); }
    bool number_unsigned(uint64_t value) {
        return value <= uint64_t(INT64_MAX) ? add(int64_t(value)) : add(double(value));
    }
    bool number_float(double value, const std::string&) { return add(value); }
    bool string(std::string& value) { return add(std::move(value)); }
    bool binary(std::vector<uint8_t>&) { return false; }  // does not occur in JSON text
    bool start_object(size_t) { return open(Json::object()); }
    bool start_array(size_t) { return open(Json::array()); }
    bool key(std::string& name) {
        key_ = std::move(name);
        return true;
    }
    bool end_array() {
        stack_.pop_back();
        return true;
    }
    bool end_object() {
        check_keys(*stack_.back()->as_object());
        return end_array();
    }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..."
        std::string reason = error.what();
        if (const size_t at = reason.find("] "); at != std::string::npos) reason.erase(0, at + 2);
        throw ConfigError("{}: not valid JSON: {}", name_, reason);
    }

    std::unique_ptr<Json> root = std::make_unique<Json>();

private:
    Json& place(Json value) {
        if (++count_ > most_json_values)
            throw ConfigError("{}: its JSON has more than {} values, the most that are read", name_,
                              with_commas(most_json_values));
        if (stack_.empty()) return *root = std::move(value);
        if (Json::Array* array = stack_.back()->as_array()) return array->emplace_back(std::move(value));
        return stack_.back()->as_object()->emplace_back(std::move(key_), std::move(value)).second;
    }
    bool add(Json value) {
        place(std::move(value));
        return true;
    }
    bool open(Json value) {
        if (stack_.size() >= max_depth)
            throw ConfigError("{}: nested deeper than {} levels", name_, max_depth);
        stack_.push_back(&place(std::move(value)));
        return true;
    }
    void check_keys(const Json::Object& object) const {
        std::vector<std::string_view> keys;
        keys.reserve(object.size());
        for (const auto& [name, value] : object) keys.push_back(name);
        std::sort(keys.begin(), keys.end());
        if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
            throw ConfigError("{}: the key \"{}\" appears twice in one object", name_, *twice);
    }

    std::string name_, key_;
    std::vector<Json*> stack_;
    int64_t count_ = 0;
};

using Value = nlohmann::ordered_json;

// One value in nlohmann's form, for its number and string formatting.
std::string scalar_text(const Json& value) {
    Value scalar;
    if (const bool* b = value.as_boolean()) scalar = *b;
    if (const int64_t* i = value.as_integer()) scalar = *i;
    if (const double* d = value.as_real()) scalar = *d;
    if (const std::string* s = value.as_string()) scalar = *s;
    return scalar.dump(-1, ' ', false, Value::error_handler_t::replace);
}

void write(const Json& value, int indent, int depth, std::string& out) {
    const auto new_line = [&](int level) {
        if (indent >= 0) out.append("\n").append(size_t(indent * level), ' ');
    };
    if (const Json::Array* array = value.as_array()) {
        out += '[';
        for (size_t i = 0; i < array->size(); ++i) {
            if (i) out += ',';
            new_line(depth + 1);
            write((*array)[i], indent, depth + 1, out);
        }
        if (!array->empty()) new_line(depth);
        out += ']';
    } else if (const Json::Object* object = value.as_object()) {
        out += '{';
        for (size_t i = 0; i < object->size(); ++i) {
            if (i) out += ',';
            new_line(depth + 1);
            out += scalar_text((*object)[i].first) + (indent >= 0 ? ": " : ":");
            write((*object)[i].second, indent, depth + 1, out);
        }
        if (!object->empty()) new_line(depth);
        out += '}';
    } else {
        out += scalar_text(value);
    }
}

}  // namespace

Json Json::array() {
    Json json;
    json.value_ = Array();
    return json;
}

Json Json::object() {
    Json json;
    json.value_ = Object();
    return json;
}

Json& Json::set(std::string_view key, Json value) {
    Object* object = as_object();
    require(object != nullptr, "Json::set on a value that is not an object");
    for (auto& [name, old] : *object)
        if (name == key) return old = std::move(value), *this;
    object->emplace_back(std::string(key), std::move(value));
    return *this;
}

Json& Json::push(Json value) {
    Array* array = as_array();
    require(array != nullptr, "Json::push on a value that is not an array");
    array->push_back(std::move(value));
    return *this;
}

void Json::reserve(size_t count) {
    if (Array* array = as_array()) array->reserve(count);
    if (Object* object = as_object()) object->reserve(count);
}

std::string Json::text(int indent) const {
    std::string out;
    write(*this, indent, 0, out);
    return out;
}

const Json* Json::find(std::string_view key) const {
    if (const Object* all = as_object())
        for (const auto& [name, value] : *all)
            if (name == key) return &value;
    return nullptr;
}

std::string JsonView::file_and_path() const {
    return path_.empty() ? file_ + ": the top level" : file_ + ": " + path_;
}

void JsonView::reject(std::string_view rule) const {
    std::string shown = is_object() ? "an object" : is_array() ? "an array" : scalar_text(*value_);
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    throw ConfigError("{} {}, is {}", file_and_path(), rule, shown);
}

bool JsonView::boolean() const {
    const bool* b = value_->as_boolean();
    if (!b) reject("must be true or false");
    return *b;
}

int64_t JsonView::integer() const {
    if (const int64_t* i = value_->as_integer()) return *i;
    if (const double* d = value_->as_real(); d && *d == std::floor(*d) && std::fabs(*d) < 0x1p62)
        return int64_t(*d);
    reject("must be an integer");
}

double JsonView::number() const {
    if (const int64_t* i = value_->as_integer()) return double(*i);
    if (const double* d = value_->as_real()) return *d;
    reject("must be a number");
}

const std::string& JsonView::string() const {
    const std::string* s = value_->as_string();
    if (!s) reject("must be a string");
    return *s;
}

std::vector<int64_t> JsonView::integers() const {
    std::vector<int64_t> all;
    for (const JsonView& element : elements()) all.push_back(element.integer());
    return all;
}

std::vector<std::string> JsonView::strings() const {
    std::vector<std::string> all;
    for (const JsonView& element : elements()) all.push_back(element.string());
    return all;
}

size_t JsonView::size() const {
    if (is_array()) return value_->as_array()->size();
    if (is_object()) return value_->as_object()->size();
    reject("must be an array or an object");
}

std::vector<JsonView> JsonView::elements() const {
    if (!is_array()) reject("must be an array");
    std::vector<JsonView> all;
    all.reserve(size());
    for (size_t i = 0; i < size(); ++i) all.push_back((*this)[i]);
    return all;
}

std::vector<std::pair<std::string, JsonView>> JsonView::items() const {
    if (!is_object()) reject("must be an object");
    std::vector<std::pair<std::string, JsonView>> all;
    all.reserve(size());
    for (const auto& [name, value] : *value_->as_object())
        all.emplace_back(name, at(value, path_.empty() ? name : path_ + "." + name));
    return all;
}

JsonView JsonView::noting(std::set<std::string>& asked) const {
    JsonView view = *this;
    view.asked_ = &asked;
    return view;
}

JsonView JsonView::at(const Json& value, std::string path) const {
    JsonView view(value, file_, std::move(path));
    view.asked_ = asked_;
    if (asked_) asked_->insert(view.path_);
    return view;
}

JsonView JsonView::operator[](std::string_view key) const {
    if (!is_object()) reject("must be an object");
    const std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
    const Json* value = value_->find(key);
    if (!value) throw ConfigError("{}: {} is missing", file_, path);
    return at(*value, path);
}

JsonView JsonView::operator[](size_t index) const {
    if (!is_array()) reject("must be an array");
    if (index >= size()) reject(fmt::format("must have at least {} elements", index + 1));
    return at((*value_->as_array())[index], fmt::format("{}[{}]", path_, index));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
    if (!is_object()) reject("must be an object");
    const Json* value = value_->find(key);
    if (!value) return std::nullopt;
    const JsonView found = (*this)[key];  // records the key, also if its value is null
    if (found.is_null()) return std::nullopt;
    return found;
}

bool JsonView::boolean(std::string_view key, bool otherwise) const {
    const auto found = find(key);
    return found ? found->boolean() : otherwise;
}

int64_t JsonView::integer(std::string_view key, int64_t otherwise) const {
    const auto found = find(key);
    return found ? found->integer() : otherwise;
}

double JsonView::number(std::string_view key, double otherwise) const {
    const auto found = find(key);
    return found ? found->number() : otherwise;
}

std::string JsonView::string(std::string_view key, std::string_view otherwise) const {
    const auto found = find(key);
    return found ? found->string() : std::string(otherwise);
}

JsonDocument JsonDocument::parse(std::string_view text, std::string name) {
    Builder builder(name);
    Value::sax_parse(text.begin(), text.end(), &builder);
    return {std::move(builder.root), std::move(name)};
}

JsonDocument JsonDocument::read(const std::filesystem::path& file) {
    constexpr int64_t most_bytes = 128 << 20;  // the values need up to 25 times as much memory
    return parse(read_text_file(file, most_bytes), file.string());
}

// Not by RawFile, whose operations the flight recorder has: the watchdog writes its reports by this function.
void write_json(const Json& value, const std::filesystem::path& file, int indent) {
    write_whole_file(file, value.text(indent) + '\n');
}

}  // namespace coeus
