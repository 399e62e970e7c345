// SPDX-License-Identifier: Apache-2.0
// coeus info for a deck: mesh, model, batches and memory, as in a dry run. --model lists the parameters.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/chunk_choice.hpp"
#include "coeus/setup/describe_quantized.hpp"
#include "coeus/setup/describe_run.hpp"
#include "coeus/setup/quantize_checks.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/dry_run.hpp"
#include "coeus/train/resume.hpp"
#include "kinds.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus::apps {

namespace {

// Indents all lines but the first.
std::string indented(std::string text, size_t spaces) {
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at)
        text.insert(at + 1, spaces, ' ');
    return text;
}

void row(const std::string& name, const std::string& shape, int64_t elements, double flops) {
    print("  {:<36} {:<16} {:>18} {:>12.4g}\n", name, shape, with_commas(elements), flops);
}

// Prints one line per parameter, or one for a group of equal layers. FLOPs are those of forward and backward.
void list_parameters(const Decoder& decoder, int64_t seq_len) {
    const DecoderConfig& m = decoder.config();
    print("\n  {:<36} {:<16} {:>18} {:>12}\n", "parameter", "shape", "elements", "FLOPs/token");
    int64_t elements = 0;
    double flops = 0;
    const auto add = [&](const std::string& name, const std::string& shape, int64_t count, double work) {
        row(name, shape, count, work);
        elements += count;
        flops += work;
    };
    const std::vector<std::vector<int64_t>> groups = equal_layers(m);
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params()) {
            const std::string in_layers = "layers.";
            if (!param.name.starts_with(in_layers)) {
                const bool is_table = param.name == "tok_embeddings.weight",
                           is_head = param.name == "output.weight" || (is_table && m.tied);
                const int64_t products = is_head ? 1 + m.mtp_layers : is_table ? 0 : 1;
                add(param.name, param.shape.text(), param.shape.count(),
                    6.0 * double(products * param.shape.count()));
                continue;
            }
            const size_t dot = param.name.find('.', in_layers.size());
            const int64_t layer = std::stoll(param.name.substr(in_layers.size(), dot - in_layers.size()));
            for (const std::vector<int64_t>& group : groups) {
                if (group.front() != layer) continue;  // the first layer of a group represents all of it
                const int64_t copies = int64_t(group.size()), count = copies * param.shape.count();
                add(in_layers + (copies == m.layers ? "*" : ranges_text(group)) + param.name.substr(dot),
                    fmt::format("{} x {}", param.shape.text(), copies), count, 6.0 * double(count));
            }
        }
    add(fmt::format("attention scores of {} tokens", seq_len), "", 0, m.score_flops_per_token(seq_len));
    row("total", "", elements, flops);
}

}  // namespace

void show_deck(const std::string& file, const InfoOptions& options) {
    std::vector<std::string> arguments = {file, "--dry_run"};
    if (!options.gpu.empty()) arguments.push_back("--gpu=" + options.gpu);
    if (!options.memory.empty()) arguments.push_back("--memory=" + options.memory);
    const CommandLine deck = parse_command_line(arguments);
    const Config& config = deck.config;
    const MeshShape mesh =
        mesh_shape(config, options.ranks > 0 ? options.ranks : fewest_ranks(config.parallelism));
    const DecoderConfig model = model_from_deck(config);
    const int threads = share_of_cpu(int(config.training.threads), 0, 1).threads;
    const EngineOptions options_of_run = engine_options(config, model, mesh, 0, threads);
    const PlannedDevice device = planned_device(deck, options_of_run.backend);
    const std::optional<int64_t> of_checkpoint = chunks_of_checkpoint(config);
    const Engine engine(model,
                        with_largest_chunks(model, options_of_run, device.memory_bytes, of_checkpoint));
    print("{}: deck, {}\n", file, printable(config.job.description));
    require_8_bit_products(engine.options(), device.title, device.capability);
    print("  {}\n", device.text());
    for (const std::string& text : describe_run(config, mesh, engine, device.memory_bytes))
        print("  {}\n", indented(text, 2));
    if (const std::string notice = notice_on_chunks(config, engine.options(), of_checkpoint); !notice.empty())
        print("  {}\n", notice);
    if (!config.model.print_after_conversion)
        for (const std::string& text : describe_linear_layers(engine)) print("  {}\n", indented(text, 2));
    for (const std::string& text : idle_converters(engine)) print("  {}\n", text);
    for (const PlanLine& line : advice_on_memory(config, engine, device))
        print("  {}{}\n", line.verdict == PlanLine::Verdict::fine ? "" : "Notice: ", line.text);
    if (mesh.ranks() > 1) print("  Groups:\n    {}\n", indented(mesh.groups_text(), 4));
    for (const auto& lines : {deck.notices, deck.refusals, deck.absent})
        for (const std::string& line : lines) print("  Notice: {}\n", line);
    if (options.model) list_parameters(engine.decoder(), config.training.seq_len);
}

void show_newest_step(const std::vector<std::string>& arguments) {
    std::vector<std::string> planning = arguments;
    std::ranges::replace(planning, "--newest_step", "--dry_run");
    const Config config = parse_command_line(planning).config;
    const std::vector<StepFile> files =
        list_checkpoints((std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder).string());
    print("{}\n", files.empty() ? 0 : files.back().step);
}

}  // namespace coeus::apps
