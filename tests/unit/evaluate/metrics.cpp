// SPDX-License-Identifier: Apache-2.0
// Metrics of scores that are written down here, sizes of texts, tables, JSON and the history of a run.
#include "coeus/evaluate/metrics.hpp"

#include "coeus/base/error.hpp"
#include "coeus/evaluate/results.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Request choice(const std::string& text, size_t ids) {
    return {.context = {0}, .continuation = std::vector<int32_t>(ids, 1), .size = size_of_text(text)};
}

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
    const auto found = std::ranges::find(metrics, name, &Metric::name);
    REQUIRE(found != metrics.end());
    return found->value;
}

Task choices_task() {
    return {.name = "choices",
            .file = "choices.jsonl",
            .kind = TaskKind::multiple_choice,
            .lines = {{.number = 1, .requests = {choice("é", 1), choice("abcd", 3)}, .gold = 1},
                      {.number = 3, .requests = {choice("x", 1), choice("y", 1)}, .gold = 0}}};
}

// The second line's scores are equal: the first one wins.
const std::vector<Score> choices_scores = {{-2, false, 1}, {-5, true, 3}, {-3, false, 1}, {-3, false, 1}};

}  // namespace

TEST_CASE("metrics: accuracies divide by what their names say, and the first of equals wins") {
    const std::vector<Metric> metrics = metrics_of(choices_task(), choices_scores);
    CHECK(value_of(metrics, "acc") == 0.5);        // -2 > -5
    CHECK(value_of(metrics, "acc_norm") == 1);     // -2/1 < -5/4
    CHECK(value_of(metrics, "acc_bytes") == 0.5);  // -2/2 > -5/4
    CHECK(value_of(metrics, "acc_tokens") == 1);   // -2/1 < -5/3
    const double bits = (5.0 / 4 + 3) / 2 / std::numbers::ln2;
    CHECK(relatively_close(value_of(metrics, "bits_per_byte"), bits, 1e-14));
    CHECK(relatively_close(metrics[0].error.value(), std::sqrt(0.5) / std::sqrt(2.0), 1e-14));
    CHECK(metrics[1].error.value() == 0);
}

TEST_CASE("metrics: continuations and documents") {
    Task task = {.name = "last words", .file = "f", .kind = TaskKind::continuation};
    task.lines = {{.number = 1, .requests = {choice("a", 1)}}, {.number = 2, .requests = {choice("b", 1)}}};
    const std::vector<Metric> metrics = metrics_of(task, std::vector<Score>{{-1, true, 1}, {-3, false, 1}});
    CHECK(value_of(metrics, "acc") == 0.5);
    CHECK(relatively_close(value_of(metrics, "perplexity"), std::exp(2.0), 1e-14));
    CHECK_FALSE(metrics[1].error.has_value());

    task.kind = TaskKind::document;
    task.lines = {{.number = 1, .requests = {choice("a b", 2)}},
                  {.number = 2, .requests = {choice("é\n", 4)}}};
    const std::vector<Score> scores = {{-1, true, 2}, {-3, false, 4}};
    const std::vector<Metric> of_documents = metrics_of(task, scores);
    CHECK(relatively_close(value_of(of_documents, "loss"), 4.0 / 6, 1e-14));
    CHECK(relatively_close(value_of(of_documents, "word_perplexity"), std::exp(4.0 / 4), 1e-14));
    CHECK(relatively_close(value_of(of_documents, "byte_perplexity"), std::exp(4.0 / 6), 1e-14));
    CHECK(relatively_close(value_of(of_documents, "bits_per_byte"), 4.0 / 6 / std::numbers::ln2, 1e-14));
    CHECK(sums_of(task, scores).tokens == 6);
}

TEST_CASE("metrics: those without sense are not numbers, and are not shown as such") {
    Task task = {.name = "d", .file = "f", .kind = TaskKind::document};
    const auto of = [&](const std::string& text, double log_probability) {
        task.lines = {{.number = 1, .requests = {choice(text, 1)}}};
        const std::vector<Score> scores = {{log_probability, false, 1}};
        return TaskResult{&task, scores, metrics_of(task, scores)};
    };
    const auto defined = [](const TaskResult& result) {
        std::vector<std::string> names;
        for (const Metric& metric : result.metrics)
            if (std::isfinite(metric.value)) names.push_back(metric.name);
        return names;
    };
    using Names = std::vector<std::string>;
    CHECK(defined(of("two words", -2)) ==
          Names{"loss", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"});
    CHECK(defined(of("東京", -2)) == Names{"loss", "perplexity", "byte_perplexity", "bits_per_byte"});
    CHECK(defined(of("", -2)) == Names{"loss", "perplexity"});
    const TaskResult hopeless = of("a b", -2000);
    CHECK(defined(hopeless) == Names{"loss", "byte_perplexity", "bits_per_byte"});
    CHECK(count_of(" -", table_of({hopeless}, false)) == 2);
    CHECK_THAT(json_of({hopeless}, Json::object(), false).text(),
               Contains(R"("loss,none":2000.0,"perplexity,none":null,"word_perplexity,none":null)"));
    CHECK_THAT(table_of({of("a b", -450)}, false), Contains(" 2.707e+195 ") && Contains(" 5.203e+97\n"));
    task.kind = TaskKind::continuation;
    CHECK_THAT(table_of({of("a", -2000)}, false), Catch::EndsWith(" -\n"));
}

TEST_CASE("metrics: a score that is not finite is named with task and line") {
    std::vector<Score> scores = choices_scores;
    scores[2].log_probability = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_MATCHES(
        require_finite(choices_task(), scores), NotFiniteError,
        Catch::Predicate<NotFiniteError>([](const NotFiniteError& error) {
            const std::string text = error.what();
            return text.find("choices.jsonl, line 3: a score of the task \"choices\" is nan") !=
                   std::string::npos;
        }));
    CHECK_NOTHROW(require_finite(choices_task(), choices_scores));
}

TEST_CASE("metrics: sizes of texts count code points, bytes, and pieces between white space") {
    const auto check = [](const std::string& text, int64_t characters, int64_t bytes, int64_t words) {
        CAPTURE(text);
        const TextSize size = size_of_text(text);
        CHECK(size.characters == characters);
        CHECK(size.bytes == bytes);
        CHECK(size.words == words);
    };
    check("", 0, 0, 1);
    check("two  words", 10, 10, 2);
    check(" at both ends\n", 14, 14, 5);
    check("é東😀", 3, 9, 1);
    check(
        "a\u00a0b\u3000\u2028c\x1c"
        "d",
        8, 13, 4);
    check("no\u200bspace", 8, 10, 1);
}

TEST_CASE("results: JSON has lm-evaluation-harness's keys, and samples the scores of each line") {
    Task task = choices_task();
    task.lines[0].id = "7";
    const std::vector<TaskResult> results = {{&task, choices_scores, metrics_of(task, choices_scores)}};
    const Json json = json_of(results, Json::object().set("dtype", "float32"), false);
    const JsonView view(json, "json");
    CHECK(view["results"]["choices"].number("acc,none") == 0.5);
    CHECK(view["results"]["choices"].number("acc_norm_stderr,none") == 0);
    CHECK(view["n-samples"]["choices"].integer("effective") == 2);
    CHECK(view["config"].string("dtype") == "float32");
    const std::vector<std::string> samples = lines_of(samples_of(results));
    REQUIRE(samples.size() == 2);
    CHECK(
        samples[0] ==
        R"({"task":"choices","line":1,"id":7,"scores":[-2.0,-5.0],"greedy":[false,true],"tokens":[1,3],"gold":1})");
    const std::string table = table_of(results, true);
    CHECK_THAT(table, Contains("acc_norm") && Contains("choices") && Contains("0.5000 +-0.5000"));
    CHECK_THAT(table, !Contains("documents"));
}

TEST_CASE("results: a history knows steps, weights and tasks, without a line that was cut off") {
    const TemporaryFolder folder;
    const auto file = folder / evaluation_file;
    const Task task = choices_task();
    const std::vector<TaskResult> results = {{&task, choices_scores, metrics_of(task, choices_scores)}};
    const auto of = [](int64_t step, const std::string& weights = "w",
                       const Json& settings = Json::object()) {
        return ResultsOf{step, weights, settings};
    };
    const auto has = [&](const ResultsOf& what, const Task& asked) {
        return evaluated_in(file, what, {asked}) == std::set<std::string>{asked.name};
    };
    CHECK_FALSE(has(of(100), task));
    append_to(file, of(100), results);
    append_to(file, of(200), results);
    const std::string text = read_file(file);
    CHECK_THAT(text, Contains(R"({"step":100,"task":"choices","metric":"acc","value":0.5,"stderr":0.5)"));
    CHECK_THAT(text, Contains(R"("lines":2,"weights":"w","content":")" + content_id(task) + "\"}\n"));
    write_file(file, text + R"({"step":300,"task":"cho)");
    CHECK(has(of(100), task));
    CHECK(has(of(200), task));
    CHECK_FALSE(has(of(300), task));
    append_to(file, of(400), results);
    CHECK(read_file(file).starts_with(text + R"({"step":400)"));
    CHECK(has(of(400), task));
    // those with other settings are others
    const Json other = Json::object().set("context", 16);
    CHECK_FALSE(has(of(400, "w", other), task));
    append_to(file, of(500, "w", other), results);
    CHECK(has(of(500, "w", other), task));
    CHECK_FALSE(has(of(500), task));
    CHECK_THAT(read_file(file), Catch::EndsWith(R"("settings":{"context":16}})"
                                                "\n"));
    // other weights of a step, until the last results of the step are of these again
    CHECK_FALSE(has(of(100, "v"), task));
    append_to(file, of(100, "v"), results);
    CHECK(has(of(100, "v"), task));
    CHECK_FALSE(has(of(100), task));
    // lines of an earlier version do not say of which weights they are
    write_file(file, R"({"step":100,"task":"choices","metric":"acc","value":0.5,"lines":2})"
                     "\n");
    CHECK_FALSE(has(of(100), task));
}

TEST_CASE("results: a task whose lines ask for something else is another one") {
    const auto check = [](const std::function<void(Task&)>& change) {
        Task task = choices_task();
        change(task);
        CHECK(content_id(task) != content_id(choices_task()));
    };
    CHECK(content_id(choices_task()) == content_id(choices_task()));
    check([](Task& task) { task.lines[0].gold = 0; });
    check([](Task& task) { task.lines.pop_back(); });
    check([](Task& task) { task.kind = TaskKind::schema; });
    check([](Task& task) { task.lines[1].requests[0].context = {1}; });
    check([](Task& task) { task.lines[1].requests[1].continuation = {2}; });
    check([](Task& task) { task.lines[0].requests[1].counts = {1, 0, 1}; });
    check([](Task& task) { task.lines[0].requests[1].size = size_of_text("abc\n"); });
}
