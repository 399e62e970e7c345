// SPDX-License-Identifier: Apache-2.0
// The documents of a corpus, and what it logs, for tests.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/data/corpus.hpp"
#include "support/support.hpp"

namespace coeus::test {

// All documents in order; a passage inside a document continues it.
inline std::vector<std::string> documents_of(const Corpus& corpus, int64_t* replaced = nullptr) {
    std::vector<std::string> all;
    const CorpusReport report = corpus.read([&](const std::vector<Passage>& passages) {
        for (const Passage& passage : passages) {
            if (passage.json_lines) {
                each_json_text(passage, [&](std::string_view text) { all.emplace_back(text); });
            } else {
                if (passage.begins_document()) all.emplace_back();
                all.back() += passage.text();
            }
        }
    });
    if (replaced) *replaced = report.replaced;
    return all;
}

// The message of the error; "none" without one.
inline std::string problem(const std::vector<std::filesystem::path>& inputs) {
    try {
        documents_of(Corpus(inputs));
        return "none";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

// The lines that are logged while an object of it lives.
class Logged {
public:
    Logged() { log::init({.file = folder_ / "log", .quiet = true}); }
    ~Logged() { log::init({}); }
    Logged(const Logged&) = delete;
    Logged& operator=(const Logged&) = delete;
    std::string text() const {
        log::flush();
        return read_file(folder_ / "log");
    }

private:
    TemporaryFolder folder_;
};

}  // namespace coeus::test
