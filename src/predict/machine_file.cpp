// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/machine_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/kernels/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coeus {

namespace {

using Names = std::vector<std::string>;

Names kernel_names() {
    Names names = {"*"};
#define COEUS_NAME(name) names.emplace_back(#name);
    COEUS_EACH_KERNEL(COEUS_NAME)
#undef COEUS_NAME
    return names;
}

// What a number may be: any machine's values are far inside. Others would give times that are not finite, or
// lose digits.
struct Range {
    double least, most;
    const char* text;
};
constexpr Range per_second = {0.001, 1e21, "must be at least 0.001 a second, and at most 10^21"};
constexpr Range in_seconds = {1e-12, 1e4, "must be at least 10^-12 s, and at most 10^4 s"};
constexpr Range amount = {1e-6, 1e18, "must be at least 10^-6, and at most 10^18"};

// A table of the file: its keys, and where they are. Every table with a number names its source.
class Table {
public:
    Table(std::string name, std::string place) : name_(std::move(name)), place_(std::move(place)) {}

    void add(const std::string& key, const TomlValue& value, const std::string& place) {
        entries_.push_back({key, value, place});
    }
    const std::string& place() const { return place_; }

    // Each of these reads a key and marks it as known.
    std::string text(const std::string& key, const Names& allowed = {}, bool required = true) {
        const TomlEntry* const entry = find(key, required, "a text");
        if (!entry) return "";
        const std::string* const text = entry->value.as<std::string>();
        if (!text) refuse(*entry, "must be a text in quotes");
        if (!allowed.empty() && std::ranges::find(allowed, *text) == allowed.end()) {
            const std::string near = nearest_name(*text, allowed);
            refuse(*entry, near.empty() ? "must be one of " + join(allowed, ", ")
                                        : fmt::format("is unknown; did you mean {}?", near));
        }
        if (text->empty()) refuse(*entry, "must not be empty");
        return *text;
    }
    Names texts(const std::string& key) {
        const TomlEntry* const entry = find(key, false, "");
        Names all;
        if (!entry) return all;
        const auto* const list = entry->value.as<TomlValue::List>();
        if (!list) refuse(*entry, "must be a list of texts");
        for (const TomlValue& value : *list) {
            if (!value.as<std::string>()) refuse(*entry, "must be a list of texts");
            all.push_back(*value.as<std::string>());
        }
        return all;
    }
    // A positive number; 0 if it is absent.
    double number(const std::string& key, const Range& range, bool required = false) {
        const TomlEntry* const entry = find(key, required, "a number above 0");
        if (!entry) return 0;
        has_number_ = true;
        const double value = number_of(*entry, entry->value);
        if (value <= 0) refuse(*entry, "must be above 0; leave it out if it is not known");
        require_within(range, *entry, value);
        return value;
    }
    int whole_number(const std::string& key, bool required = false) {
        constexpr int largest = std::numeric_limits<int>::max();
        const double value = number(key, {0, std::numeric_limits<double>::max(), ""}, required);
        if (value > largest) refuse(*find(key, true, ""), fmt::format("must be at most {}", largest));
        if (value != std::floor(value)) refuse(*find(key, true, ""), "must be a whole number");
        return int(value);
    }
    BandwidthCurve curve(const std::string& key) {
        const TomlEntry* const entry = find(key, false, "");
        BandwidthCurve points;
        if (!entry) return points;
        has_number_ = true;
        const char* const rule = "must be a list of [bytes, bytes per second] above 0, with ascending bytes";
        const auto* const list = entry->value.as<TomlValue::List>();
        if (!list || list->empty()) refuse(*entry, rule);
        for (const TomlValue& point : *list) {
            const auto* const pair = point.as<TomlValue::List>();
            if (!pair || pair->size() != 2) refuse(*entry, rule);
            points.emplace_back(number_of(*entry, (*pair)[0]), number_of(*entry, (*pair)[1]));
            const auto& [bytes, rate] = points.back();
            if (bytes <= 0 || rate <= 0 || (points.size() > 1 && bytes <= points[points.size() - 2].first))
                refuse(*entry, rule);
            require_within(amount, *entry, bytes);
            require_within(per_second, *entry, rate);
        }
        return points;
    }
    // Refuses keys that nothing has read. A table with numbers needs a source.
    void end() {
        if (!name_.empty()) known_.emplace_back("from");
        for (const TomlEntry& entry : entries_) {
            if (std::ranges::find(known_, entry.key) != known_.end()) continue;
            const std::string near = nearest_name(entry.key, known_);
            throw ConfigError("{}: unknown key {}{} Known are {}", entry.place, in_table(entry.key),
                              near.empty() ? "." : "; did you mean " + near + "?", join(known_, ", "));
        }
        if (has_number_) text("from");
    }

    [[noreturn]] void refuse(const std::string& rule) const {
        throw ConfigError("{}: {}: {}", place_, name_, rule);
    }

private:
    void require_within(const Range& range, const TomlEntry& entry, double value) const {
        if (value < range.least || value > range.most) refuse(entry, range.text);
    }
    std::string in_table(const std::string& key) const {
        return name_.empty() ? key : fmt::format("{}.{}", name_, key);
    }
    [[noreturn]] void refuse(const TomlEntry& entry, const std::string& rule) const {
        throw ConfigError("{}: {} = {}: {}", entry.place, in_table(entry.key), toml_text(entry.value), rule);
    }
    double number_of(const TomlEntry& entry, const TomlValue& value) const {
        if (const int64_t* const integer = value.as<int64_t>()) return double(*integer);
        const double* const real = value.as<double>();
        if (!real) refuse(entry, "must be a number");
        if (!std::isfinite(*real)) refuse(entry, "must be finite; leave it out if it is not known");
        return *real;
    }
    const TomlEntry* find(const std::string& key, bool required, const std::string& what) {
        if (std::ranges::find(known_, key) == known_.end()) known_.push_back(key);
        const auto found = std::ranges::find(entries_, key, &TomlEntry::key);
        if (found != entries_.end()) return &*found;
        if (required)
            throw ConfigError("{}: {} is missing: it must be {}", place_, in_table(key),
                              key == "from" ? "the source of the table's numbers" : what);
        return nullptr;
    }

    std::string name_, place_;
    std::vector<TomlEntry> entries_;
    Names known_;
    bool has_number_ = false;
};

// The file as tables: those with one name, and lists of tables.
class Tables {
public:
    Tables(std::string_view text, const std::string& file) : file_(file) {
        for (const TomlEntry& entry : parse_toml(text, file)) {
            const auto* const list = entry.value.as<TomlValue::List>();
            if (list && !list->empty() && list->front().as<TomlTable>()) {
                add_list(entry, *list);
                continue;
            }
            const size_t dot = entry.key.find('.');
            const std::string name = dot == std::string::npos ? "" : entry.key.substr(0, dot);
            tables_.try_emplace(name, name, entry.place)
                .first->second.add(dot == std::string::npos ? entry.key : entry.key.substr(dot + 1),
                                   entry.value, entry.place);
        }
        tables_.try_emplace("", "", file);
    }

    // Calls read(table) if the file has this table.
    void one(const std::string& name, const std::function<void(Table&)>& read) {
        known_.push_back(name);
        if (const auto list = lists_.find(name); list != lists_.end())
            throw ConfigError("{}: {} must be one table: write [{}]", list->second.front().place(), name,
                              name);
        const auto found = tables_.find(name);
        if (found == tables_.end()) return;
        read(found->second);
        found->second.end();
    }
    void each(const std::string& name, const std::function<void(Table&)>& read) {
        known_.push_back(name);
        if (const auto table = tables_.find(name); table != tables_.end())
            throw ConfigError("{}: {} must be a list: write [[{}]]", table->second.place(), name, name);
        const auto list = lists_.find(name);
        if (list == lists_.end()) return;
        for (Table& table : list->second) {
            read(table);
            table.end();
        }
    }
    void end() const {
        const auto check = [&](const std::string& name, const std::string& place) {
            if (std::ranges::find(known_, name) != known_.end()) return;
            const std::string near = nearest_name(name, known_);
            throw ConfigError("{}: unknown table {}{} A machine file has {}", place, name,
                              near.empty() ? "." : "; did you mean " + near + "?",
                              join({known_.begin() + 1, known_.end()}, ", "));
        };
        for (const auto& [name, table] : tables_) check(name, table.place());
        for (const auto& [name, tables] : lists_) check(name, tables.front().place());
    }

private:
    void add_list(const TomlEntry& entry, const TomlValue::List& list) {
        for (size_t i = 0; i < list.size(); ++i) {
            const TomlTable* const table = list[i].as<TomlTable>();
            if (!table) throw ConfigError("{}: {}: must be a list of tables", entry.place, entry.key);
            Table& read =
                lists_[entry.key].emplace_back(fmt::format("{}[{}]", entry.key, i + 1), entry.place);
            constexpr std::string_view prefix = "table.";
            for (const TomlEntry& inner : parse_toml("table = " + table->text, file_))
                read.add(inner.key.substr(prefix.size()), inner.value, entry.place);
        }
    }

    std::string file_;
    std::map<std::string, Table> tables_;
    std::map<std::string, std::vector<Table>> lists_;
    Names known_;
};

Dtype type_of(Table& table) {
    static const Names types = {"bf16", "f32", "f8"};
    const std::string name = table.text("type", types);
    return name == "bf16" ? Dtype::bf16 : name == "f32" ? Dtype::f32 : Dtype::fp8_e4m3;
}

void read_rates(Tables& tables, MachineFile& machine) {
    tables.each("products", [&](Table& t) {
        MachineFile::Products& p = machine.products.emplace_back();
        p.type = type_of(t);
        p.form = t.text("form", {"nt", "nn", "tn", "experts", "expert_weights", "codes", "converted"}, false);
        p.m = t.number("m", amount);
        p.n = t.number("n", amount);
        p.k = t.number("k", amount);
        p.flops = t.number("flops", per_second, true);
    });
    tables.each("rows", [&](Table& t) {
        MachineFile::Rows& r = machine.rows.emplace_back();
        r.kernel = t.text("kernel", kernel_names());
        r.bytes_per_call = t.number("bytes_per_call", amount);
        r.bytes_per_second = t.number("bytes_per_second", per_second, true);
        r.seconds = t.number("seconds", in_seconds);
    });
    tables.each("attention", [&](Table& t) {
        MachineFile::Attention& a = machine.attention.emplace_back();
        a.type = type_of(t);
        a.kernel = t.text("kernel", {"own", "own_wgmma", "cudnn", "cudnn_any_order"});
        a.head_dim = t.number("head_dim", amount);
        a.tokens = t.number("tokens", amount);
        a.forward = t.number("forward", per_second);
        a.backward = t.number("backward", per_second);
        if (a.forward == 0 && a.backward == 0) t.refuse("has neither forward nor backward");
    });
    tables.each("calls", [&](Table& t) {
        const std::string key = t.text("key");
        if (!machine.calls.try_emplace(key, t.number("seconds", in_seconds, true)).second)
            t.refuse(fmt::format("an earlier table has the key \"{}\" too; leave one of them out", key));
    });
}

void read_network(Tables& tables, MachineFile& machine) {
    tables.one("node", [&](Table& t) { machine.ranks_of_node = t.whole_number("ranks", true); });
    tables.each("level", [&](Table& t) {
        MachineFile::Level& level = machine.levels.emplace_back();
        level.name = t.text("name");
        level.ranks = t.whole_number("ranks");
        level.alpha = t.number("alpha", in_seconds);
        level.hop = t.number("hop", in_seconds);
        level.per_node = t.number("per_node", per_second);
        for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce", "all_reduce_nvls",
                                      "all_to_all", "message", "copy"})
            if (BandwidthCurve curve = t.curve(operation); !curve.empty())
                level.bandwidth[operation] = std::move(curve);
        if (level.per_node == 0 && level.bandwidth.empty())
            t.refuse("has neither per_node nor a bandwidth by size, such as all_gather");
        if (level.per_node > 0 && level.ranks > 0)
            t.refuse(
                "has both per_node and ranks: a level between nodes connects any number; leave ranks out");
        if (level.per_node == 0 && level.hop > 0)
            t.refuse("has hop, but no per_node: hop is of a level between nodes; leave it out");
        if (level.per_node > 0 && std::ranges::count_if(machine.levels, [](const MachineFile::Level& other) {
                                      return other.per_node > 0;
                                  }) > 1)
            t.refuse("an earlier level has per_node too; leave one of them out");
        if (level.per_node > 0 && !level.bandwidth.empty())
            t.refuse(
                fmt::format("has both per_node, which is for a level between nodes, and {}, which is for "
                            "one within a node; leave one of them out",
                            level.bandwidth.begin()->first));
    });
    tables.one("overlap", [&](Table& t) {
        MachineFile::Overlap o;
        o.sms = t.number("sms", amount, true);
        o.sms_of_a_collective = t.number("sms_of_a_collective", amount, true);
        if (o.sms_of_a_collective >= o.sms) t.refuse("sms_of_a_collective must be less than sms");
        o.sms_of_a_copy = t.number("sms_of_a_copy", amount);
        if (o.sms_of_a_copy >= o.sms) t.refuse("sms_of_a_copy must be less than sms");
        o.memory_share = t.number("memory_share", amount);
        if (o.memory_share >= 1) t.refuse("memory_share must be less than 1");
        machine.overlap = o;
    });
    tables.one("nccl", [&](Table& t) {
        machine.nccl = t.whole_number("version", true);
        machine.driver = t.whole_number("driver", true);
    });
}

}  // namespace

const char* text_of(MachineFile::Kind kind) {
    switch (kind) {
        case MachineFile::Kind::sheet: return "from data sheets and published results";
        case MachineFile::Kind::measured: return "measured";
        case MachineFile::Kind::fitted: return "fitted to runs";
    }
    throw LogicError("unknown kind of machine file");
}

MachineFile parse_machine_file(std::string_view text, const std::string& file) {
    constexpr int64_t mib = int64_t(1) << 20;
    Tables tables(text, file);
    MachineFile machine;
    tables.one("", [&](Table& t) {
        machine.name = t.text("name");
        machine.aliases = t.texts("aliases");
        machine.title = t.text("title");
        const std::string kind = t.text("kind", {"sheet", "measured", "fitted"});
        machine.kind = kind == "sheet"      ? MachineFile::Kind::sheet
                       : kind == "measured" ? MachineFile::Kind::measured
                                            : MachineFile::Kind::fitted;
        machine.note = t.text("note", {}, false);
    });
    tables.one("gpu", [&](Table& t) {
        GpuModel& gpu = machine.gpu.emplace();
        gpu.title = t.text("model");
        gpu.capability = t.whole_number("capability", true);
        gpu.memory_bytes = t.whole_number("memory_mib", true) * mib;
    });
    tables.one("peak", [&](Table& t) {
        for (const auto& [key, type] : {std::pair("bf16", Dtype::bf16), std::pair("f32", Dtype::f32)})
            if (const double flops = t.number(key, per_second); flops > 0) machine.peak[type] = flops;
        machine.peak_of_8_bits = t.number("f8", per_second);
    });
    tables.one("memory",
               [&](Table& t) { machine.memory_bandwidth = t.number("bytes_per_second", per_second, true); });
    tables.one("launch", [&](Table& t) {
        if (const double s = t.number("seconds", in_seconds); s > 0) machine.launch = s;
        if (const double s = t.number("seconds_in_graph", in_seconds); s > 0) machine.launch_in_graph = s;
    });
    read_rates(tables, machine);
    read_network(tables, machine);
    tables.end();
    return machine;
}

}  // namespace coeus
