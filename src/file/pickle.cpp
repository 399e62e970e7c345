// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/pickle.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

namespace coeus {

namespace {

constexpr size_t most_values = 100'000'000;

struct Opcode {
    char code;
    const char* name;
};
// refused opcodes, with their names for messages
constexpr Opcode refused[] = {{'i', "INST"},
                              {'o', "OBJ"},
                              {'P', "PERSID"},
                              {'\x82', "EXT1"},
                              {'\x83', "EXT2"},
                              {'\x84', "EXT4"},
                              {'\x92', "NEWOBJ_EX"},
                              {'\x97', "NEXT_BUFFER"},
                              {'\x98', "READONLY_BUFFER"},
                              {'\x96', "BYTEARRAY8"},
                              {'\x8b', "LONG4"},
                              {'\x8f', "EMPTY_SET"},
                              {'\x90', "ADDITEMS"},
                              {'\x91', "FROZENSET"},
                              {'2', "DUP"},
                              {'0', "POP"},
                              {'1', "POP_MARK"},
                              {'I', "INT"},
                              {'F', "FLOAT"},
                              {'L', "LONG"},
                              {'S', "STRING"},
                              {'V', "UNICODE"},
                              {'g', "GET"},
                              {'p', "PUT"},
                              {'d', "DICT"},
                              {'l', "LIST"}};

}  // namespace

const PickleValue::Object* PickleValue::object(std::string_view type) const {
    const Object* object = as<Object>();
    return object && object->type == type ? object : nullptr;
}

const PickleValue* PickleValue::find(std::string_view key) const {
    if (const Dict* dict = as<Dict>())
        for (const auto& [name, found] : *dict)
            if (const std::string_view* text = name->text(); text && *text == key) return found;
    return nullptr;
}

/// The stack machine. Each opcode makes at most one value, and none of them loops or recurses. So time and
/// memory are bounded by the length of the pickle.
class PickleMachine {
public:
    PickleMachine(Pickle& pickle, std::span<const std::byte> bytes, std::span<const std::string_view> allowed)
        : pickle_(pickle), bytes_(bytes), allowed_(allowed) {}

    void run() {
        if (take<uint8_t>() != 0x80) reject("it does not begin as a pickle of protocol 2 or later");
        if (const uint8_t protocol = take<uint8_t>(); protocol < 2 || protocol > 5)
            reject(fmt::format("protocol {} is not known", protocol));
        while (!pickle_.root_) {
            at_ = next_;
            step(char(take<uint8_t>()));
        }
        if (next_ != bytes_.size()) reject("there are bytes after its end");
    }

private:
    using List = PickleValue::List;

    [[noreturn]] void reject(const std::string& reason) const {
        throw ConfigError("{}: the pickle cannot be read, at byte {}: {}", pickle_.name_, at_, reason);
    }

    std::string_view take_bytes(uint64_t count) {
        if (count > bytes_.size() - next_) reject("it is truncated");
        const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + next_;
        next_ += size_t(count);
        return {begin, size_t(count)};
    }
    template <class T>
    T take() {
        T value;
        std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
        return value;
    }
    std::string_view take_line() {
        const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + next_,
                                    bytes_.size() - next_);
        const size_t end = rest.find('\n');
        if (end == std::string_view::npos) reject("it is truncated");
        next_ += end + 1;
        return rest.substr(0, end);
    }

    template <class T>
    void push(T value) {
        if (pickle_.values_.size() >= most_values) reject("it has too many values");
        stack_.push_back(&pickle_.values_.emplace_back());
        stack_.back()->value = std::move(value);
    }
    PickleValue* pop() {
        if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) reject("its stack is empty");
        PickleValue* top = stack_.back();
        stack_.pop_back();
        return top;
    }
    PickleValue& top() {
        PickleValue* value = pop();
        stack_.push_back(value);
        return *value;
    }
    List pop_to_mark() {
        if (marks_.empty()) reject("a mark is missing");
        List list(stack_.begin() + ptrdiff_t(marks_.back()), stack_.end());
        stack_.resize(marks_.back());
        marks_.pop_back();
        return list;
    }
    void push_tuple(size_t count) {
        List elements(count);
        for (size_t i = count; i-- > 0;) elements[i] = pop();
        push(PickleValue::Tuple{std::move(elements)});
    }

    void push_integer(uint8_t length) {
        if (length > 8) reject("an integer has more than 64 bits");
        const std::string_view bytes = take_bytes(length);
        uint64_t value = length > 0 && uint8_t(bytes.back()) >= 0x80 ? ~uint64_t(0) : 0;
        for (size_t i = length; i-- > 0;) value = value << 8 | uint8_t(bytes[i]);
        push(int64_t(value));
    }

    void remember(uint32_t number) { memo_[number] = &top(); }
    void recall(uint32_t number) {
        const auto found = memo_.find(number);
        if (found == memo_.end()) reject("it refers to a value that does not exist");
        stack_.push_back(found->second);
    }

    void push_global(std::string_view module, std::string_view name) {
        for (const std::string_view known : allowed_)
            if (known.size() == module.size() + 1 + name.size() && known.starts_with(module) &&
                known[module.size()] == '.' && known.ends_with(name)) {
                push(PickleValue::Global{known});
                return;
            }
        reject(fmt::format("it names {}.{}, which such a file does not need", printable(module.substr(0, 80)),
                           printable(name.substr(0, 80))));
    }
    // Records a call that Python would make.
    void push_object() {
        const PickleValue* arguments = pop();
        const auto* global = pop()->as<PickleValue::Global>();
        if (!global || !arguments->tuple()) reject("it calls something that is not a name with arguments");
        push(PickleValue::Object{global->name, arguments});
    }
    void push_persistent() {
        if (std::find(allowed_.begin(), allowed_.end(), Pickle::persistent) == allowed_.end())
            reject("it refers to data outside of it, which such a file does not need");
        const PickleValue* id = pop();
        push(PickleValue::Object{Pickle::persistent, id});
    }
    void build() {
        const PickleValue* state = pop();
        auto* object = std::get_if<PickleValue::Object>(&top().value);
        if (!object || object->state)
            reject("it sets the state of something that is not an object, or that has a state");
        object->state = state;
    }

    void append(const List& values) {
        auto* list = std::get_if<List>(&top().value);
        if (!list) reject("it appends to something that is not a list");
        list->insert(list->end(), values.begin(), values.end());
    }
    void set_items(const List& values) {
        auto* dict = std::get_if<PickleValue::Dict>(&top().value);
        if (!dict || values.size() % 2 != 0) reject("it sets items of something that is not a dict");
        for (size_t i = 0; i < values.size(); i += 2) dict->emplace_back(values[i], values[i + 1]);
    }

    void stop() {
        const PickleValue* result = pop();
        if (!stack_.empty() || !marks_.empty()) reject("values are left over at its end");
        pickle_.root_ = result;
    }

    [[noreturn]] void reject_opcode(char code) const {
        for (const Opcode& opcode : refused)
            if (opcode.code == code)
                reject(fmt::format("opcode {}, which such a file does not need", opcode.name));
        reject(fmt::format("byte 0x{:02x} is not an opcode", uint8_t(code)));
    }

    void step(char code) {
        switch (code) {
            case '\x95':  // FRAME
                if (take<uint64_t>() > bytes_.size() - next_) reject("it is truncated");
                return;
            case '.': return stop();
            case '(': return marks_.push_back(stack_.size());
            case 'N': return push(std::monostate());
            case '\x88': return push(true);
            case '\x89': return push(false);
            case 'K': return push(int64_t(take<uint8_t>()));
            case 'M': return push(int64_t(take<uint16_t>()));
            case 'J': return push(int64_t(take<int32_t>()));
            case '\x8a': return push_integer(take<uint8_t>());
            case 'G': return push(std::bit_cast<double>(__builtin_bswap64(take<uint64_t>())));
            case '\x8c': return push(take_bytes(take<uint8_t>()));
            case 'X': return push(take_bytes(take<uint32_t>()));
            case '\x8d': return push(take_bytes(take<uint64_t>()));
            case ')': return push_tuple(0);
            case '\x85': return push_tuple(1);
            case '\x86': return push_tuple(2);
            case '\x87': return push_tuple(3);
            case 't': return push(PickleValue::Tuple{pop_to_mark()});
            case ']': return push(List());
            case 'a': return append({pop()});
            case 'e': return append(pop_to_mark());
            case '}': return push(PickleValue::Dict());
            case 's': {
                const PickleValue *value = pop(), *key = pop();
                return set_items({key, value});
            }
            case 'u': return set_items(pop_to_mark());
            case '\x94': return remember(uint32_t(memo_.size()));
            case 'q': return remember(take<uint8_t>());
            case 'r': return remember(take<uint32_t>());
            case 'h': return recall(take<uint8_t>());
            case 'j': return recall(take<uint32_t>());
            case 'c': {
                const std::string_view module = take_line(), name = take_line();
                return push_global(module, name);
            }
            case '\x93': {
                const std::string_view *name = pop()->text(), *module = pop()->text();
                if (!name || !module) reject("a name is not a text");
                return push_global(*module, *name);
            }
            case 'R':
            case '\x81': return push_object();
            case 'Q': return push_persistent();
            case 'b': return build();
            default: reject_opcode(code);
        }
    }

    Pickle& pickle_;
    std::span<const std::byte> bytes_;
    std::span<const std::string_view> allowed_;
    size_t next_ = 0, at_ = 0;
    std::vector<PickleValue*> stack_;
    std::vector<size_t> marks_;
    std::unordered_map<uint32_t, PickleValue*> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::string name, std::span<const std::string_view> allowed)
    : name_(std::move(name)) {
    PickleMachine(*this, bytes, allowed).run();
}

}  // namespace coeus
