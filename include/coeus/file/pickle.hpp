// SPDX-License-Identifier: Apache-2.0
// Python's pickles as data. A pickle is a program for a small stack machine, which in Python may call
// anything; this reader calls nothing: what a pickle would call or build stays a note of its name and
// arguments, and every name that the caller has not listed is refused, as is every opcode that plain data
// does not need. Format: docs.python.org/3/library/pickletools.html (protocols 2 to 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coeus {

/// One value. Values may share parts and even hold themselves: walk along a known path, never all of it.
struct PickleValue {
    using List = std::vector<const PickleValue*>;
    struct Tuple {
        List elements;
    };
    using Dict = std::vector<std::pair<const PickleValue*, const PickleValue*>>;
    /// A class or function by its name: "torch.float32".
    struct Global {
        std::string_view name;
    };
    /// What Python would make by calling a global; or a reference to something beside the pickle.
    struct Object {
        std::string_view type;               ///< of the global, or Pickle::persistent
        const PickleValue* arguments;        ///< a tuple, or of any kind (persistent)
        const PickleValue* state = nullptr;  ///< what it would be built with
    };

    bool is_none() const { return std::holds_alternative<std::monostate>(value); }
    template <class T>
    const T* as() const {
        return std::get_if<T>(&value);
    }
    const List* list() const { return as<List>(); }
    const List* tuple() const { return as<Tuple>() ? &as<Tuple>()->elements : nullptr; }
    const int64_t* integer() const { return as<int64_t>(); }
    const std::string_view* text() const { return as<std::string_view>(); }
    /// The object where it is of this type, else null.
    const Object* object(std::string_view type) const;
    /// The value of a text key of a dict, or null.
    const PickleValue* find(std::string_view key) const;

    std::variant<std::monostate, bool, int64_t, double, std::string_view, Tuple, List, Dict, Global, Object>
        value;
};

class Pickle {
public:
    /// As a name in a list of what is allowed, and as the type of such an object.
    static constexpr std::string_view persistent = "a persistent id";

    /// `bytes` and `allowed` ("module.name") must outlive it. ConfigError with `name`, the byte and what is
    /// there: damaged, an opcode that executes or that plain data does not need, a global that is not
    /// allowed.
    Pickle(std::span<const std::byte> bytes, std::string name, std::span<const std::string_view> allowed);

    const PickleValue& root() const { return *root_; }
    const std::string& name() const { return name_; }

private:
    friend class PickleMachine;
    std::string name_;
    std::deque<PickleValue> values_;
    const PickleValue* root_ = nullptr;
};

}  // namespace coeus
