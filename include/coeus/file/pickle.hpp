// SPDX-License-Identifier: Apache-2.0
// Pickle: reads Python's pickles as data. A pickle is a program for a small stack machine, and in Python it
// may call any function. This reader calls nothing: it only records the name and arguments of each call. It
// refuses every name that the caller has not listed, and every opcode that plain data does not need. Format:
// docs.python.org/3/library/pickletools.html (protocols 2 to 5).
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

/// One value. Values may share parts and may even contain themselves. So follow a known path, and never visit
/// all parts.
struct PickleValue {
    using List = std::vector<const PickleValue*>;
    struct Tuple {
        List elements;
    };
    using Dict = std::vector<std::pair<const PickleValue*, const PickleValue*>>;
    /// The name of a class or function: "torch.float32".
    struct Global {
        std::string_view name;
    };
    /// An object that Python would make by calling a global; or a reference to data outside of the pickle.
    struct Object {
        std::string_view type;               ///< name of the global, or Pickle::persistent
        const PickleValue* arguments;        ///< a tuple; for Pickle::persistent a value of any kind
        const PickleValue* state = nullptr;  ///< the state that Python would give to the object; null: none
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
    /// The object if it has this type, else null.
    const Object* object(std::string_view type) const;
    /// The value of a text key of a dict, or null.
    const PickleValue* find(std::string_view key) const;

    std::variant<std::monostate, bool, int64_t, double, std::string_view, Tuple, List, Dict, Global, Object>
        value;
};

class Pickle {
public:
    /// Stands for references to data outside of the pickle: in the list of allowed names, and as
    /// Object::type.
    static constexpr std::string_view persistent = "a persistent id";

    /// `allowed`: the names ("module.name") that the pickle may contain. `bytes` and `allowed` must outlive
    /// it. ConfigError, with `name` and the place: a damaged pickle, an opcode that plain data does not need,
    /// a global that is not allowed.
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
