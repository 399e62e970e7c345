// SPDX-License-Identifier: Apache-2.0
// coeus info TOKENS --document N, coeus info DECK --step N: the text that a run reads.
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/ignored_label.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/describe_tokens.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/train/run_samples.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace coeus::info {

namespace {

constexpr int64_t tokens_around = 32;  // of a position, to either side

TokenStyle style_of(const Part& part) {
    return {.divides = part.divides, .colors = isatty(STDOUT_FILENO) != 0};
}

// Each line of a text that was escaped already, indented.
void print_indented(const std::string& text) {
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        std::fputs("  ", stdout);
        std::fwrite(text.data() + begin, 1, end - begin, stdout);
        std::fputs("\n", stdout);
        begin = end + 1;
    }
}

// "document 12", "documents 8,211 to 8,213"; "" if their numbers are not known.
std::string documents_of(const TokenFile& file, int64_t first, int64_t last) {
    if (!file.lists_documents()) return "";
    const int64_t from = file.document_of(first), to = file.document_of(last);
    return from == to ? fmt::format(", document {}", with_commas(from))
                      : fmt::format(", documents {} to {}", with_commas(from), with_commas(to));
}

// Shows the samples of a run.
class Shown {
public:
    Shown(const Config& config, const std::string& place, RunSamples& run, const Part& part)
        : config_(&config), run_(&run), part_(&part), tokenizer_(place) {
        for (const auto& file : run.data().files()) require_made_by(*file, tokenizer_);
    }

    void step(int64_t number) const {
        const auto [first, count] = run_->step(number);
        const int64_t of_rank = count / run_->data_ranks();
        if (part_->rank >= run_->data_ranks())
            throw ConfigError(
                "--rank {}: the run has data ranks 0 to {}; --ranks N takes another number of ranks",
                part_->rank, run_->data_ranks() - 1);
        print("step {}: samples {} to {}, {} for each of {}\n", number, first, first + count - 1,
              counted(of_rank, "sequence"), counted(run_->data_ranks(), "data rank"));
        if (number > config_->training.steps)
            print("  beyond the run, which has {} (training.steps)\n",
                  counted(config_->training.steps, "step"));
        const int64_t begin = part_->rank < 0 ? first : first + part_->rank * of_rank;
        const int64_t end = part_->rank < 0 ? first + count : begin + of_rank;
        for (int64_t i = begin; i < end; ++i) sample(i);
    }

    void sample(int64_t i) const {
        SampleStream& stream = run_->stream();
        const auto [source, window] = stream.window_of(i);
        const TokenFile& file = *run_->data().files()[source];
        const auto length = size_t(stream.seq_len());
        ShownTokens tokens{.first = window * int64_t(length + 1), .ids = std::vector<int32_t>(length + 1)};
        std::vector<int32_t> labels(length), starts(length);
        const int64_t counts = stream.sample(i, std::span(tokens.ids).first(length), labels, starts);
        tokens.ids[length] = file.token(tokens.first + int64_t(length));
        tokens.masked.resize(length + 1);
        for (size_t t = 0; t < length; ++t) tokens.masked[t + 1] = labels[t] == ignored_label;
        const int64_t step = run_->step_of(i), last = tokens.first + int64_t(length);
        const auto [first, count] = run_->step(step);
        print("sample {} (step {}, data rank {}): {}, window {}, tokens {} to {}{}\n", i, step,
              std::clamp<int64_t>((i - first) / (count / run_->data_ranks()), 0, run_->data_ranks() - 1),
              file.path(), with_commas(window), with_commas(tokens.first), with_commas(last),
              documents_of(file, tokens.first, last));
        if (step > config_->training.steps && part_->step < 0)
            print("  beyond the run, which has {} (training.steps)\n",
                  counted(config_->training.steps, "step"));
        print_indented(text_of(tokens, file, tokenizer_, style_of(*part_)));
        print("  {} of {} count\n", with_commas(counts), counted(int64_t(length), "label"));
    }

private:
    const Config* config_;
    RunSamples* run_;
    const Part* part_;
    Tokenizer tokenizer_;
};

}  // namespace

void show_part_of_token_file(const std::string& path, const Part& part) {
    if (part.tokenizer.empty())
        throw ConfigError(
            "coeus info: --document and --position need --tokenizer PLACE, the tokenizer that made {}", path);
    const Tokenizer tokenizer(part.tokenizer);
    TokenFile file(path);
    require_made_by(file, tokenizer);
    divide_documents(file, part.separator, part.tokenizer);
    const bool whole = part.document >= 0;
    const int64_t number = whole ? part.document : part.position;
    const int64_t all = whole ? file.num_documents() : file.num_tokens();
    if (number >= all)
        throw ConfigError("--{} {}: {} has {} 0 to {}", whole ? "document" : "position", number, file.path(),
                          whole ? "documents" : "positions", with_commas(all - 1));
    const int64_t begin = whole ? file.document_begin(number) : std::max<int64_t>(0, number - tokens_around);
    const int64_t end =
        whole ? file.document_begin(number + 1) : std::min(file.num_tokens(), number + tokens_around + 1);
    if (begin == end) {
        print("{}: document {} is empty\n", file.path(), with_commas(number));
        return;
    }
    ShownTokens tokens{.first = begin, .ids = std::vector<int32_t>(size_t(end - begin))};
    file.read(begin, tokens.ids);
    int64_t counts = 0;
    for (int64_t t = begin; t < end; ++t) {
        counts += file.is_label(t);
        tokens.masked.push_back(!file.is_label(t));
    }
    if (whole)
        print("{}: document {}, tokens {} to {}\n", file.path(), with_commas(number), with_commas(begin),
              with_commas(end - 1));
    else
        print("{}: tokens {} to {}{}; position {} is in document {} and has the id {}\n", file.path(),
              with_commas(begin), with_commas(end - 1), documents_of(file, begin, end - 1),
              with_commas(number), with_commas(file.document_of(number)), file.token(number));
    print_indented(text_of(tokens, file, tokenizer, style_of(part)));
    if (file.has_loss_mask())
        print("  {} of {} are labels\n", with_commas(counts), counted(end - begin, "token"));
}

void show_samples(const std::vector<std::string>& arguments, const Part& part) {
    std::vector<std::string> planning = arguments;
    if (const std::filesystem::path path = arguments[0]; is_folder_patiently(path)) {
        planning[0] = (path / "deck.toml").string();
        if (!exists_patiently(planning[0]))
            throw ConfigError("{}: is not the folder of a run: it has no deck.toml", path.string());
    }
    planning.push_back("--dry_run");
    const CommandLine deck = parse_command_line(planning);
    Config config = deck.config;
    if (!deck.absent.empty()) throw ConfigError("{}", deck.absent[0]);
    if (!part.tokenizer.empty()) config.model.tokenizer_path = part.tokenizer;
    if (part.separator.bos_id || part.separator.eos_id) {  // the one takes the place of the other too
        config.training.bos_id = part.separator.bos_id;
        config.training.eos_id = part.separator.eos_id;
    }
    RunSamples run(config, part.ranks);
    const Shown shown(config, config.model.tokenizer(), run, part);
    if (part.step >= 0) return shown.step(part.step);
    for (int64_t i = part.first_sample; i <= part.last_sample; ++i) shown.sample(i);
}

}  // namespace coeus::info
