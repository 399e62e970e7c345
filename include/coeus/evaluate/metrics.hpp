// SPDX-License-Identifier: Apache-2.0
// Metrics of tasks, with the names and formulas of lm-evaluation-harness.
#pragma once

#include "coeus/evaluate/scoring.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

struct Metric {
    std::string name;
    double value = 0;                  ///< not a number: it has no sense for this task, or is too large
    std::optional<double> error = {};  ///< of a mean: its standard deviation
};

/// `scores`: of all requests of the task's lines, in order.
///
/// multiple_choice: acc (the right choice has the largest score), acc_norm (score / code points of the
///   choice), acc_bytes (/ bytes), acc_tokens (/ ids), the first of equals; bits_per_byte of the right choice
/// schema: acc
/// continuation: acc (each id is the most likely one), perplexity = exp(-mean score)
/// document: loss (a token's), perplexity = exp(loss), word_perplexity, byte_perplexity, bits_per_byte.
/// Without
///   text, as of special tokens, those of words and bytes are not numbers; nor are those of words if each
///   document is one word, as in languages without spaces.
std::vector<Metric> metrics_of(const Task& task, std::span<const Score> scores);

/// Sums over a task of documents.
struct DocumentSums {
    int64_t documents = 0, tokens = 0, bytes = 0, words = 0;
    double log_probability = 0;
};
DocumentSums sums_of(const Task& task, std::span<const Score> scores);

/// NotFiniteError, with task and line, if a score is not finite.
void require_finite(const Task& task, std::span<const Score> scores);

}  // namespace coeus
