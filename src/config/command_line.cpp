// SPDX-License-Identifier: Apache-2.0
// The command line of `coeus train`, parsed by Boost.Program_options: --a.b=v, --a.b v, and --a.b or --a.no_b
// for booleans. Names cannot be abbreviated. If an option is given twice, the last one wins. Precedence,
// highest first: command line, deck, included decks, environment.
#include "check.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/deck_rules.hpp"
#include "datasets.hpp"
#include "deck.hpp"
#include "folder_pattern.hpp"
#include "precision_converters.hpp"
#include "suggestions.hpp"

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <strings.h>

namespace coeus {

namespace {

using namespace config;
namespace po = boost::program_options;

constexpr const char* here = "command line";

// Options of the command that are not options of a deck.
constexpr const char* dry_run_option = "dry_run";
constexpr const char* ranks_option = "ranks";
constexpr const char* gpu_option = "gpu";
constexpr const char* memory_option = "memory";
constexpr const char* strict_option = "strict";
constexpr std::pair<const char*, Type> command_options[] = {{dry_run_option, Type::boolean},
                                                            {ranks_option, Type::integer},
                                                            {gpu_option, Type::text},
                                                            {memory_option, Type::text},
                                                            {strict_option, Type::boolean}};
constexpr int64_t max_ranks = 1 << 24;

// The word after an option of a given type, stored as a Setting.
class Word : public po::value_semantic {
public:
    Word(std::string name, Type type) : name_(std::move(name)), type_(type) {}
    std::string name() const override { return "arg"; }
    unsigned min_tokens() const override { return 1; }
    unsigned max_tokens() const override { return 1; }
    bool is_composing() const override { return false; }
    bool is_required() const override { return false; }
    bool apply_default(boost::any&) const override { return false; }
    void notify(const boost::any&) const override {}
    void parse(boost::any& stored, const std::vector<std::string>& words, bool) const override {
        stored = Setting{name_, value_of_word(type_, words.at(0)), words.at(0), here};
    }

private:
    std::string name_;
    Type type_;
};

void add(po::options_description& table, const std::string& name, Type type) {
    table.add_options()(name.c_str(), new Word(name, type));
}

po::options_description option_table() {
    po::options_description table;
    for (const Option& option : options()) add(table, option.name, option.type);
    for (const Alias& alias : aliases()) add(table, alias.old_name, type_named(alias.old_name, here));
    for (const auto& [name, type] : command_options) add(table, name, type);
    return table;
}

// The type of an option of the command; nothing for an option of a deck.
std::optional<Type> command_type(const std::string& name) {
    for (const auto& [known, type] : command_options)
        if (name == known) return type;
    return std::nullopt;
}

Words command_names() {
    Words names;
    for (const auto& [name, type] : command_options) names.emplace_back(name);
    return names;
}

bool is_known(const std::string& name) {
    return command_type(name) || find_option(name) != nullptr || find_alias(name) != nullptr;
}

bool is_boolean(const std::string& name) {
    if (const auto type = command_type(name)) return *type == Type::boolean;
    return is_known(name) && type_named(name, here) == Type::boolean;
}

// "a.no_b" -> "a.b"; "" if the last part does not begin with no_
std::string without_no(const std::string& name) {
    const size_t dot = name.rfind('.');
    const size_t start = dot == std::string::npos ? 0 : dot + 1;
    return name.compare(start, 3, "no_") == 0 ? name.substr(0, start) + name.substr(start + 3) : "";
}

// Handles the forms that Boost does not: a boolean without a value (--a.b or --a.no_b) or followed by true or
// false, and the empty value of --a.b=
std::vector<po::option> take_special(std::vector<std::string>& words) {
    if (!words[0].starts_with("--")) return {};
    std::string key = words[0].substr(2), value = "true";
    const std::string positive = without_no(key);
    const bool empty = key.ends_with('=');
    if (empty) {
        key.pop_back();
        value = "";
        if (!is_known(key)) return {};
    } else if (!is_boolean(key)) {
        if (!is_boolean(positive)) return {};
        key = positive;
        value = "false";
    }
    po::option taken(key, {value});
    taken.original_tokens = {words[0]};
    words.erase(words.begin());
    const bool alone = empty || key == positive || words.empty();
    if (!alone && value_of_word(Type::boolean, words[0]).as<bool>() != nullptr) {
        taken.value = {words[0]};
        words.erase(words.begin());
    }
    return {taken};
}

struct Found {
    po::variables_map options;
    Words words;  // the deck
};

Found parse(const std::vector<std::string>& arguments) {
    using namespace po::command_line_style;
    const po::options_description table = option_table();
    Found found;
    try {
        const po::parsed_options parsed = po::command_line_parser(arguments)
                                              .options(table)
                                              .style(allow_long | long_allow_adjacent | long_allow_next)
                                              .extra_style_parser(take_special)
                                              .allow_unregistered()
                                              .run();
        Errors errors;
        for (const po::option& option : parsed.options) {
            const std::string& word = option.original_tokens.at(0);
            if (option.string_key.empty() && word.size() > 1 && word.starts_with('-'))
                errors.note(fmt::format("{}: {}: options begin with two dashes{}", here, word,
                                        word == "-n" || word == "-np"
                                            ? "; ranks are started by mpirun: mpirun -n 2 coeus train DECK"
                                            : ""));
            if (option.unregistered)
                errors.note(
                    fmt::format("{}: {}", here, unknown_option(option.string_key, "--", command_names())));
            if (option.string_key.empty()) found.words.push_back(word);
        }
        errors.require_none();
        po::store(parsed, found.options);
    } catch (const po::invalid_command_line_syntax& error) {
        throw ConfigError("{}: {} needs a value: {}=VALUE", here, error.get_option_name(),
                          error.get_option_name());
    }
    return found;
}

std::optional<Setting> take(po::variables_map& given, const std::string& name) {
    const auto found = given.find(name);
    if (found == given.end()) return std::nullopt;
    const Setting setting = found->second.as<Setting>();
    given.erase(found);
    return setting;
}

// --memory: "80GiB". A number without a unit is meant in GiB more often than in bytes, so it is refused.
int64_t memory_of(const Setting& setting) {
    constexpr int64_t least = 1 << 20;
    const int64_t bytes = parse_bytes(setting.text).value_or(0);
    if (bytes >= least) return bytes;
    const bool is_number =
        setting.text.find_first_not_of("0123456789.") == std::string::npos && !setting.text.empty();
    if (bytes > 0)
        reject(setting, fmt::format("is {}; must be at least 1 MiB, such as {}", bytes_text(double(bytes)),
                                    is_number ? setting.text + "GiB" : "80GiB"));
    reject(setting, "must be a size, such as 80GiB");
}

// The deck: a positional argument or --job.config_file.
std::string deck_of(const Found& found) {
    if (found.words.size() > 1)
        throw ConfigError("{}: only one deck can be given, not {} ({}); a deck can include others", here,
                          found.words.size(), join(found.words, ", "));
    if (!found.words.empty() && found.words[0].empty())
        throw ConfigError("{}: an argument is empty; it must be the path of a deck", here);
    const auto named = found.options.find("job.config_file");
    const std::string file = named == found.options.end() ? "" : named->second.as<Setting>().text;
    if (!file.empty() && !found.words.empty() && file != found.words[0])
        throw ConfigError("{}: two decks are given: {} and --job.config_file={}; remove one of the two", here,
                          found.words[0], file);
    return found.words.empty() ? file : found.words[0];
}

void add_environment(Settings& settings, Errors& errors) {
    const char* ranks = std::getenv("LOG_RANK");
    if (ranks != nullptr && *ranks != '\0')
        add_layer({{"log.ranks", {std::string(ranks)}, ranks, "environment variable LOG_RANK"}}, settings,
                  errors);
}

bool is_same(const TomlValue& a, const TomlValue& b) {
    const std::string *text = a.as<std::string>(), *other = b.as<std::string>();
    return text != nullptr && other != nullptr ? strcasecmp(text->c_str(), other->c_str()) == 0 : a == b;
}

// Whether the value of an option without a field would change anything in torchtitan.
bool asks(const Option& option, const TomlValue& value) {
    if (option.idle) return !is_same(value, *option.idle);
    if (const bool* boolean = value.as<bool>()) return *boolean;
    if (const int64_t* number = value.as<int64_t>()) return *number != 0;
    if (const double* number = value.as<double>()) return *number != 0;
    if (const std::string* text = value.as<std::string>()) return !text->empty();
    const TomlValue::List* list = value.as<TomlValue::List>();
    return list == nullptr || !list->empty();
}

bool is_refused(const Option& option, const TomlValue& given) {
    return std::any_of(option.refused.begin(), option.refused.end(),
                       [&](const std::string& choice) { return is_same(given, {choice}); });
}

// Why a given value has no effect; "" if it has one, or equals the default.
std::string why_idle(const Option& option, const TomlValue& given, const Config& config) {
    if (option.status == Status::dormant || option.status == Status::no_effect) {
        if (is_refused(option, given) || !asks(option, given)) return "";
        return option.status == Status::no_effect
                   ? option.why
                   : fmt::format("it needs {}, which is not implemented yet or not used", option.why);
    }
    Config fields = config, plain;
    const std::string converter = missing_converter(option, config);
    if (converter.empty() || value_of(option, fields) == value_of(option, plain)) return "";
    return fmt::format("it needs model.converters = [\"{}\"]", converter);
}

// Adds one notice per reason, which names all options concerned.
void add_no_effect_notices(const Settings& settings, const Config& config, Words& notices) {
    std::vector<std::pair<std::string, Words>> reasons;
    for (const Option& option : options()) {
        const auto setting = settings.find(option.name);
        if (setting == settings.end()) continue;
        const std::string why = why_idle(option, setting->second.value, config);
        if (why.empty()) continue;
        const auto known =
            std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == why; });
        (known == reasons.end() ? reasons.emplace_back(why, Words()) : *known)
            .second.push_back(setting->second.name);
    }
    for (const auto& [why, names] : reasons)
        notices.push_back(
            fmt::format("{} {} no effect: {}", join(names, ", "), names.size() == 1 ? "has" : "have", why));
}

// One line for each refused setting: for options that are refused, every value that would change something;
// for others, the choices that are refused.
Words refused_in(const Settings& settings) {
    Words lines;
    for (const Option& option : options()) {
        const auto found = settings.find(option.name);
        if (found == settings.end()) continue;
        const Setting& setting = found->second;
        if (option.status == Status::refused && asks(option, setting.value))
            lines.push_back(fmt::format("{} = {}: {}; remove it", setting.name, setting.text, option.why));
        else if (is_refused(option, setting.value))
            lines.push_back(fmt::format("{} = {}: {}", setting.name, setting.text, option.refusal));
    }
    return lines;
}

// The newest decks of torchtitan count a batch in tokens: [local, global]_batch_size = tokens / seq_len.
void count_batches_in_sequences(const Settings& settings, Config& config) {
    const auto convert = [&](const char* name, std::optional<int64_t>& tokens, const char* batch,
                             int64_t& field) {
        if (!tokens) return;
        const int64_t count = *tokens, seq_len = config.training.seq_len;
        tokens.reset();
        if (settings.contains(batch))
            throw ConfigError("{} = {}: sets in tokens what {} sets in sequences; remove one of the two",
                              name, count, batch);
        if (count > 0 && count % seq_len != 0)
            throw ConfigError(
                "{} = {}: must be a multiple of training.seq_len = {}; the nearest valid value is {}", name,
                count, seq_len, std::max<int64_t>(1, (count + seq_len / 2) / seq_len) * seq_len);
        field = count > 0 ? count / seq_len : count;
    };
    convert("training.num_tokens_per_microbatch_per_dp_rank",
            config.training.num_tokens_per_microbatch_per_dp_rank, "training.local_batch_size",
            config.training.local_batch_size);
    convert("training.num_tokens_per_train_step", config.training.num_tokens_per_train_step,
            "training.global_batch_size", config.training.global_batch_size);
}

// Looks up datasets that are given by name. Validation data is looked up if the deck names it, or if it gives
// the training data by name too; otherwise its default name means nothing. If a name that the deck gives is
// not found, a real run is refused (`absent_data`).
void find_datasets(const Settings& settings, Config& config, Words& notices, Words& absent_data) {
    const auto find = [&](const char* option, const std::string& name, Words& paths) {
        paths = named_dataset(name);
        if (paths.empty()) return false;
        notices.push_back(
            fmt::format("{} = \"{}\" is {}{}", option, name, paths[0],
                        paths.size() == 1 ? "" : fmt::format(" and {} more", paths.size() - 1)));
        return true;
    };
    auto& training = config.training;
    auto& validation = config.validation;
    const bool by_name = training.dataset_path.empty();
    if (by_name) find("training.dataset", training.dataset, training.dataset_path);
    // both in one deck, or on the command line: one of the two is not what is meant
    const auto name = settings.find("training.dataset"), path = settings.find("training.dataset_path");
    const auto file_of = [](const Setting& setting) {
        return setting.place.substr(0, setting.place.find(':'));
    };
    if (!by_name && name != settings.end() && path != settings.end() &&
        (name->second.place == here || file_of(name->second) == file_of(path->second)))
        notices.push_back(
            fmt::format("training.dataset = \"{}\" has no effect: training.dataset_path names the data",
                        training.dataset));
    if (!validation.enable || !validation.dataset_path.empty()) return;
    const bool given = settings.contains("validation.dataset") && !validation.dataset.empty();
    if ((by_name || given) && find("validation.dataset", validation.dataset, validation.dataset_path)) return;
    const std::string absent = fmt::format("validation.dataset = \"{}\": was not found in {}",
                                           validation.dataset, dataset_folders());
    const char* const held_out = "every 100th sequence of the training data is held out";
    if (given) {
        absent_data.push_back(
            fmt::format("{} (set $COEUS_DATASETS to search another folder). Make it there with `coeus "
                        "tokenize INPUT --tokenizer FOLDER --output {}.h5`, or set validation.dataset_path "
                        "to your own text, or remove validation.dataset: then {}",
                        absent, validation.dataset, held_out));
        return;
    }
    if (by_name && !validation.dataset.empty())
        notices.push_back(fmt::format("{}: {} for validation", absent, held_out));
    validation.dataset.clear();  // so that the effective deck describes what is done
}

// In 2025 the converter of linear layers converted experts too, if an option of it named some.
void add_converter_of_experts(const Settings& settings, Config& config) {
    for (const std::string kind : {"float8", "mx"}) {
        const std::string converter = "quantize.grouped_mm." + kind;
        const auto named = settings.find(converter + ".fqns");
        const Words& fqns =
            kind == "mx" ? config.quantize.grouped_mm.mx.fqns : config.quantize.grouped_mm.float8.fqns;
        if (named != settings.end() && named->second.name == kind + ".moe_fqns_prototype" && !fqns.empty() &&
            uses_converter(config, "quantize.linear." + kind) && !uses_converter(config, converter))
            config.model.converters.push_back(converter);
    }
}

// ConfigError if the degrees do not fit the number of ranks, which --ranks gives in a dry run.
void check_mesh(const Config& config, const DeckRules& rules, int ranks, bool dry_run) {
    try {
        if (rules.check_degrees) rules.check_degrees(config, ranks);
        mesh_shape(config, ranks);
    } catch (const ConfigError& error) {
        if (!dry_run) throw;
        throw ConfigError("{} (in a dry run, --ranks N is the number of ranks)", error.what());
    }
}

// Completes values that are not given and depend on others, and replaces old names.
void complete(const Settings& settings, Config& config) {
    count_batches_in_sequences(settings, config);
    if (!settings.contains("validation.seq_len")) config.validation.seq_len = config.training.seq_len;
    if (!settings.contains("validation.local_batch_size"))
        config.validation.local_batch_size = config.training.local_batch_size;
    name_converters_uniquely(config);
    add_converter_of_experts(settings, config);
}

// Takes what only the command line has, such as --dry_run, out of the options.
void take_flags(po::variables_map& options, CommandLine& result) {
    const auto take_boolean = [&](const char* name) {
        const auto setting = take(options, name);
        if (!setting) return false;
        const bool* on = setting->value.as<bool>();
        if (on == nullptr) reject(*setting, "must be true or false");
        return *on;
    };
    result.dry_run = take_boolean(dry_run_option);
    result.strict = take_boolean(strict_option);
    if (const auto setting = take(options, gpu_option)) {
        result.gpu = setting->text;
        if (result.gpu.empty())
            reject(*setting, "must be the name of a GPU, such as h100, or a machine file");
    }
    if (const auto setting = take(options, memory_option)) {
        result.memory_bytes = memory_of(*setting);
    }
    if (const auto setting = take(options, ranks_option)) {
        const int64_t* count = setting->value.as<int64_t>();
        if (count == nullptr || *count < 1 || *count > max_ranks)
            reject(*setting, fmt::format("must be a whole number from 1 to {}", max_ranks));
        result.ranks = int(*count);
    }
}

// Replaces other names of values by their own.
void name_by_own_names(const DeckRules& rules, Config& config, Words& notices) {
    for (const DeckRules::Choices& choices : rules.choices) {
        const Option* option = find_option(choices.option);
        std::string& value = *std::get<std::string*>(option->slot(config));
        const auto known = std::ranges::find(choices.other_names, value, &DeckRules::OtherName::name);
        if (known == choices.other_names.end()) continue;
        notices.push_back(
            fmt::format("{} = \"{}\" is \"{}\": {}", option->name, value, known->value, known->why));
        value = known->value;
    }
}

// The values of the deck, the command line and the environment.
void assign_all(const Settings& settings, const DeckRules& rules, CommandLine& result, Errors& errors) {
    Config& config = result.config;
    for (const Option& option : options_with(rules))
        if (const auto setting = settings.find(option.name); setting != settings.end())
            errors.collect([&] { assign(option, setting->second, config); }, option.name);
    name_by_own_names(rules, config, result.notices);
    for (const auto& [name, setting] : settings) result.origins[name] = setting.place;
    // before a folder's architecture decided, a deck without model.name meant the default family
    if (config.model.flavor == "hf" && !result.origins.contains("model.name") && rules.family_of_folder)
        if (const std::string family = rules.family_of_folder(config.model.hf_assets_path); !family.empty())
            config.model.name = family;
    if (config.memory_estimation.enable && !result.dry_run) {
        result.dry_run = true;
        result.notices.push_back("memory_estimation.enable = true: this is a dry run that plans the memory");
    }
}

// ConfigError if a real run gets what is for a dry run.
void require_dry_run(const CommandLine& result) {
    if (result.ranks > 0 && !result.dry_run)
        throw ConfigError("{}: --ranks needs --dry_run; a real run has the ranks that mpirun or srun starts",
                          here);
    if ((!result.gpu.empty() || result.memory_bytes > 0) && !result.dry_run)
        throw ConfigError("{}: --{} needs --dry_run; a real run asks the device for its memory", here,
                          result.gpu.empty() ? memory_option : gpu_option);
    if (result.strict && !result.dry_run) throw ConfigError("{}: --strict needs --dry_run", here);
    if (!result.gpu.empty() && result.config.device == "cpu")
        throw ConfigError("{}: --gpu={} plans for a GPU, but device = \"cpu\"; remove one of the two", here,
                          result.gpu);
}

// The number of ranks that are planned, if this is a dry run of one rank without --ranks.
void plan_fewest_ranks(CommandLine& result) {
    result.ranks = fewest_ranks(result.config.parallelism);
    if (result.ranks > 1)
        result.notices.push_back(fmt::format(
            "Planned for {} ranks, the fewest that the degrees of [parallelism] need; --ranks N plans for "
            "another number",
            result.ranks));
}

}  // namespace

CommandLine parse_by_rules(const std::vector<std::string>& arguments, const DeckRules& rules, int ranks) {
    CommandLine result;
    Found found = parse(arguments);
    const std::string deck = deck_of(found);
    take_flags(found.options, result);

    Errors errors;
    Settings settings;
    std::vector<Setting> given;
    for (const auto& [name, value] : found.options) given.push_back(value.as<Setting>());
    add_layer(std::move(given), settings, errors);
    if (!deck.empty()) add_deck(deck, settings, errors);
    add_environment(settings, errors);

    Config& config = result.config;
    assign_all(settings, rules, result, errors);
    config.job.config_file = deck;
    require_dry_run(result);
    if (!result.gpu.empty()) config.device = "cuda";
    errors.collect([&] { complete(settings, config); });
    errors.collect([&] { config.job.dump_folder = fill_in_options(config.job.dump_folder, config); });
    if (result.dry_run && result.ranks == 0 && ranks == 1) plan_fewest_ranks(result);
    if (result.dry_run && result.ranks > 0) ranks = result.ranks;
    if (ranks > 0)
        errors.collect([&] { check_mesh(config, rules, ranks, result.dry_run); }, "parallel_degree");
    find_datasets(settings, config, result.notices, result.absent);
    add_no_effect_notices(settings, config, result.notices);
    check(config, rules, errors);
    if (!errors.any())
        for (const std::string& notice : unread_optimizer_options(config)) result.notices.push_back(notice);
    result.refusals = not_implemented(config, rules);
    for (const std::string& line : refused_in(settings)) result.refusals.push_back(line);
    if (const std::string line = missing_data(config); !line.empty()) result.absent.push_back(line);
    if (!result.dry_run) {
        for (const std::string& line : result.refusals) errors.note(line);
        if (rules.needs_data)
            for (const std::string& line : result.absent) errors.note(line);
    }
    errors.require_none();
    for (std::string& line : result.refusals) line += " (a real run refuses this)";
    for (std::string& line : result.absent) line += " (a run needs it)";
    return result;
}

}  // namespace coeus
