// SPDX-License-Identifier: Apache-2.0
// coeus generate --checkpoint FILE-or-FOLDER --prompt TEXT | --prompts FILE: continues texts with a trained
// model. They are printed to stdout in the order of their prompts. The first text that is not complete yet is
// printed while it grows.
#include "generate.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/file/json.hpp"
#include "coeus/generate/prompts.hpp"
#include "coeus/generate/text_writer.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "coeus/session/rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

namespace coeus::apps {

namespace {

Flags generate_flags() {
    Flags flags(
        "generate", "--checkpoint FILE-or-FOLDER [--prompt TEXT | --prompts FILE]", "",
        "Writes text with a trained model, token by token. With several prompts, each text is printed under "
        "a line \"== N\". A text longer than --context continues from its most recent half.");
    flags.add("checkpoint", "PATH", "", "a checkpoint, a run's folder, or a Hugging Face folder")
        .add("prompt", "TEXT", "", "text to continue; may be empty")
        .add("prompts", "FILE", "",
             "file with one prompt per line; in a .jsonl, .ndjson or .json file, the field \"prompt\" (or "
             "\"text\") of each object")
        .add("output", "FILE.jsonl", "",
             "also write one JSON object per text: prompt, text, number of tokens and why it ended")
        .add("tokenizer", "PATH", "",
             "tokenizer (folder or file); default: that of the checkpoint's deck, or of the folder")
        .add("length", "N", "128", "maximum number of tokens of each text")
        .add_list("stop", "TEXT", "end a text before this string; may be repeated")
        .add_switch("ignore_eos", "continue after EOS instead of stopping")
        .add("temperature", "T", "0.8", "sampling temperature; 0: always the most likely token")
        .add("top_k", "K", "0", "sample from the K most likely tokens; 0: from all")
        .add("top_p", "P", "1", "sample from the smallest set of tokens with at least this probability")
        .add("seed", "N", "0", "random seed; the same seed gives the same texts")
        .add("context", "N", "0", "context length in tokens; 0: the sequence length of training")
        .add("batch", "N", "8",
             "number of texts generated at the same time; on a CPU, it does not change the texts")
        .add("device", "auto|cuda|cpu", "auto", "auto: a GPU if there is one")
        .add("threads", "N", "0", "number of threads; 0: all cores")
        .add_switch("stats", "print tokens per second and memory to stderr")
        .add_force();
    return flags;
}

TextWriterOptions writer_options(const Flags& flags) {
    return {.sampling = {.temperature = flags.number("temperature", 0, 100),
                         .top_k = flags.integer("top_k", 0, INT32_MAX),
                         .top_p = flags.number("top_p", 1e-6, 1),
                         .seed = uint64_t(flags.integer("seed", 0, INT64_MAX))},
            .length = flags.integer("length", 1, INT32_MAX),
            .stops = flags.texts("stop"),
            .ignore_eos = flags.given("ignore_eos")};
}

std::vector<Prompt> prompts_of(const Flags& flags) {
    if (!flags.given("prompts")) return {{flags.text("prompt"), 0}};
    if (flags.given("prompt"))
        throw ConfigError(
            "coeus generate: --prompt and --prompts cannot be used together; put the text into the file");
    return read_prompts(flags.text("prompts"));
}

// Ids of the prompts, each after BOS. ConfigError for a prompt that does not fit into the context.
std::vector<std::vector<int32_t>> encode(const std::vector<Prompt>& prompts, const Tokenizer& tokenizer,
                                         int64_t context, int64_t most, const std::string& file) {
    std::vector<std::vector<int32_t>> all;
    for (const Prompt& prompt : prompts) {
        const std::string name =
            prompt.line ? fmt::format("{}, line {}: the prompt", file, prompt.line) : "--prompt";
        if (const size_t valid = valid_utf8_prefix(prompt.text); valid < prompt.text.size())
            throw ConfigError("{} is not UTF-8 at byte {}; convert it with iconv -f WINDOWS-1252 -t UTF-8",
                              name, valid + 1);
        std::vector<int32_t> ids = tokenizer.document_ends().before;
        const std::vector<int32_t> text = tokenizer.encode_prompt(prompt.text);
        ids.insert(ids.end(), text.begin(), text.end());
        if (ids.empty()) throw ConfigError("{} is empty, and the tokenizer has no BOS to start from", name);
        if (int64_t(ids.size()) > context)
            throw ConfigError(
                "{} has {} tokens, but the context has only {}: shorten it, or set --context={}{}", name,
                ids.size(), context, std::min(int64_t(ids.size()), most),
                int64_t(ids.size()) > most ? ", the maximum of this model" : "");
        all.push_back(std::move(ids));
    }
    return all;
}

// Prints and records texts in the order of their prompts.
class Output {
public:
    Output(const std::vector<Prompt>& prompts, const std::vector<std::vector<int32_t>>& ids,
           const std::string& file)
        : prompts_(prompts), ids_(ids), waiting_(prompts.size()), ends_(prompts.size()), file_name_(file) {
        if (file.empty()) return;
        file_.open(file, std::ios::binary);
        if (!file_) throw ConfigError("--output {}: cannot write: {}", file, errno_text(errno));
    }
    void begin() { heading(); }
    void piece(size_t number, const std::string& text) {
        if (number == next_)
            print(text);
        else
            waiting_[number] += text;
    }
    void end(size_t number, const Written& written) {
        ends_[number] = written;
        while (next_ < ends_.size() && ends_[next_]) {
            print("\n");
            record(next_);
            ends_[next_] = Written{};  // no longer needed
            if (++next_ == ends_.size()) break;
            heading();
            print(std::exchange(waiting_[next_], {}));
        }
    }

private:
    void heading() {
        if (prompts_.size() > 1) print(fmt::format("== {}\n", next_ + 1));
        print(prompts_[next_].text);
    }
    void record(size_t number) {
        if (!file_.is_open()) return;
        const Written& written = *ends_[number];
        file_ << Json::object()
                     .set("prompt", prompts_[number].text)
                     .set("text", written.text)
                     .set("finish", written.finish)
                     .set("prompt_tokens", ids_[number].size())
                     .set("tokens", written.ids.size())
                     .text()
              << '\n';
        if (!file_.flush())
            throw SystemError(fmt::format("cannot write {}: {}", file_name_, errno_text(errno)));
    }
    // a model's text must not control a terminal
    static void print(const std::string& written) {
        static const bool on_terminal = log::is_terminal(STDOUT_FILENO);
        const std::string text = on_terminal ? printable_lines(written) : written;
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }
    const std::vector<Prompt>& prompts_;
    const std::vector<std::vector<int32_t>>& ids_;
    std::vector<std::string> waiting_;
    std::vector<std::optional<Written>> ends_;
    size_t next_ = 0;
    std::string file_name_;
    std::ofstream file_;
};

}  // namespace

int generate(const Arguments& arguments) {
    Flags flags = generate_flags();
    flags.parse(arguments);
    const TextWriterOptions options = writer_options(flags);
    if (flags.given("output")) flags.require_replaceable(flags.text("output"));
    flags.require_different_files("prompts", "output");
    const Pretrained source(flags.required("checkpoint"));
    if (!flags.given("tokenizer") && !exists_patiently(source.tokenizer_folder()))
        throw ConfigError(
            "{} was trained with the tokenizer \"{}\" (model.hf_assets_path of its deck), which was not "
            "found from the current folder; give it with --tokenizer PATH",
            source.path(), source.tokenizer_folder());
    const Tokenizer tokenizer(flags.given("tokenizer") ? flags.text("tokenizer") : source.tokenizer_folder());
    if (tokenizer.vocab_size() > source.model().vocab)
        throw ConfigError("--tokenizer {}: has {} tokens, but the model's vocabulary only {}",
                          tokenizer.folder(), tokenizer.vocab_size(), source.model().vocab);
    const int64_t most = source.model().max_seq_len, chosen = flags.integer("context", 0, most);
    const int64_t context = chosen > 0 ? chosen : source.trained_seq_len();
    const std::vector<Prompt> prompts = prompts_of(flags);
    const auto ids = encode(prompts, tokenizer, context, most, flags.text("prompts"));
    Output output(prompts, ids, flags.text("output"));

    const LoneRank rank(flags.choice("device", {"auto", "cuda", "cpu"}),
                        int(flags.integer("threads", 0, most_threads)));
    const Device& device = rank.device();
    const int64_t batch = flags.integer("batch", 1, Generator::most_sequences(device));
    Generator generator(source.model(), Dtype::f32, context, std::min(batch, int64_t(prompts.size())),
                        rank.threads(), device);
    TextWriter writer(generator, tokenizer, options);
    source.load(generator.decoder());
    generator.weights_changed();

    const Timer timer;
    size_t tokens = 0;
    output.begin();
    writer.write(
        ids, [&](size_t number, const std::string& text) { output.piece(number, text); },
        [&](size_t number, const Written& written) {
            tokens += written.ids.size();
            output.end(number, written);
        });
    if (flags.given("stats"))
        fmt::print(stderr, "{} tokens in {:.3f} s, {:.1f} tokens/s, on {}\n{}\n", tokens, timer.seconds(),
                   double(tokens) / timer.seconds(), device.name(),
                   generator.plan().text(device.memory_bytes()));
    return 0;
}

Flags generate_help() {
    return generate_flags();
}

}  // namespace coeus::apps
