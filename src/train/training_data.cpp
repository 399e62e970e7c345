// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/training_data.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/data/tokenize.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace coeus {

namespace {

namespace fs = std::filesystem;

constexpr int64_t little_text = 64 << 10;  // bytes that a dry run tokenizes

// A folder for the time of a check.
class PassingFolder {
public:
    PassingFolder() {
        std::string name = (fs::temp_directory_path() / "coeus-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw SystemError("cannot make a folder like " + name);
        path_ = name;
    }
    ~PassingFolder() {
        std::error_code failed;
        fs::remove_all(path_, failed);
    }
    PassingFolder(const PassingFolder&) = delete;
    PassingFolder& operator=(const PassingFolder&) = delete;
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

// Paths that become one token file: a token file, or text of one or several paths.
using Source = std::vector<fs::path>;

// `separate`: each path is one source. Else all text is one source, as if it were in one folder.
std::vector<Source> sources_of(const Words& paths, const char* option, bool separate) {
    std::vector<Source> sources;
    Source* text = nullptr;
    sources.reserve(paths.size());
    for (const std::string& path : paths) {
        if (!leads_to_tokens(path) && !leads_somewhere(path))
            throw ConfigError("{} = \"{}\": this file or folder does not exist", option, path);
        if (separate || leads_to_tokens(path)) {
            sources.push_back({path});
        } else {
            if (text == nullptr) text = &sources.emplace_back();
            text->emplace_back(path);
        }
    }
    return sources;
}

// ConfigError if the tokenizer has more tokens than the model's vocabulary.
Tokenizer tokenizer_for(const Config& config, int64_t vocab) {
    Tokenizer tokenizer(config.model.tokenizer());
    if (tokenizer.vocab_size() > vocab)
        throw ConfigError(
            "model.vocab_size = {}: the tokenizer in {} has {} tokens; set model.vocab_size = {} or more",
            vocab, tokenizer.folder(), tokenizer.vocab_size(), tokenizer.vocab_size());
    return tokenizer;
}

// "web" for data/web.jsonl and for data/web/, "web+code" for two paths; the whole paths if another source has
// this name.
Words names_of(const std::vector<Source>& sources) {
    Words names;
    for (const Source& source : sources) {
        Words parts;
        for (const fs::path& path : source)
            parts.push_back((path.has_filename() ? path : path.parent_path()).stem().string());
        names.push_back(join(parts, "+"));
    }
    const Words short_names = names;
    for (size_t i = 0; i < names.size(); ++i)
        if (std::ranges::count(short_names, short_names[i]) > 1) {
            Words parts;
            for (const fs::path& path : sources[i]) parts.push_back(path.string());
            names[i] = join(parts, "+");
        }
    const Words paths = names;
    for (size_t i = 0; i < names.size(); ++i)  // of a path that is given twice
        if (const auto before = std::count(paths.begin(), paths.begin() + int64_t(i), paths[i]); before > 0)
            names[i] += fmt::format(" ({})", before + 1);
    return names;
}

// Whether each path of the section is a source of its own.
bool has_separate_paths(const Config::Training& training) {
    return !training.dataset_weights.empty();
}
bool has_separate_paths(const Config::Validation& validation) {
    return !validation.dataset_weights.empty() || validation.per_dataset;
}

// How text is read: the same options of training and validation.
struct TextOptions {
    BadLines bad_lines;
    std::string field;

    explicit TextOptions(const auto& section)
        : bad_lines(bad_lines_of(section.bad_lines)), field(section.text_field) {}
    Corpus corpus(const Source& source) const { return Corpus(source, bad_lines, {}, field); }
};

fs::path token_file(const Source& source, const TextOptions& text, const Config& config, int64_t vocab,
                    const fs::path& cache_folder, int threads) {
    if (leads_to_tokens(source[0])) return source[0];
    return tokenized(text.corpus(source), source[0].stem().string(), tokenizer_for(config, vocab),
                     cache_folder, threads);
}

// Returns a line for the log; "" for the program's own token files.
std::string divide(TokenFile& file, const Config& config, int threads) {
    return divide_documents(file, {config.training.bos_id, config.training.eos_id}, config.model.tokenizer(),
                            threads);
}

// What rank 0 finds when it compares the data with the tokenizer in model.hf_assets_path.
struct TokenizerFacts {
    Words others;   // files that another tokenizer made
    Words notices;  // other ones

    void add(const std::string& notice) {
        if (std::find(notices.begin(), notices.end(), notice) == notices.end()) notices.push_back(notice);
    }
};

// The vocabulary has more than twice the tokenizer's tokens, and exceeds them by more than rounding up
// explains.
bool is_much_larger(int64_t vocab, int64_t tokens) {
    constexpr int64_t left_for_rounding = 4096;
    return vocab > 2 * tokens && vocab - tokens > left_for_rounding;
}

void compare_tokenizer(const TokenFile& file, const std::string& place, int64_t vocab,
                       TokenizerFacts& facts) {
    if (!Tokenizer::is_at(place)) return;
    try {
        const Tokenizer tokenizer(place);
        const std::string& hash = file.tokenizer_hash();
        if (hash != tokenizer.hash() && hash == tokenizer.earlier_hash())
            facts.add(earlier_tables_warning(file.path()));
        if (!file.tokenizer_hash().empty() && !tokenizer.has_hash(file.tokenizer_hash()))
            facts.others.push_back(file.path());
        else if (is_much_larger(vocab, tokenizer.vocab_size()))
            facts.add(fmt::format(
                "the model has a vocabulary of {}, but the tokenizer in {} has {} tokens: the unused "
                "rows of the embedding and the output layer cost memory and time and learn nothing; set "
                "model.vocab_size = {} or a little more",
                with_commas(vocab), tokenizer.folder(), with_commas(tokenizer.vocab_size()),
                tokenizer.vocab_size()));
    } catch (const ConfigError& error) {
        facts.add(fmt::format("{}; `coeus generate` will need --tokenizer", error.what()));
    }
}

// Rank 0 finds or makes the files and checks them while the other ranks wait; then these map the files.
TrainingData::Files open(const Words& paths, const char* option, bool separate, const TextOptions& text,
                         const Config& config, int64_t vocab, const fs::path& cache_folder,
                         const Communicator& world, int threads, TokenizerFacts& facts, Words& names) {
    TrainingData::Files files;
    Words found;  // path, layout and name of each
    on_first_rank(world, [&] {
        const std::vector<Source> sources = sources_of(paths, option, separate);
        const Words short_names = names_of(sources);
        for (size_t i = 0; i < sources.size(); ++i) {
            const fs::path path = token_file(sources[i], text, config, vocab, cache_folder, threads);
            TokenFile& file = *files.emplace_back(std::make_unique<TokenFile>(path));
            file.check_vocabulary(vocab, threads);
            if (const std::string line = divide(file, config, threads); !line.empty()) log::info("{}", line);
            compare_tokenizer(file, config.model.tokenizer(), vocab, facts);
            found.insert(found.end(), {path.string(), file.layout().text(), short_names[i]});
        }
    });
    found = broadcast_texts(world, found);
    names.clear();
    for (size_t i = 0; i < found.size(); i += 3) names.push_back(found[i + 2]);
    together(world, [&] {
        if (world.rank() == 0) return;
        for (size_t i = 0; i < found.size(); i += 3)
            files.push_back(std::make_unique<TokenFile>(found[i], TokenFile::Layout::of_text(found[i + 1])));
    });
    return files;
}

// Source 0 has the order of a run without a blend; the other sources are permuted with other seeds.
SampleStream blend_of(const TrainingData::Files& files, const std::vector<double>& weights,
                      Sampler::Options options) {
    std::vector<Sampler> samplers;
    for (const auto& file : files) {
        samplers.emplace_back(*file, options);
        options.seed += 0x9E3779B97F4A7C15u;
    }
    if (samplers.size() == 1) return samplers[0];
    return {std::move(samplers), weights};
}

// Error: another tokenizer made the data than that of the weights from which the run starts.
std::string other_tokenizer_error(const Words& files, const std::string& weights,
                                  const std::string& tokenizer) {
    return fmt::format(
        "training.dataset_path: another tokenizer than the one in {} made {}, but the run starts from the "
        "weights of {}, for which the token ids have another meaning. Make the file again with `coeus "
        "tokenize INPUT --tokenizer {} --output FILE.h5`, or set model.tokenizer_path to the tokenizer that "
        "made it",
        tokenizer, join(files, ", "), weights, tokenizer);
}

Words notices_of(const TokenizerFacts& facts) {
    Words all;
    for (const std::string& path : facts.others)
        all.push_back(
            fmt::format("another tokenizer than the one in model.hf_assets_path made {}: "
                        "`coeus generate` will need --tokenizer with the tokenizer that made this file",
                        path));
    all.insert(all.end(), facts.notices.begin(), facts.notices.end());
    return all;
}

std::string contents(const TokenFile& file) {
    return fmt::format("{}, {} tokens in {} {}", file.path(), with_commas(file.num_tokens()),
                       with_commas(file.num_documents()),
                       file.num_documents() == 1 ? "document" : "documents");
}

// All windows have the same number of tokens, so the parts of the samples are those of the tokens.
std::optional<double> mean_bytes_per_token(const TrainingData::Files& files, const SampleStream& samples) {
    double mean = 0;
    for (size_t k = 0; k < files.size(); ++k) {
        if (files[k]->document_bytes() <= 0 || files[k]->num_tokens() <= 0) return std::nullopt;
        mean += samples.part(k) * double(files[k]->document_bytes()) / double(files[k]->num_tokens());
    }
    return mean;
}

}  // namespace

TrainingData::TrainingData(const Config& config, int64_t vocab, const fs::path& cache_folder,
                           const Communicator& world, int threads) {
    const Config::Training& training = config.training;
    const Config::Validation& validation = config.validation;
    TokenizerFacts facts;
    Words names;  // of the sources that were opened last
    const auto open_data = [&](const auto& section, const char* option) {
        return open(section.dataset_path, option, has_separate_paths(section), TextOptions(section), config,
                    vocab, cache_folder, world, threads, facts, names);
    };
    files_ = open_data(training, "training.dataset_path");
    const bool held_out = validation.enable && validation.dataset_path.empty();
    const uint64_t seed = uint64_t(config.debug.seed);
    weights_ = training.dataset_weights;
    order_ = {.seq_len = training.seq_len,
              .seed = seed,
              .subset = held_out ? Subset::training : Subset::all,
              .vocab_size = vocab};
    set_shuffled(training.shuffle.value_or(true));
    if (validation.enable && !held_out) validation_files_ = open_data(validation, "validation.dataset_path");
    of_other_tokenizers_ = facts.others;
    tokenizer_notices_ = facts.notices;
    if (!validation.enable) return;
    if (validation.per_dataset) validation_names_ = names;
    validation_.emplace(blend_of(held_out ? files_ : validation_files_,
                                 held_out ? training.dataset_weights : validation.dataset_weights,
                                 {.seq_len = validation.seq_len,
                                  .seed = seed,
                                  .shuffle = false,
                                  .subset = held_out ? Subset::held_out : Subset::all,
                                  .vocab_size = vocab}));
}

TrainingData::TrainingData(const Config& config, const fs::path& cache_folder) {
    const Config::Training& training = config.training;
    const TextOptions text(training);
    for (const Source& source :
         sources_of(training.dataset_path, "training.dataset_path", !training.dataset_weights.empty())) {
        if (leads_to_tokens(source[0])) {
            files_.push_back(std::make_unique<TokenFile>(source[0]));
            // its documents are not counted, which would read all of it
            if (const auto found = find_separator(*files_.back(), {training.bos_id, training.eos_id},
                                                  config.model.tokenizer()))
                files_.back()->divide_at(found->separator);
            continue;
        }
        const Corpus corpus = text.corpus(source);
        const auto file = tokenized_before(corpus, source[0].stem().string(),
                                           Tokenizer(config.model.tokenizer()), cache_folder);
        if (!file)
            throw ConfigError(
                "training.dataset_path: {} was not tokenized yet in {}; `coeus train` does that, or `coeus "
                "tokenize`, whose file can be named instead",
                corpus.source(), cache_folder.string());
        files_.push_back(std::make_unique<TokenFile>(*file));
    }
    const bool held_out = config.validation.enable && config.validation.dataset_path.empty();
    weights_ = training.dataset_weights;
    order_ = {.seq_len = training.seq_len,
              .seed = uint64_t(config.debug.seed),
              .subset = held_out ? Subset::training : Subset::all};
    set_shuffled(training.shuffle.value_or(true));
}

namespace {

// Tokenizes a little text, which may be too short for one window.
void look_at_text(const Corpus& corpus, const Tokenizer& tokenizer,
                  const std::vector<Sampler::Options>& streams) {
    if (corpus.bytes() > little_text) return;
    const PassingFolder folder;
    const std::string path = folder.path() / "tokens.h5";
    try {
        tokenize(corpus, tokenizer, path);
        const TokenFile file(path);
        for (const Sampler::Options& stream : streams) (void)Sampler(file, stream);
    } catch (const ConfigError& error) {
        std::string text = error.what();
        if (text.starts_with(path)) text.replace(0, path.size(), corpus.source());
        throw ConfigError("{}", text);
    }
}

}  // namespace

DataCheck check_data(const Config& config, int64_t vocab, const std::string& weights) {
    DataCheck found;
    TokenizerFacts facts;
    const std::string tokenizer = config.model.tokenizer();
    const int threads = int(config.training.threads);
    const auto attempt = [&](const auto& work) {
        try {
            work();
        } catch (const std::runtime_error& error) {
            (is_of_this_host(error) ? found.failed : found.errors).emplace_back(error.what());
        }
    };
    const auto look = [&](const Source& source, const TextOptions& text,
                          const std::vector<Sampler::Options>& streams) {
        if (!leads_to_tokens(source[0])) {
            const Corpus corpus = text.corpus(source);
            if (exists_patiently(tokenizer))
                look_at_text(corpus, tokenizer_for(config, vocab), streams);
            else if (found.absent.empty())
                found.absent.push_back(fmt::format(
                    "the tokenizer \"{}\" (model.hf_assets_path): this file or folder does not exist "
                    "here; a run needs it to tokenize text",
                    tokenizer));
            return;
        }
        TokenFile file(source[0]);
        file.check_vocabulary(vocab, threads);
        divide(file, config, threads);
        compare_tokenizer(file, tokenizer, vocab, facts);
        // throws if there is no window
        for (const Sampler::Options& stream : streams) (void)Sampler(file, stream);
    };
    const auto look_at_all = [&](const auto& section, const char* option,
                                 const std::vector<Sampler::Options>& streams) {
        Words paths = section.dataset_path;
        std::erase_if(paths, [&](const std::string& path) {
            return !exists_patiently(path) && !leads_to_tokens(path);
        });
        for (const Source& source : sources_of(paths, option, has_separate_paths(section)))
            attempt([&] { look(source, TextOptions(section), streams); });
    };
    const Config::Training& training = config.training;
    const Config::Validation& validation = config.validation;
    const bool held_out = validation.enable && validation.dataset_path.empty();
    std::vector<Sampler::Options> streams = {{.seq_len = training.seq_len,
                                              .subset = held_out ? Subset::training : Subset::all,
                                              .vocab_size = vocab}};
    Sampler::Options validating = {.seq_len = validation.seq_len,
                                   .subset = held_out ? Subset::held_out : Subset::all,
                                   .vocab_size = vocab};
    if (held_out) streams.push_back(validating);
    look_at_all(training, "training.dataset_path", streams);
    if (validation.enable && !held_out) look_at_all(validation, "validation.dataset_path", {validating});
    if (!weights.empty() && !facts.others.empty())
        found.errors.push_back(other_tokenizer_error(facts.others, weights, tokenizer));
    else
        found.notices = notices_of(facts);
    return found;
}

std::vector<std::string> TrainingData::notices() const {
    return notices_of({of_other_tokenizers_, tokenizer_notices_});
}

void TrainingData::require_tokenizer_of(const std::string& path, const std::string& tokenizer) const {
    if (!of_other_tokenizers_.empty())
        throw ConfigError("{}", other_tokenizer_error(of_other_tokenizers_, path, tokenizer));
}

void TrainingData::set_shuffled(bool shuffled) {
    order_.shuffle = shuffled;
    training_.emplace(blend_of(files_, weights_, order_));
}

std::string TrainingData::passes(int64_t samples) const {
    std::vector<std::string> all;
    bool repeats = false;
    for (size_t k = 0; k < files_.size(); ++k) {
        const double passes = training_->passes(k, samples);
        repeats |= passes > 1;
        all.push_back(
            fmt::format("{:.2f} epochs of {}", passes, files_.size() == 1 ? "this data" : files_[k]->path()));
    }
    return repeats ? join(all, ", ") : "";
}

std::string TrainingData::sources() const {
    std::vector<std::string> all;
    for (const auto& file : files_) all.push_back(contents(*file));
    return join(all, "; ");
}

std::optional<double> TrainingData::bytes_per_token() const {
    return mean_bytes_per_token(files_, *training_);
}

std::optional<double> TrainingData::validation_bytes_per_token() const {
    if (!validation_) return std::nullopt;
    return mean_bytes_per_token(validation_files_.empty() ? files_ : validation_files_, *validation_);
}

std::string TrainingData::summary() const {
    std::string text;
    for (size_t k = 0; k < files_.size(); ++k) {
        const std::string share =
            files_.size() == 1 ? "" : fmt::format("{:.4g} % of ", 100 * training_->part(k));
        text += fmt::format("{}{}{}, {} windows of {} + 1 tokens", k == 0 ? "Data: " : "; ", share,
                            contents(*files_[k]), with_commas(training_->source(k).num_windows()),
                            training_->seq_len());
    }
    if (validation_) {
        std::string names;
        for (const auto& file : validation_files_) names += (names.empty() ? " of " : ", ") + file->path();
        text += fmt::format("; validation: {} windows{}", with_commas(validation_->first_epoch()),
                            names.empty() ? " held out" : names);
    }
    return text;
}

}  // namespace coeus
