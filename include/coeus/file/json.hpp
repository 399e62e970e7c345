// SPDX-License-Identifier: Apache-2.0
// JSON: values that are built and written (Json), and a reader whose errors have file and path (JsonView).
//   const JsonDocument config = JsonDocument::read("model/config.json");
//   const int64_t hidden = config.root().integer("hidden_size");
//   -> "model/config.json: hidden_size must be an integer, is \"x\""
// The text is parsed and written by nlohmann-json, which only json.cpp uses.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coeus {

/// One JSON value. Objects keep the order in which keys were set or read.
class Json {
public:
    using Array = std::vector<Json>;
    using Object = std::vector<std::pair<std::string, Json>>;

    Json() = default;  ///< null
    Json(bool value) : value_(value) {}
    template <std::integral T>
    requires(!std::same_as<T, bool>) Json(T value) : value_(int64_t(value)) {}
    Json(double value) : value_(value) {}  ///< not finite: written as null
    Json(const char* value) : value_(std::string(value)) {}
    Json(std::string_view value) : value_(std::string(value)) {}
    Json(std::string value) : value_(std::move(value)) {}
    template <class T>
    Json(const std::vector<T>& values) : value_(Array(values.begin(), values.end())) {}
    static Json array();
    static Json object();

    /// Adds or replaces a key of an object; appends to an array. Both return *this, for chains.
    Json& set(std::string_view key, Json value);
    Json& push(Json value);
    void reserve(size_t count);

    /// One line (indent < 0) or indented. Numbers keep full digits; bytes that are not UTF-8 become U+FFFD.
    std::string text(int indent = -1) const;

    bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
    const bool* as_boolean() const { return std::get_if<bool>(&value_); }
    const int64_t* as_integer() const { return std::get_if<int64_t>(&value_); }
    const double* as_real() const { return std::get_if<double>(&value_); }
    const std::string* as_string() const { return std::get_if<std::string>(&value_); }
    const Array* as_array() const { return std::get_if<Array>(&value_); }
    const Object* as_object() const { return std::get_if<Object>(&value_); }
    Array* as_array() { return std::get_if<Array>(&value_); }
    Object* as_object() { return std::get_if<Object>(&value_); }
    /// The value of an object's key, or null.
    const Json* find(std::string_view key) const;

private:
    std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// A value in a document. It borrows the document, which must outlive it. Every read throws a ConfigError,
/// with file and path, if the value is missing or has another type.
class JsonView {
public:
    JsonView(const Json& value, std::string file, std::string path = "")
        : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

    /// The same view, which also records keys: every existing key that is read from it or from a part of it
    /// is added to `asked` with its path. `asked` must outlive the view.
    JsonView noting(std::set<std::string>& asked) const;

    const Json& value() const { return *value_; }
    const std::string& file() const { return file_; }
    const std::string& path() const { return path_; }  ///< "rope_scaling.factor", "shape[1]"

    bool is_null() const { return value_->is_null(); }
    bool is_object() const { return value_->as_object() != nullptr; }
    bool is_array() const { return value_->as_array() != nullptr; }
    bool is_boolean() const { return value_->as_boolean() != nullptr; }

    bool boolean() const;
    int64_t integer() const;  ///< accepts 4096.0 and 1e6 too, but not 0.5
    double number() const;    ///< accepts integers too
    const std::string& string() const;
    std::vector<int64_t> integers() const;
    std::vector<std::string> strings() const;

    size_t size() const;  ///< of an array or object
    std::vector<JsonView> elements() const;
    std::vector<std::pair<std::string, JsonView>> items() const;

    JsonView operator[](std::string_view key) const;
    JsonView operator[](size_t index) const;
    /// None if the key is absent or its value is null.
    std::optional<JsonView> find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key).has_value(); }

    bool boolean(std::string_view key) const { return (*this)[key].boolean(); }
    int64_t integer(std::string_view key) const { return (*this)[key].integer(); }
    double number(std::string_view key) const { return (*this)[key].number(); }
    const std::string& string(std::string_view key) const { return (*this)[key].string(); }
    /// The same with a default for an absent or null key.
    bool boolean(std::string_view key, bool otherwise) const;
    int64_t integer(std::string_view key, int64_t otherwise) const;
    double number(std::string_view key, double otherwise) const;
    std::string string(std::string_view key, std::string_view otherwise) const;

    /// Throws ConfigError "FILE: PATH RULE, is VALUE". `rule`: a rule of the caller, such as "must be
    /// positive".
    [[noreturn]] void reject(std::string_view rule) const;

private:
    std::string file_and_path() const;
    JsonView at(const Json& value, std::string path) const;
    const Json* value_;
    std::string file_, path_;
    std::set<std::string>* asked_ = nullptr;
};

/// A parsed text, and its name in messages.
class JsonDocument {
public:
    /// Throws ConfigError, with `name`, line and column, if the text is not JSON.
    static JsonDocument parse(std::string_view text, std::string name);
    /// Throws ConfigError if the file cannot be read or is not JSON.
    static JsonDocument read(const std::filesystem::path& file);

    JsonView root() const { return {*value_, name_}; }

private:
    JsonDocument(std::unique_ptr<const Json> value, std::string name)
        : value_(std::move(value)), name_(std::move(name)) {}
    std::unique_ptr<const Json> value_;  // on the heap, so that views stay valid when the document is moved
    std::string name_;
};

/// Writes the text and a line end under a temporary name and renames the file. SystemError, with the file's
/// name, if it cannot be written.
void write_json(const Json& value, const std::filesystem::path& file, int indent = 2);

}  // namespace coeus
