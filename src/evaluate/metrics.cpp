// SPDX-License-Identifier: Apache-2.0
#include "coeus/evaluate/metrics.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace coeus {

namespace {

constexpr double undefined = std::numeric_limits<double>::quiet_NaN();

// The mean, and with two values or more its error.
Metric mean_of(std::string name, const std::vector<double>& values) {
    const auto n = double(values.size());
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    Metric metric = {std::move(name), sum / n};
    for (const double value : values) squares += (value - metric.value) * (value - metric.value);
    if (values.size() > 1) metric.error = std::sqrt(squares / (n - 1)) / std::sqrt(n);
    return metric;
}

// Calls each(line, its scores).
template <class Each>
void for_each_line(const Task& task, std::span<const Score> scores, const Each& each) {
    for (const TaskLine& line : task.lines) {
        each(line, scores.first(line.requests.size()));
        scores = scores.subspan(line.requests.size());
    }
    require(scores.empty(), "a task has other requests than scores");
}

// The share of lines whose right request has the largest score after division by length(request, score).
template <class Length>
Metric accuracy(const char* name, const Task& task, std::span<const Score> scores, const Length& length) {
    std::vector<double> right;
    for_each_line(task, scores, [&](const TaskLine& line, std::span<const Score> of_line) {
        size_t best = 0;
        double most = 0;
        for (size_t i = 0; i < of_line.size(); ++i) {
            const double value = of_line[i].log_probability / length(line.requests[i], of_line[i]);
            if (i > 0 && !(value > most)) continue;
            best = i;
            most = value;
        }
        right.push_back(int64_t(best) == line.gold ? 1 : 0);
    });
    return mean_of(name, right);
}

double bits_per_byte(double log_probability, int64_t bytes) {
    return -log_probability / (double(bytes) * std::numbers::ln2);
}

std::vector<Metric> metrics_of_choices(const Task& task, std::span<const Score> scores) {
    const auto by = [&](const char* name, const auto& length) {
        return accuracy(name, task, scores, length);
    };
    std::vector<Metric> metrics = {by("acc", [](const Request&, const Score&) { return 1.0; })};
    if (task.kind == TaskKind::schema) return metrics;
    metrics.push_back(
        by("acc_norm", [](const Request& r, const Score&) { return double(r.size.characters); }));
    metrics.push_back(by("acc_bytes", [](const Request& r, const Score&) { return double(r.size.bytes); }));
    metrics.push_back(
        by("acc_tokens", [](const Request& r, const Score&) { return double(r.continuation.size()); }));
    std::vector<double> bits;
    for_each_line(task, scores, [&](const TaskLine& line, std::span<const Score> of_line) {
        const auto gold = size_t(line.gold);
        bits.push_back(bits_per_byte(of_line[gold].log_probability, line.requests[gold].size.bytes));
    });
    metrics.push_back(mean_of("bits_per_byte", bits));
    return metrics;
}

double perplexity(double loss) {
    const double value = std::exp(loss);
    return std::isfinite(value) ? value : undefined;
}

std::vector<Metric> metrics_of_continuations(std::span<const Score> scores) {
    std::vector<double> greedy;
    double sum = 0;
    for (const Score& score : scores) {
        greedy.push_back(score.greedy ? 1 : 0);
        sum += score.log_probability;
    }
    return {mean_of("acc", greedy), {"perplexity", perplexity(-sum / double(scores.size()))}};
}

std::vector<Metric> metrics_of_documents(const DocumentSums& sums) {
    const auto over = [&](int64_t count) { return perplexity(-sums.log_probability / double(count)); };
    const double loss = -sums.log_probability / double(sums.tokens);
    const bool has_text = sums.bytes > 0, has_words = sums.words > sums.documents;
    return {{"loss", loss},
            {"perplexity", perplexity(loss)},
            {"word_perplexity", has_text && has_words ? over(sums.words) : undefined},
            {"byte_perplexity", has_text ? over(sums.bytes) : undefined},
            {"bits_per_byte", has_text ? bits_per_byte(sums.log_probability, sums.bytes) : undefined}};
}

}  // namespace

DocumentSums sums_of(const Task& task, std::span<const Score> scores) {
    DocumentSums sums;
    for_each_line(task, scores, [&](const TaskLine& line, std::span<const Score> of_line) {
        const TextSize& size = line.requests.front().size;
        sums.documents += 1;
        sums.tokens += of_line.front().tokens;
        sums.bytes += size.bytes;
        sums.words += size.words;
        sums.log_probability += of_line.front().log_probability;
    });
    return sums;
}

std::vector<Metric> metrics_of(const Task& task, std::span<const Score> scores) {
    if (task.lines.empty()) return {};
    switch (task.kind) {
        case TaskKind::continuation: return metrics_of_continuations(scores);
        case TaskKind::document: return metrics_of_documents(sums_of(task, scores));
        default: return metrics_of_choices(task, scores);
    }
}

void require_finite(const Task& task, std::span<const Score> scores) {
    for_each_line(task, scores, [&](const TaskLine& line, std::span<const Score> of_line) {
        for (const Score& score : of_line)
            if (!std::isfinite(score.log_probability))
                throw NotFiniteError(fmt::format(
                    "{}, line {}: a score of the task \"{}\" is {}: the weights or what the model "
                    "computes from them are not finite; try --dtype float32",
                    task.file, line.number, printable(task.name), score.log_probability));
    });
}

}  // namespace coeus
