// SPDX-License-Identifier: Apache-2.0
// coeus generate --checkpoint FILE-or-FOLDER --prompt TEXT: streams what a trained model writes.
#include "generate.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/train/flags.hpp"
#include "coeus/train/generator.hpp"
#include "coeus/train/pretrained.hpp"

#include <algorithm>
#include <cstdio>

namespace coeus::apps {

namespace {

Flags generate_flags() {
    Flags flags("generate", "--checkpoint FILE-or-FOLDER [--prompt TEXT]", "",
                "Writes text with a trained model, token by token.");
    flags.add("checkpoint", "PATH", "", "a checkpoint, a run's folder, or a Hugging Face folder")
        .add("prompt", "TEXT", "", "the text to go on from; may be empty")
        .add("tokenizer", "FOLDER", "", "default: the one the checkpoint's deck or the folder names")
        .add("length", "N", "128", "tokens to write at most")
        .add("temperature", "T", "0.8", "0: always the most likely token")
        .add("top_k", "K", "0", "draw from the K most likely tokens; 0: from all")
        .add("top_p", "P", "1", "draw from the smallest set with this probability")
        .add("seed", "N", "0", "the same seed gives the same text")
        .add("context", "N", "0", "tokens the model looks back at; 0: as many as it was trained with")
        .add("threads", "N", "0", "0: all cores");
    return flags;
}

}  // namespace

int generate(const Arguments& arguments) {
    Flags flags = generate_flags();
    flags.parse(arguments);
    const Sampling sampling = {.temperature = flags.number("temperature", 0, 100),
                               .top_k = flags.integer("top_k", 0, INT32_MAX),
                               .top_p = flags.number("top_p", 1e-6, 1),
                               .seed = uint64_t(flags.integer("seed", 0, INT64_MAX))};
    const int64_t length = flags.integer("length", 1, INT32_MAX);

    const Pretrained source(flags.required("checkpoint"));
    const Tokenizer tokenizer(flags.given("tokenizer") ? flags.text("tokenizer") : source.tokenizer_folder());
    if (tokenizer.vocab_size() > source.model().vocab)
        throw ConfigError("--tokenizer {}: has {} tokens, but the model knows {}", tokenizer.folder(),
                          tokenizer.vocab_size(), source.model().vocab);
    const int64_t chosen = flags.integer("context", 0, source.model().max_seq_len);
    const int64_t context = chosen > 0 ? chosen : source.trained_seq_len();
    const CpuShare cpu = share_of_cpu(int(flags.integer("threads", 0, 4096)), 0, 1);
    apply(cpu);
    Generator generator(source.model(), Dtype::f32, context, cpu.threads);
    source.load(generator.decoder().parameters());
    generator.weights_changed();

    std::vector<int32_t> ids;
    if (tokenizer.bos_id()) ids.push_back(*tokenizer.bos_id());
    const std::vector<int32_t> prompt = tokenizer.encode(flags.text("prompt"));
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    if (ids.empty()) throw ConfigError("--prompt is empty, and the tokenizer has no BOS to start from");

    const auto print = [](const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    };
    print(flags.text("prompt"));
    Tokenizer::Stream stream(tokenizer);
    for (int64_t i = 0; i < length; ++i) {
        // ids beyond the tokenizer's (a vocabulary padded for speed) are never drawn
        const std::span<const float> logits =
            generator.next_logits(ids).first(size_t(tokenizer.vocab_size()));
        const int32_t id = draw_token(logits, sampling, uint64_t(i));
        if (tokenizer.eos_id() == id) break;
        print(stream.push(id));
        ids.push_back(id);
    }
    print(stream.finish() + "\n");
    return 0;
}

void generate_help() {
    generate_flags().print_help();
}

}  // namespace coeus::apps
