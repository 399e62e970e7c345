// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/text_writer.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <list>
#include <utility>

namespace coeus {

std::string TextEnd::push(const std::string& piece) {
    held_ += piece;
    size_t end = std::string::npos;
    for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
    size_t certain = held_.size();
    if (end != std::string::npos) {
        found_ = true;
        certain = end;
    } else {
        for (const std::string& stop : stops_)
            for (size_t n = std::min(stop.size() - 1, held_.size()); n > 0; --n)
                if (held_.ends_with(std::string_view(stop).substr(0, n))) {
                    certain = std::min(certain, held_.size() - n);
                    break;
                }
    }
    std::string text = held_.substr(0, certain);
    held_.erase(0, found_ ? held_.size() : certain);
    return text;
}

std::string TextEnd::finish() {
    return std::exchange(held_, {});
}

struct TextWriter::Text {
    size_t number;
    int64_t slot;
    std::vector<int32_t> ids;
    int64_t cached = 0;  // number of its tokens that are in the slot
    Tokenizer::Stream stream;
    TextEnd end;
    Written written;
    std::string piece;  // new text, to be reported to on_piece
};

TextWriter::TextWriter(Generator& generator, const Tokenizer& tokenizer, const TextWriterOptions& options)
    : tokens_(generator, options.sampling, tokenizer.vocab_size()), tokenizer_(tokenizer), options_(options) {
    for (const std::string& stop : options.stops) {
        if (stop.empty()) throw ConfigError("--stop is empty: every text would end immediately");
        const std::vector<int32_t> ids = tokenizer.encode_prompt(stop);
        if (const std::string back = tokenizer.decode(ids); back != stop)
            throw ConfigError(
                "--stop \"{}\": the tokenizer cannot represent this text; it would become \"{}\"", stop,
                back);
        if (ids.size() == 1) stop_ids_.push_back(ids[0]);  // it may be a special token, which has no text
    }
    if (!options.ignore_eos && tokenizer.eos_id()) stop_ids_.push_back(*tokenizer.eos_id());
}

NextTokens::Place TextWriter::place_of(const Text& text) const {
    return {.slot = text.slot, .text = text.number, .index = text.written.ids.size()};
}

// Reads the most recent tokens of each text, at most so many.
void TextWriter::read(std::span<Text* const> texts, int64_t most) {
    std::vector<NextTokens::Reading> readings;
    for (Text* text : texts) {
        text->cached = std::min(int64_t(text->ids.size()), most);
        readings.push_back({place_of(*text), std::span(text->ids).last(size_t(text->cached))});
    }
    if (readings.empty()) return;
    const std::vector<int32_t> next = tokens_.read(readings);
    for (size_t i = 0; i < texts.size(); ++i) take(*texts[i], next[i]);
}

void TextWriter::append(std::span<Text* const> texts) {
    std::vector<NextTokens::Appended> appended;
    for (Text* text : texts) {
        ++text->cached;
        appended.push_back({place_of(*text), text->ids.back()});
    }
    if (appended.empty()) return;
    const std::vector<int32_t> next = tokens_.append(appended);
    for (size_t i = 0; i < texts.size(); ++i) take(*texts[i], next[i]);
}

// Adds a token to the text.
void TextWriter::take(Text& text, int32_t id) {
    Written& written = text.written;
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
        written.finish = tokenizer_.eos_id() == id ? "eos" : "stop";
    } else {
        text.ids.push_back(id);
        written.ids.push_back(id);
        text.piece = text.end.push(text.stream.push(id));
        if (text.end.found())
            written.finish = "stop";
        else if (int64_t(written.ids.size()) == options_.length)
            written.finish = "length";
    }
    if (written.finish && !text.end.found())
        text.piece += text.end.push(text.stream.finish()) + text.end.finish();
    written.text += text.piece;
}

void TextWriter::write(const std::vector<std::vector<int32_t>>& prompts,
                       const std::function<void(size_t, const std::string&)>& on_piece,
                       const std::function<void(size_t, const Written&)>& on_end) {
    std::vector<int64_t> free_slots;
    for (int64_t slot = tokens_.slots() - 1; slot >= 0; --slot) free_slots.push_back(slot);
    std::list<Text> open;
    const auto report = [&] {
        for (Text& text : open) {
            if (!text.piece.empty()) on_piece(text.number, text.piece);
            text.piece.clear();
            if (!text.written.finish) continue;
            on_end(text.number, text.written);
            free_slots.push_back(text.slot);
        }
        open.remove_if([](const Text& text) { return text.written.finish != nullptr; });
    };
    size_t next = 0;
    while (next < prompts.size() || !open.empty()) {
        while (next < prompts.size() && !free_slots.empty()) {
            std::vector<Text*> begun;
            for (; next < prompts.size() && !free_slots.empty(); ++next) {
                open.push_back({.number = next,
                                .slot = free_slots.back(),
                                .ids = prompts[next],
                                .stream = Tokenizer::Stream(tokenizer_),
                                .end = TextEnd(options_.stops),
                                .written = {},
                                .piece = {}});
                free_slots.pop_back();
                begun.push_back(&open.back());
            }
            read(begun, tokens_.context());
            report();
        }
        std::vector<Text*> with_room, full;
        for (Text& text : open) (text.cached < tokens_.context() ? with_room : full).push_back(&text);
        read(full, std::max<int64_t>(1, tokens_.context() / 2));
        append(with_room);
        report();
    }
}

}  // namespace coeus
