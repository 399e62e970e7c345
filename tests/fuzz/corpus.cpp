// SPDX-License-Identifier: Apache-2.0
// A corpus: text, JSON and compressed files, by name and by content, with bad lines refused or left out. The
// texts that it gives are UTF-8, and those of valid JSON are what the JSON library reads.
#include "coeus/data/corpus.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/file/json.hpp"
#include "target.hpp"

#include <optional>

namespace coeus::fuzz::corpus {

namespace {

// What the JSON library reads, which refuses values that a corpus does not look at.
std::optional<std::string> text_of(std::string_view line) {
    try {
        return JsonDocument::parse(line, "line").root().string("text");
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

void check_texts(const Passage& passage) {
    std::vector<std::string> texts;
    each_json_text(passage, [&](std::string_view text) {
        if (valid_utf8_prefix(text) != text.size()) throw LogicError("a text is not UTF-8");
        texts.emplace_back(text);
    });
    const std::string_view line = passage.text();
    if (line.find('\n') != line.npos || texts.size() != 1) return;
    if (const auto text = text_of(line); text && *text != texts[0])
        throw LogicError("the JSON library reads another text");
}

}  // namespace

void read_input(std::string_view input) {
    for (const auto& [name, bad_lines] :
         {std::pair("a.jsonl", BadLines::skip), {"a.json", BadLines::stop}, {"part-00000", BadLines::skip}}) {
        try {
            Corpus({write_scratch(name, input)}, bad_lines).read([](const std::vector<Passage>& passages) {
                for (const Passage& passage : passages) {
                    if (valid_utf8_prefix(passage.document) != passage.document.size())
                        throw LogicError("a document is not UTF-8");
                    if (passage.json_lines) check_texts(passage);
                }
            });
        } catch (const ConfigError&) {
        }
    }
}

std::vector<std::string> seeds() {
    using namespace std::string_literals;
    return {
        "{\"text\": \"a \\ud83d\\ude00\", \"score\": NaN}\n"
        "{\"id\": [1, {\"b\": \"}\"}], \"text\": \"\\u00e9\"}\n",
        "[{\"text\": \"a\"}, {\"text\": \"b\", \"c\": null}]", "{\n\"text\": \"a\\ud83d\"}",
        "{\"text\": \"a\"}\n\xEF\xBB\xBF{\"text\": \"b\"}\n{\"text\": 1}\n", "Once upon a time\r\n",
        // {"text": "a"} and {"text": "b"}, by gzip and by zstd
        "\x1f\x8b\x08\0\0\0\0\0\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\x4a\x54\xaa\xe5\xaa\x86"
        "\xf3\x92\x80\x3c\0\x3d\xbd\xe6\x10\x1c\0\0\0"s,
        "\x28\xb5\x2f\xfd\0\x68\xc5\0\0\x90\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x61\x22\x7d\x0a\x62"
        "\x22\x7d\x0a\x01\0\xb1\x4d\x25"s};
}

const Target target("corpus", read_input, seeds);

}  // namespace coeus::fuzz::corpus
