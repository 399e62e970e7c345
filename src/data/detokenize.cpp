// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/detokenize.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/types.hpp"
#include "coeus/data/describe_tokens.hpp"
#include "coeus/file/json.hpp"
#include "parallel.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace coeus {

namespace {

constexpr int64_t documents_at_a_time = 64;

struct Lines {
    std::string text;
    int64_t special = 0;
};

bool begins_with(std::span<const int32_t> ids, std::span<const int32_t> with) {
    return !with.empty() && ids.size() >= with.size() && std::ranges::equal(ids.first(with.size()), with);
}

bool ends_with(std::span<const int32_t> ids, std::span<const int32_t> with) {
    return !with.empty() && ids.size() >= with.size() && std::ranges::equal(ids.last(with.size()), with);
}

}  // namespace

std::span<const int32_t> without_ends(std::span<const int32_t> document, const Tokenizer& tokenizer) {
    const auto& [before, after] = tokenizer.document_ends();
    const auto is = [](std::optional<int32_t> id, int32_t token) { return id && *id == token; };
    if (begins_with(document, before))
        document = document.subspan(before.size());
    else if (!document.empty() && is(tokenizer.bos_id(), document.front()))
        document = document.subspan(1);
    if (ends_with(document, after))
        document = document.first(document.size() - after.size());
    else if (!document.empty() && is(tokenizer.eos_id(), document.back()))
        document = document.first(document.size() - 1);
    return document;
}

Detokenized detokenize(const TokenFile& file, const Tokenizer& tokenizer, const DetokenizeOptions& options,
                       FunctionRef<void(std::string_view)> write) {
    require_made_by(file, tokenizer);
    const int64_t all = file.num_documents(), last = options.last < 0 ? all - 1 : options.last;
    if (options.first > last || last >= all)
        throw ConfigError("{}: has documents 0 to {}, but {} to {} are asked for", file.path(),
                          with_commas(all - 1), options.first, last);
    const std::vector<int64_t> bounds = file.document_bounds(options.first, last);
    std::vector<bool> is_special(size_t(tokenizer.vocab_size()));
    for (const int32_t id : tokenizer.special_ids()) is_special[size_t(id)] = true;

    const auto line_of = [&](int64_t document, std::vector<int32_t>& ids, Lines& lines) {
        const int64_t begin = bounds[size_t(document)], end = bounds[size_t(document) + 1];
        ids.resize(size_t(end - begin));
        file.read(begin, ids);
        const auto inner = without_ends(ids, tokenizer);
        try {
            const std::string text = tokenizer.decode(inner, !options.special);
            lines.text += Json::object().set("text", text).text() + "\n";
        } catch (const ConfigError& error) {
            throw ConfigError("{}: document {}: {}", file.path(), options.first + document, error.what());
        }
        if (!options.special)
            lines.special += std::ranges::count_if(inner, [&](int32_t id) { return is_special[size_t(id)]; });
    };
    const int64_t documents = last - options.first + 1;
    Detokenized done{.documents = documents};
    in_order(
        div_ceil(documents, documents_at_a_time), options.threads > 0 ? options.threads : hardware_threads(),
        [] { return std::vector<int32_t>(); },
        [&](std::vector<int32_t>& ids, int64_t i) {
            Lines lines;
            const int64_t end = std::min(documents, (i + 1) * documents_at_a_time);
            for (int64_t d = i * documents_at_a_time; d < end; ++d) line_of(d, ids, lines);
            return lines;
        },
        [&](int64_t, const Lines& lines) {
            done.special_left_out += lines.special;
            write(lines.text);
        });
    return done;
}

}  // namespace coeus
