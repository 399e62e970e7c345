// SPDX-License-Identifier: Apache-2.0
// coeus info for a deck: mesh, model, batches and memory, as in a dry run. --model lists the parameters.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/model_counts.hpp"
#include "coeus/session/plan_findings.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

namespace coeus::info {

namespace {

// In a log, the level of a line says that it is a warning. Here words say it.
std::string marked(const Finding& finding) {
    using enum Finding::Severity;
    switch (finding.severity) {
        case warning: return "Warning: " + finding.text;
        case refusal: return "Refused: " + finding.text;
        case refusal_here: return "Refused on this host: " + finding.text;
        default: return finding.line();
    }
}

// Indents all lines but the first.
std::string indented(std::string text, size_t spaces) {
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at)
        text.insert(at + 1, spaces, ' ');
    return text;
}

// `remark`: at the end; "" if there is none.
void row(const std::string& name, const std::string& shape, int64_t elements, double flops,
         const std::string& remark = "") {
    print("  {:<36} {:<16} {:>18} {:>12.4g}{}{}\n", name, shape, with_commas(elements), flops,
          remark.empty() ? "" : "  ", remark);
}

// Which parameters model.frozen takes.
class FrozenNames {
public:
    explicit FrozenNames(const Parameters& parameters) {
        for (const Storage* storage : parameters.model())
            for (const Param& param : storage->params())
                if (param.is_frozen()) names_.insert(param.name);
    }

    // "frozen", or "" if it is not.
    std::string remark(const std::string& name) const { return names_.contains(name) ? "frozen" : ""; }
    // The same for "layers.N" + `part` with each N of a group: "frozen in 0-1" if some are.
    std::string remark(const std::vector<int64_t>& group, const std::string& part) const {
        std::vector<int64_t> frozen;
        std::ranges::copy_if(group, std::back_inserter(frozen), [&](int64_t layer) {
            return names_.contains(fmt::format("layers.{}{}", layer, part));
        });
        if (frozen.empty()) return "";
        return frozen.size() == group.size() ? "frozen" : "frozen in " + ranges_text(frozen);
    }

private:
    std::set<std::string> names_;
};

void print_findings(const Findings& found) {
    for (const Finding& finding : found) print("  {}\n", indented(marked(finding), 2));
}

// Prints one line per parameter, or one for a group of equal layers. FLOPs are those of forward and backward.
// Counts what the number of parameters counts: no biases that balance experts.
void list_parameters(const Decoder& decoder, int64_t seq_len) {
    const DecoderConfig& m = decoder.config();
    print("\n  {:<36} {:<16} {:>18} {:>12}\n", "parameter", "shape", "elements", "FLOPs/token");
    int64_t elements = 0;
    double flops = 0;
    const auto add = [&](const std::string& name, const std::string& shape, int64_t count, double work,
                         const std::string& remark = "") {
        row(name, shape, count, work, remark);
        elements += count;
        flops += work;
    };
    const std::vector<std::vector<int64_t>> groups = equal_layers(m);
    const FrozenNames frozen(decoder.parameters());
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params()) {
            if (param.is_exact) continue;
            const ElementCounts counts = count_elements(param, m);
            const std::string in_layers = "layers.";
            if (!param.name.starts_with(in_layers)) {
                add(param.name, param.shape.text(), counts.all, counts.product_flops(),
                    frozen.remark(param.name));
                continue;
            }
            const size_t dot = param.name.find('.', in_layers.size());
            const int64_t layer = std::stoll(param.name.substr(in_layers.size(), dot - in_layers.size()));
            for (const std::vector<int64_t>& group : groups) {
                if (group.front() != layer) continue;  // the first layer of a group represents all of it
                const int64_t copies = int64_t(group.size());
                add(in_layers + (copies == m.layers ? "*" : ranges_text(group)) + param.name.substr(dot),
                    fmt::format("{} x {}", param.shape.text(), copies), copies * counts.all,
                    double(copies) * counts.product_flops(), frozen.remark(group, param.name.substr(dot)));
            }
        }
    add(fmt::format("attention scores of {} tokens", seq_len), "", 0, m.score_flops_per_token(seq_len));
    row("total", "", elements, flops);
}

}  // namespace

int show_deck(const std::string& file, const Options& options) {
    std::vector<std::string> arguments = {file, "--dry_run"};
    if (!options.gpu.empty()) arguments.push_back("--gpu=" + options.gpu);
    if (!options.memory.empty()) arguments.push_back("--memory=" + options.memory);
    const CommandLine deck = parse_command_line(arguments);
    const Config& config = deck.config;
    const PlannedRun planned(deck, options.ranks > 0 ? options.ranks : fewest_ranks(config.parallelism));
    print("{}: deck, {}\n", file, printable(config.job.description));
    Findings found = plan_findings(planned), of_deck;
    found.add(memory_findings(planned));
    print_findings(found);
    if (planned.mesh.ranks() > 1) print("  Groups:\n    {}\n", indented(planned.mesh.groups_text(), 4));
    of_deck.add(Finding::Topic::deck, deck.notices, Finding::Severity::notice);
    of_deck.add(Finding::Topic::deck, deck.refusals, Finding::Severity::refusal);
    of_deck.add(Finding::Topic::deck, deck.absent, Finding::Severity::refusal_here);
    print_findings(of_deck);
    found.add(of_deck);
    if (options.model) {
        if (!planned.model->decoder())
            throw ConfigError("--model: lists the parameters of decoders, and {} is none",
                              planned.model->name());
        list_parameters(decoder_of(planned.engine.model()), config.training.seq_len);
    }
    return found.exit_code(false);
}

void show_newest_step(const std::vector<std::string>& arguments) {
    std::vector<std::string> planning = arguments;
    std::ranges::replace(planning, "--newest_step", "--dry_run");
    const Config config = parse_command_line(planning).config;
    const std::vector<StepFile> files =
        list_checkpoints((std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder).string());
    print("{}\n", files.empty() ? 0 : files.back().step);
}

}  // namespace coeus::info
