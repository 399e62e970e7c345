// SPDX-License-Identifier: Apache-2.0
#include "coeus/evaluate/results.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

namespace coeus {

namespace {

// Rows of cells in columns: the first on the left, the others on the right.
class Table {
public:
    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    std::string text() const {
        std::vector<size_t> widths;
        for (const auto& cells : rows_)
            for (size_t i = 0; i < cells.size(); ++i) {
                if (i == widths.size()) widths.push_back(0);
                widths[i] = std::max(widths[i], cells[i].size());
            }
        std::string text;
        for (const auto& cells : rows_) {
            for (size_t i = 0; i < cells.size(); ++i)
                text += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i])
                               : fmt::format("  {:>{}}", cells[i], widths[i]);
            text += '\n';
        }
        return text;
    }
    bool empty() const { return rows_.empty(); }

private:
    std::vector<std::vector<std::string>> rows_;
};

const Metric* find(const TaskResult& result, const std::string& name) {
    const auto found = std::ranges::find(result.metrics, name, &Metric::name);
    return found == result.metrics.end() ? nullptr : &*found;
}

std::string cell(const Metric* metric, const char* format) {
    if (metric == nullptr || !std::isfinite(metric->value)) return "-";
    std::string text =
        fmt::format(fmt::runtime(std::abs(metric->value) < 1e6 ? format : "{:.3e}"), metric->value);
    if (metric->error) text += fmt::format(" +-{:.4f}", *metric->error);
    return text;
}

bool is_of_documents(const TaskResult& result) {
    return result.task->kind == TaskKind::document;
}

std::string table_of_questions(const std::vector<TaskResult>& results) {
    constexpr std::pair<const char*, const char*> columns[] = {
        {"acc", "{:.4f}"},        {"acc_norm", "{:.4f}"},      {"acc_bytes", "{:.4f}"},
        {"acc_tokens", "{:.4f}"}, {"bits_per_byte", "{:.3f}"}, {"perplexity", "{:.2f}"}};
    std::vector<std::pair<const char*, const char*>> used;
    for (const auto& column : columns)
        if (std::ranges::any_of(results, [&](const TaskResult& r) {
                return !is_of_documents(r) && find(r, column.first) != nullptr;
            }))
            used.push_back(column);
    Table table;
    for (const TaskResult& result : results) {
        if (is_of_documents(result)) continue;
        if (table.empty()) {
            std::vector<std::string> head = {"task", "lines"};
            for (const auto& [name, format] : used) head.emplace_back(name);
            table.add(std::move(head));
        }
        std::vector<std::string> cells = {printable(result.task->name),
                                          with_commas(int64_t(result.task->lines.size()))};
        for (const auto& [name, format] : used) cells.push_back(cell(find(result, name), format));
        table.add(std::move(cells));
    }
    return table.text();
}

std::string table_of_documents(const std::vector<TaskResult>& results) {
    Table table;
    std::string notes;
    for (const TaskResult& result : results) {
        if (!is_of_documents(result)) continue;
        if (table.empty())
            table.add({"documents", "number", "bytes", "tokens", "loss", "perplexity", "bits_per_byte",
                       "word_perplexity"});
        const Task& task = *result.task;
        const DocumentSums sums = sums_of(task, result.scores);
        table.add({printable(task.name), with_commas(sums.documents), with_commas(sums.bytes),
                   with_commas(sums.tokens), cell(find(result, "loss"), "{:.4f}"),
                   cell(find(result, "perplexity"), "{:.2f}"), cell(find(result, "bits_per_byte"), "{:.4f}"),
                   cell(find(result, "word_perplexity"), "{:.2f}")});
        if (task.without_tokens > 0)
            notes += fmt::format("{}: {} without tokens {} left out\n", printable(task.name),
                                 counted(task.without_tokens, "document"),
                                 task.without_tokens == 1 ? "was" : "were");
    }
    return table.text() + notes;
}

// "1", "2-3", "4-7", ...
std::string range_text(int k) {
    const int64_t first = int64_t(1) << k;
    return k == 0 ? "1" : fmt::format("{}-{}", with_commas(first), with_commas(2 * first - 1));
}

std::string table_of_positions(const std::vector<TaskResult>& results) {
    Table table;
    for (const TaskResult& result : results)
        for (const auto& [k, losses] : result.positions) {
            if (table.empty()) table.add({"documents", "position", "tokens", "loss"});
            table.add({printable(result.task->name), range_text(k), with_commas(losses.tokens),
                       fmt::format("{:.4f}", losses.sum / double(losses.tokens))});
        }
    return table.text();
}

}  // namespace

std::vector<TaskResult> results_of(const std::vector<Task>& tasks, const Scoring& scoring) {
    std::vector<TaskResult> results;
    std::span<const Score> left = scoring.scores();
    for (size_t i = 0; i < tasks.size(); ++i) {
        const Task& task = tasks[i];
        size_t requests = 0;
        for (const TaskLine& line : task.lines) requests += line.requests.size();
        const std::span<const Score> scores = left.first(requests);
        left = left.subspan(requests);
        require_finite(task, scores);
        TaskResult& result = results.emplace_back(TaskResult{&task, {scores.begin(), scores.end()}});
        result.metrics = metrics_of(task, scores);
        if (const auto found = scoring.positions().find(int32_t(i)); found != scoring.positions().end())
            result.positions = found->second;
    }
    return results;
}

std::string table_of(const std::vector<TaskResult>& results, bool by_position) {
    return table_of_questions(results) + table_of_documents(results) +
           (by_position ? table_of_positions(results) : "");
}

Json json_of(const std::vector<TaskResult>& results, const Json& config, bool by_position) {
    Json of_tasks = Json::object(), samples = Json::object();
    for (const TaskResult& result : results) {
        const std::string& name = result.task->name;
        Json task = Json::object().set("alias", name);
        for (const Metric& metric : result.metrics) {
            task.set(metric.name + ",none", metric.value);
            if (metric.error) task.set(metric.name + "_stderr,none", *metric.error);
        }
        if (by_position && !result.positions.empty()) {
            Json positions = Json::array();
            for (const auto& [k, losses] : result.positions)
                positions.push(Json::object()
                                   .set("from", int64_t(1) << k)
                                   .set("to", (int64_t(2) << k) - 1)
                                   .set("tokens", losses.tokens)
                                   .set("loss", losses.sum / double(losses.tokens)));
            task.set("by_position", std::move(positions));
        }
        if (result.task->without_tokens > 0) task.set("without_tokens", result.task->without_tokens);
        of_tasks.set(name, std::move(task));
        const auto lines = int64_t(result.task->lines.size());
        samples.set(name, Json::object().set("original", lines).set("effective", lines));
    }
    return Json::object()
        .set("results", std::move(of_tasks))
        .set("n-samples", std::move(samples))
        .set("config", config);
}

std::string samples_of(const std::vector<TaskResult>& results) {
    std::string text;
    for (const TaskResult& result : results) {
        size_t next = 0;
        for (const TaskLine& line : result.task->lines) {
            Json scores = Json::array(), greedy = Json::array(), tokens = Json::array();
            for (size_t i = 0; i < line.requests.size(); ++i, ++next) {
                scores.push(result.scores[next].log_probability);
                greedy.push(result.scores[next].greedy);
                tokens.push(result.scores[next].tokens);
            }
            Json sample = Json::object().set("task", result.task->name).set("line", line.number);
            if (!line.id.empty()) sample.set("id", JsonDocument::parse(line.id, "id").root().value());
            sample.set("scores", std::move(scores))
                .set("greedy", std::move(greedy))
                .set("tokens", std::move(tokens));
            if (line.requests.size() > 1) sample.set("gold", line.gold);
            text += sample.text() + '\n';
        }
    }
    return text;
}

std::set<std::string> evaluated_in(const std::filesystem::path& history, const ResultsOf& of,
                                   const std::vector<Task>& tasks) {
    std::map<std::string, std::string> last;  // by task: the weights and the content of its last results
    std::ifstream in(history);
    int64_t number = 0;
    for (std::string text; std::getline(in, text) && !in.eof();) {
        const JsonDocument document =
            JsonDocument::parse(text, fmt::format("{}:{}", history.string(), ++number));
        const JsonView& line = document.root();
        const auto settings = line.find("settings");
        if (line.integer("step") != of.step) continue;
        if ((settings ? settings->value() : Json::object()).text() != of.settings.text()) continue;
        last[line.string("task")] = line.string("weights", "") + line.string("content", "");
    }
    std::set<std::string> names;
    for (const Task& task : tasks)
        if (const auto found = last.find(task.name);
            found != last.end() && found->second == of.weights + content_id(task))
            names.insert(task.name);
    return names;
}

namespace {

// Removes a last line without its end, to which nothing can be appended.
void remove_cut_line(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.empty() || text.back() == '\n') return;
    const size_t last = text.rfind('\n');
    std::error_code failed;
    std::filesystem::resize_file(file, last == std::string::npos ? 0 : last + 1, failed);
    if (failed) throw SystemError(fmt::format("cannot write {}: {}", file.string(), failed.message()));
}

}  // namespace

void append_to(const std::filesystem::path& history, const ResultsOf& of,
               const std::vector<TaskResult>& results) {
    std::string text;
    for (const TaskResult& result : results) {
        const std::string content = content_id(*result.task);
        for (const Metric& metric : result.metrics) {
            Json line = Json::object()
                            .set("step", of.step)
                            .set("task", result.task->name)
                            .set("metric", metric.name)
                            .set("value", metric.value);
            if (metric.error) line.set("stderr", *metric.error);
            line.set("lines", result.task->lines.size());
            line.set("weights", of.weights).set("content", content);
            if (of.settings.text() != Json::object().text()) line.set("settings", of.settings);
            text += line.text() + '\n';
        }
    }
    remove_cut_line(history);
    std::ofstream out(history, std::ios::app | std::ios::binary);
    if (!(out << text).flush())
        throw SystemError(fmt::format("cannot write {}: {}", history.string(), errno_text(errno)));
}

}  // namespace coeus
