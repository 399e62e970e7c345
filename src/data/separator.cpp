// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/separator.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/tokenizer.hpp"

namespace coeus {

namespace {

// A separator, and where it comes from.
struct Found {
    Separator separator;
    std::string origin;
};

std::optional<Found> of_tokenizer(const TokenFile& file, const std::string& place) {
    if (!Tokenizer::is_at(place)) return std::nullopt;
    const Tokenizer tokenizer(place);
    const std::optional<int32_t> bos = tokenizer.bos_id(), eos = tokenizer.eos_id();
    const auto found = [&](int32_t id, bool begins) {
        return Found{{id, begins},
                     fmt::format("{} of the tokenizer in {}", bos == id ? "BOS" : "EOS", tokenizer.folder())};
    };
    if (bos && (file.layout().format == "llm.c" || bos != eos)) return found(*bos, true);
    if (eos) return found(*eos, file.layout().format == "llm.c" || file.token(0) == *eos);
    return std::nullopt;
}

}  // namespace

std::string divide_documents(TokenFile& file, const GivenSeparator& given, const std::string& tokenizer,
                             int threads) {
    const bool is_ours = file.layout().format == "HDF5";
    std::string division;
    if (!file.lists_documents()) {
        std::optional<Found> found;
        if (given.bos_id || given.eos_id)
            found = Found{{int32_t(given.bos_id ? *given.bos_id : *given.eos_id), given.bos_id.has_value()},
                          given.bos_id ? "bos_id" : "eos_id"};
        else if (!is_ours)
            found = of_tokenizer(file, tokenizer);
        if (found) {
            file.divide_at(found->separator, threads);
            division = fmt::format(", which {} with {} ({})", found->separator.begins ? "begin" : "end",
                                   found->separator.id, found->origin);
        } else {
            division = ", since neither bos_id nor eos_id is given";
        }
    }
    if (is_ours) return "";
    return fmt::format("{}: a token file of {} with {} in {}{}; it does not say which tokenizer made it",
                       file.path(), file.layout().format, counted(file.num_tokens(), "token"),
                       counted(file.num_documents(), "document"), division);
}

}  // namespace coeus
