// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/data.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/tokenize.hpp"

namespace coeus {

namespace {

namespace fs = std::filesystem;

std::string tokenizer_folder(const Config& config) {
    return config.model.tokenizer_path.empty() ? config.model.hf_assets_path : config.model.tokenizer_path;
}

// True also for a damaged token file, which is no text just because it has lost its beginning.
bool means_token_file(const fs::path& path) {
    return fs::is_regular_file(path) && (is_token_file(path) || path.extension() == ".h5");
}

// The token file that a deck's path means; text is tokenized.
fs::path token_file(const Words& paths, const char* option, const Config& config, int64_t vocab,
                    const fs::path& cache_folder, int threads) {
    std::vector<fs::path> inputs;
    for (const std::string& path : paths) {
        if (!fs::exists(path))
            throw ConfigError("{} = \"{}\": there is no such file or folder", option, path);
        if (means_token_file(path)) {
            if (paths.size() > 1)
                throw ConfigError("{}: a token file cannot be joined with others yet; give one file", option);
            return path;
        }
        inputs.emplace_back(path);
    }
    const Tokenizer tokenizer(tokenizer_folder(config));
    if (tokenizer.vocab_size() > vocab)
        throw ConfigError(
            "model.vocab_size = {}: the tokenizer in {} has {} tokens; set model.vocab_size = {} or more",
            vocab, tokenizer.folder(), tokenizer.vocab_size(), tokenizer.vocab_size());
    return tokenized(inputs, tokenizer, cache_folder, threads);
}

// A run would go well with another tokenizer's ids, but what it writes could not be read.
void warn_of_other_tokenizer(const TokenFile& file, const std::string& folder) {
    if (file.tokenizer_hash().empty() || !Tokenizer::is_at(folder)) return;
    if (const Tokenizer tokenizer(folder); tokenizer.hash() != file.tokenizer_hash())
        log::warn(
            "{} was made with another tokenizer than the one in {}: `coeus generate` will need --tokenizer",
            file.path(), tokenizer.folder());
}

// Rank 0 finds or makes the file and looks at its ids while the others wait; then all open it.
std::unique_ptr<TokenFile> open(const Words& paths, const char* option, const Config& config, int64_t vocab,
                                const fs::path& cache_folder, const Communicator& world, int threads) {
    std::string path;
    on_first_rank(world, [&] {
        path = token_file(paths, option, config, vocab, cache_folder, threads).string();
        TokenFile file(path);
        file.check_vocabulary(vocab, threads);
        warn_of_other_tokenizer(file, tokenizer_folder(config));
    });
    path = broadcast_text(world, path);
    std::unique_ptr<TokenFile> file;
    together(world, [&] { file = std::make_unique<TokenFile>(path); });
    return file;
}

}  // namespace

TrainingData::TrainingData(const Config& config, int64_t vocab, const fs::path& cache_folder,
                           const Communicator& world, int threads) {
    const Config::Validation& validation = config.validation;
    const auto open_data = [&](const Words& paths, const char* option) {
        return open(paths, option, config, vocab, cache_folder, world, threads);
    };
    file_ = open_data(config.training.dataset_path, "training.dataset_path");
    const bool held_out = validation.enable && validation.dataset_path.empty();
    const uint64_t seed = uint64_t(config.debug.seed);
    training_.emplace(*file_, Sampler::Options{.seq_len = config.training.seq_len,
                                               .seed = seed,
                                               .shuffle = config.training.shuffle,
                                               .subset = held_out ? Subset::training : Subset::all});
    if (!validation.enable) return;
    if (!held_out) validation_file_ = open_data(validation.dataset_path, "validation.dataset_path");
    validation_.emplace(held_out ? *file_ : *validation_file_,
                        Sampler::Options{.seq_len = validation.seq_len,
                                         .seed = seed,
                                         .shuffle = false,
                                         .subset = held_out ? Subset::held_out : Subset::all});
}

std::string TrainingData::summary() const {
    std::string text = fmt::format("Data: {}, {} tokens in {} {}, {} windows of {} + 1 tokens", file_->path(),
                                   with_commas(file_->num_tokens()), with_commas(file_->num_documents()),
                                   file_->num_documents() == 1 ? "document" : "documents",
                                   with_commas(training_->num_windows()), training_->seq_len());
    if (validation_)
        text += fmt::format("; validation: {} windows{}", with_commas(validation_->num_windows()),
                            validation_file_ ? " of " + validation_file_->path() : " held out");
    return text;
}

}  // namespace coeus
