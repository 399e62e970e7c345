// SPDX-License-Identifier: Apache-2.0
#include "../parallel.hpp"
#include "byte_symbols.hpp"
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/data/tokenizer.hpp"
#include "pre_tokenizer.hpp"
#include "word_map.hpp"
#include "write_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <queue>
#include <unordered_set>

namespace coeus {

namespace {

using Counts = WordMap<int64_t>;

// Counts words, for one thread.
class Counter {
public:
    explicit Counter(const PreTokenizer& pre_tokenizer) : scan_(pre_tokenizer.scan()) {}

    JsonFlaws add(const Passage& passage, Counts& counts) {
        if (passage.json_lines)
            return each_json_text(passage, [&](std::string_view text) { add_lines(text, counts); });
        add_lines(passage.text(), counts);
        return {};
    }

private:
    void add_lines(std::string_view text, Counts& counts) {
        while (!text.empty()) {
            const std::string_view line =
                text.substr(0, text.find('\n') + 1);  // npos + 1 = 0: an empty line, replaced below
            const std::string_view whole = line.empty() ? text : line;
            scan_->pieces(whole, 0, [&](size_t begin, size_t end) {
                ++counts.at(whole, begin, end);
                return true;
            });
            text.remove_prefix(whole.size());
        }
    }

    std::unique_ptr<PieceScan> scan_;
};

using Pair = uint64_t;  // left id << 32 | right id; ties are broken by this order
constexpr Pair pair_of(int32_t left, int32_t right) {
    return (uint64_t(uint32_t(left)) << 32) | uint32_t(right);
}

// The state of training: every distinct word as ids, and for each pair of ids its count and the words that
// contain it.
class MergeTrainer {
public:
    explicit MergeTrainer(const WordCounts& words) {
        std::array<int32_t, 256> id_of_byte;
        for (int rank = 0; rank < 256; ++rank) {
            id_of_byte[byte_of_rank(rank)] = rank;
            symbols_.push_back(symbol_of_byte(byte_of_rank(rank)));
            ids_.emplace(symbols_.back(), rank);
        }
        words_.reserve(words.size());
        for (const auto& [word, count] : words) {
            std::vector<int32_t> form;
            for (char byte : word) form.push_back(id_of_byte[uint8_t(byte)]);
            words_.push_back({std::move(form), count});
            count_pairs(words_.size() - 1, +1);
        }
        for (const auto& [pair, use] : pairs_) heap_.push({use.count, pair});
    }

    std::vector<std::pair<std::string, std::string>> run(int64_t vocab_size) {
        std::vector<std::pair<std::string, std::string>> merges;
        ProgressBar progress("learning merges", vocab_size - int64_t(symbols_.size()), false);
        while (int64_t(symbols_.size()) < vocab_size && !heap_.empty()) {
            const Ranked best = heap_.top();
            heap_.pop();
            const auto use = pairs_.find(best.pair);
            if (use == pairs_.end() || use->second.count <= 0) continue;
            if (use->second.count != best.count) {  // the count has decreased since it was queued
                heap_.push({use->second.count, best.pair});
                continue;
            }
            const auto left = int32_t(best.pair >> 32), right = int32_t(best.pair & 0xffffffffu);
            merges.emplace_back(symbols_[size_t(left)], symbols_[size_t(right)]);
            merge(best.pair, new_token(left, right));
            progress.update(int64_t(merges.size()));
        }
        return merges;
    }

private:
    struct Word {
        std::vector<int32_t> form;
        int64_t count;
    };
    struct Use {
        int64_t count = 0;
        std::vector<uint32_t> words;  // may contain a word twice, or one that no longer has the pair
    };
    struct Ranked {
        int64_t count;
        Pair pair;
        bool operator<(const Ranked& other) const {
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };

    // Two pairs may give the same token, which then keeps its first id.
    int32_t new_token(int32_t left, int32_t right) {
        const std::string spelled = symbols_[size_t(left)] + symbols_[size_t(right)];
        const auto [place, is_new] = ids_.emplace(spelled, int32_t(symbols_.size()));
        if (is_new) symbols_.push_back(spelled);
        return place->second;
    }

    void count_pairs(size_t index, int64_t sign) {
        const Word& word = words_[index];
        for (size_t i = 1; i < word.form.size(); ++i) {
            Use& use = pairs_[pair_of(word.form[i - 1], word.form[i])];
            use.count += sign * word.count;
            if (sign > 0 && (use.words.empty() || use.words.back() != index))
                use.words.push_back(uint32_t(index));
        }
    }

    void merge(Pair pair, int32_t token) {
        const auto left = int32_t(pair >> 32), right = int32_t(pair & 0xffffffffu);
        const std::vector<uint32_t> where = std::move(pairs_[pair].words);
        std::vector<Pair> grown;
        for (const uint32_t index : where) {
            std::vector<int32_t>& form = words_[index].form;
            const auto place = std::adjacent_find(
                form.begin(), form.end(), [&](int32_t a, int32_t b) { return a == left && b == right; });
            if (place == form.end()) continue;
            change_counts(index, -1, token, grown);
            auto out = place;
            for (auto in = place; in != form.end(); ++out) {
                const bool here = *in == left && in + 1 != form.end() && in[1] == right;
                *out = here ? token : *in;
                in += here ? 2 : 1;
            }
            form.erase(out, form.end());
            change_counts(index, +1, token, grown);
        }
        pairs_.erase(pair);
        std::sort(grown.begin(), grown.end());
        grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
        for (const Pair p : grown)
            if (const auto use = pairs_.find(p); use != pairs_.end()) heap_.push({use->second.count, p});
    }

    // Subtracts the pairs of a word from the counts, or adds them. Adds pairs with the new token to
    // `grown`, since their counts may have increased.
    void change_counts(uint32_t index, int64_t sign, int32_t token, std::vector<Pair>& grown) {
        const Word& word = words_[index];
        for (size_t i = 1; i < word.form.size(); ++i) {
            const int32_t a = word.form[i - 1], b = word.form[i];
            Use& use = pairs_[pair_of(a, b)];
            use.count += sign * word.count;
            if (sign < 0 || (a != token && b != token)) continue;
            if (use.words.empty() || use.words.back() != index) use.words.push_back(index);
            grown.push_back(pair_of(a, b));
        }
    }

    std::vector<Word> words_;
    std::vector<std::string> symbols_;  // by id
    std::unordered_map<std::string, int32_t> ids_;
    std::unordered_map<Pair, Use> pairs_;
    std::priority_queue<Ranked> heap_;
};

}  // namespace

WordCounts count_words(const Corpus& corpus, int threads) {
    if (threads <= 0) threads = hardware_threads();
    const PreTokenizer pre_tokenizer({{.expression = llama3_pattern}}, "coeus tokenizer");
    ProgressBar progress("counting words", corpus.bytes(), true);
    int64_t done = 0;
    std::vector<Counts> counts(static_cast<size_t>(threads));
    JsonFlaws flaws;
    CorpusReport report = corpus.read([&](const std::vector<Passage>& passages) {
        std::atomic<size_t> number = 0;
        struct Worker {
            Counter counter;
            Counts& counts;
        };
        in_order(
            int64_t(passages.size()), threads,
            [&] {
                return Worker{Counter(pre_tokenizer), counts[number++]};
            },
            [&](Worker& worker, int64_t i) { return worker.counter.add(passages[size_t(i)], worker.counts); },
            [&](int64_t i, const JsonFlaws& found) {
                flaws.add(found);
                progress.update(done += int64_t(passages[size_t(i)].text().size()));
            });
    });
    report.json.add(flaws);
    for (const std::string& warning : report.warnings()) log::warn("{}", warning);
    Counts all;
    for (const Counts& part : counts)
        part.each([&](std::string_view word, int64_t count) { all.at(word, 0, word.size()) += count; });
    WordCounts words;
    words.reserve(all.size());
    all.each([&](std::string_view word, int64_t count) { words.emplace_back(word, count); });
    return words;
}

std::vector<std::pair<std::string, std::string>> train_bpe(const WordCounts& words, int64_t vocab_size) {
    return MergeTrainer(words).run(vocab_size);
}

namespace {

constexpr const char *bos_token = "<|begin_of_text|>", *eos_token = "<|end_of_text|>";

void check_special(const std::vector<std::string>& special) {
    std::unordered_set<std::string> known = {bos_token, eos_token};
    for (const std::string& token : special) {
        if (token.size() < 2 || valid_utf8_prefix(token) != token.size())
            throw ConfigError(
                "--special \"{}\": must be a text of two or more bytes in UTF-8, such as "
                "\"<|im_start|>\"",
                printable(token));
        if (!known.insert(token).second)
            throw ConfigError("--special \"{}\": {}", token,
                              token == bos_token || token == eos_token
                                  ? "is a token of every tokenizer that is made here"
                                  : "is given twice");
    }
}

}  // namespace

TokenizerTraining train_tokenizer(const Corpus& corpus, int64_t vocab_size,
                                  const std::filesystem::path& output, int threads,
                                  const std::vector<std::string>& special) {
    const auto least = int64_t(258 + special.size());
    if (vocab_size < least || vocab_size > most_token_ids)
        throw ConfigError("--vocab_size must be from {} (256 bytes, BOS{} EOS{}) to {}, but is {}", least,
                          special.empty() ? " and" : ",",
                          special.empty() ? "" : " and " + counted(int64_t(special.size()), "special token"),
                          with_commas(most_token_ids), vocab_size);
    check_special(special);
    // create the folder now, so that an error is found before the work, not after it
    std::error_code failed;
    std::filesystem::create_directories(output, failed);
    if (failed)
        throw ConfigError("--output {}: this folder cannot be created: {}", output.string(),
                          failed.message());

    const WordCounts words = count_words(corpus, threads);
    TrainedTokenizer file;
    file.patterns = {llama3_pattern};
    for (int rank = 0; rank < 256; ++rank) file.vocab.emplace_back(symbol_of_byte(byte_of_rank(rank)), rank);
    file.merges = train_bpe(words, vocab_size - 2 - int64_t(special.size()));
    std::unordered_set<std::string> known;  // two merges may give the same token
    for (const auto& [left, right] : file.merges)
        if (known.insert(left + right).second)
            file.vocab.emplace_back(left + right, int32_t(file.vocab.size()));
    for (const std::string& token : special) {
        if (known.contains(symbols_of_bytes(token)))
            throw ConfigError(
                "--special \"{}\": is a word of this text, which became a token; choose a text that is not "
                "one "
                "word, such as \"<|{}|>\"",
                token, token);
    }
    auto next = int32_t(file.vocab.size());
    file.bos = bos_token;
    file.eos = eos_token;
    file.added = {{next++, bos_token}, {next++, eos_token}};
    for (const std::string& token : special) file.added.push_back({next++, token});
    write_tokenizer(file, output);

    int64_t total = 0;
    for (const auto& [word, count] : words) total += count;
    return {next, total, int64_t(words.size())};
}

}  // namespace coeus
