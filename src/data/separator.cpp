// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/separator.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/tokenizer.hpp"

namespace coeus {

namespace {

std::optional<FoundSeparator> of_tokenizer(const TokenFile& file, const std::string& place) {
    if (!Tokenizer::is_at(place)) return std::nullopt;
    const Tokenizer tokenizer(place);
    const std::optional<int32_t> bos = tokenizer.bos_id(), eos = tokenizer.eos_id();
    const auto found = [&](int32_t id, bool begins) {
        return FoundSeparator{
            {id, begins},
            fmt::format("{} of the tokenizer in {}", bos == id ? "BOS" : "EOS", tokenizer.folder())};
    };
    if (bos && (file.layout().format == "llm.c" || bos != eos)) return found(*bos, true);
    if (eos) return found(*eos, file.layout().format == "llm.c" || file.token(0) == *eos);
    return std::nullopt;
}

}  // namespace

std::optional<FoundSeparator> find_separator(const TokenFile& file, const GivenSeparator& given,
                                             const std::string& tokenizer) {
    if (file.lists_documents()) return std::nullopt;
    if (given.bos_id) return FoundSeparator{{int32_t(*given.bos_id), true}, "bos_id"};
    if (given.eos_id) return FoundSeparator{{int32_t(*given.eos_id), false}, "eos_id"};
    return file.layout().format == "HDF5" ? std::nullopt : of_tokenizer(file, tokenizer);
}

std::string divide_documents(TokenFile& file, const GivenSeparator& given, const std::string& tokenizer,
                             int threads) {
    const bool is_ours = file.layout().format == "HDF5";
    std::string division;
    if (const auto found = find_separator(file, given, tokenizer)) {
        file.divide_at(found->separator);
        file.count_documents(threads);
        division = fmt::format(", which {} with {} ({})", found->separator.begins ? "begin" : "end",
                               found->separator.id, found->origin);
    } else if (is_ours) {
        return "";
    } else if (!file.lists_documents()) {
        division = ", since neither bos_id nor eos_id is given";
    }
    return fmt::format("{}: a token file of {} with {} in {}{}{}", file.path(), file.layout().format,
                       counted(file.num_tokens(), "token"), counted(file.num_documents(), "document"),
                       division, is_ours ? "" : "; it does not say which tokenizer made it");
}

}  // namespace coeus
