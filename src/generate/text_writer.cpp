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
    Tokenizer::Stream stream;
    TextEnd end;
    Written written;
    std::string piece;  // new text, to be reported to on_piece
};

TextWriter::TextWriter(Generator& generator, const Tokenizer& tokenizer, const TextWriterOptions& options)
    : generator_(generator), tokenizer_(tokenizer), options_(options), row_(size_t(tokenizer.vocab_size())) {
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

// Samples a token from logits [1, V] and adds it to the text.
void TextWriter::take(Text& text, Tensor logits) {
    Written& written = text.written;
    // the model's vocabulary may be padded for speed: ids that the tokenizer does not have are never sampled
    for (size_t i = 0; i < row_.size(); ++i) row_[i] = float(element(logits, int64_t(i)));
    const int32_t id = draw_token(row_, options_.sampling, uint64_t(written.ids.size()), text.number);
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

Tensor TextWriter::go_on_from_half(const Text& text) {
    const auto half = size_t(std::max<int64_t>(1, generator_.context() / 2));
    return generator_.read(text.slot, std::span(text.ids).last(half));
}

void TextWriter::write(const std::vector<std::vector<int32_t>>& prompts,
                       const std::function<void(size_t, const std::string&)>& on_piece,
                       const std::function<void(size_t, const Written&)>& on_end) {
    std::vector<int64_t> free_slots;
    for (int64_t slot = generator_.sequences() - 1; slot >= 0; --slot) free_slots.push_back(slot);
    std::list<Text> open;
    const auto report = [&](Text& text) {
        if (!text.piece.empty()) on_piece(text.number, text.piece);
        text.piece.clear();
        if (!text.written.finish) return;
        on_end(text.number, text.written);
        free_slots.push_back(text.slot);
    };
    size_t next = 0;
    while (next < prompts.size() || !open.empty()) {
        while (next < prompts.size() && !free_slots.empty()) {
            open.push_back({.number = next,
                            .slot = free_slots.back(),
                            .ids = prompts[next],
                            .stream = Tokenizer::Stream(tokenizer_),
                            .end = TextEnd(options_.stops),
                            .written = {},
                            .piece = {}});
            free_slots.pop_back();
            ++next;
            take(open.back(), generator_.read(open.back().slot, open.back().ids));
            report(open.back());
            if (open.back().written.finish) open.pop_back();
        }
        std::vector<Generator::Next> tokens;
        std::vector<Text*> with_room;
        for (Text& text : open) {
            if (generator_.length(text.slot) < generator_.context()) {
                tokens.push_back({text.slot, text.ids.back()});
                with_room.push_back(&text);
            } else {
                take(text, go_on_from_half(text));
            }
        }
        if (!tokens.empty()) {
            const Tensor logits = generator_.append(tokens);
            for (size_t i = 0; i < with_room.size(); ++i)
                take(*with_room[i], logits.slice_rows(int64_t(i), 1));
        }
        for (Text& text : open) report(text);
        open.remove_if([](const Text& text) { return text.written.finish != nullptr; });
    }
}

}  // namespace coeus
