// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/tokenizer_of.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"

namespace coeus {

Tokenizer tokenizer_of(const Pretrained& source, const std::string& chosen) {
    if (chosen.empty() && !exists_patiently(source.tokenizer_folder()))
        throw ConfigError(
            "{} was trained with the tokenizer \"{}\" (model.hf_assets_path of its deck), which was not "
            "found from the current folder; give it with --tokenizer PATH",
            source.path(), source.tokenizer_folder());
    Tokenizer tokenizer(chosen.empty() ? source.tokenizer_folder() : chosen);
    if (tokenizer.vocab_size() > source.model().vocab)
        throw ConfigError("--tokenizer {}: has {} tokens, but the model's vocabulary only {}",
                          tokenizer.folder(), tokenizer.vocab_size(), source.model().vocab);
    return tokenizer;
}

}  // namespace coeus
