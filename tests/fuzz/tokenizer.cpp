// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and, if it is valid, a text that its tokenizer encodes and decodes.
#include "coeus/data/tokenizer.hpp"

#include "coeus/data/bpe_training.hpp"
#include "target.hpp"

namespace coeus::fuzz::tokenizer {

void read_input(std::string_view input) {
    const Tokenizer tokenizer(write_scratch("tokenizer.json", input));
    const auto ids = tokenizer.encode(
        "Hello, world! 1234567 it's\n\n  \xc3\xa9t\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97\xff<|end_of_text|>");
    tokenizer.decode(ids);
    tokenizer.encode_prompt("<|begin_of_text|>Hello");
    tokenizer.special_ids();
}

std::vector<std::string> seeds() {
    const std::string text = write_scratch("text.txt", "Hello, world! Hello again, 1234 times, and hello.\n");
    train_tokenizer(Corpus({text}), 270, scratch() / "seed", 1);
    const std::string trained = read_scratch("seed/tokenizer.json");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = trained;
        if (const size_t at = changed.find(from); at != std::string::npos)
            changed.replace(at, from.size(), to);
        return changed;
    };
    const std::string pieces =
        R"({"version": "1.0", "added_tokens": [{"id": 5, "content": "<|end_of_text|>"}],
"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Prepend", "prepend": "\u2581"},
{"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
{"type": "Split", "pattern": {"Regex": "\\p{N}|\\b"}, "behavior": "MergedWithNext", "invert": true},
{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}]},
"decoder": {"type": "Sequence", "decoders": [
{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
{"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
"vocab": {"<unk>": 0, "\u2581": 1, "l": 2, "ll": 3, "<0x48>": 4}, "merges": [["l", "l"]]}})";
    return {trained,
            with("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"),
            with("\"ignore_merges\": false", "\"ignore_merges\": true"),
            with("\"behavior\": \"Isolated\"", "\"behavior\": \"Removed\""),
            pieces,
            "{}"};
}

const Target target("tokenizer", read_input, seeds);

}  // namespace coeus::fuzz::tokenizer
