// SPDX-License-Identifier: Apache-2.0
// Every model of golden/evaluate against lm-evaluation-harness, in float64: ids of all requests, scores,
// greedy answers and all metrics, for each way to add BOS and each stride. Every token of a document is
// scored once. The loss of each model of golden/models and golden/families is that of its first batch.
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/golden_evaluation.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

// golden/README.md, "evaluate"
constexpr double score_tolerance = 1e-10, metric_tolerance = 1e-9;

// lm-evaluation-harness's add_bos_token=none scores BOS of a document, as with true.
AddBos way_of(const std::string& mode, TaskKind kind) {
    if (mode == "none" && kind != TaskKind::document) return AddBos::by_template;
    return mode == "false" ? AddBos::never : AddBos::always;
}

std::vector<int32_t> golden_ids(const JsonView& ids) {
    std::vector<int32_t> all;
    for (const int64_t id : ids.integers()) all.push_back(int32_t(id));
    return all;
}

const Task& task_named(const std::vector<Task>& tasks, const std::string& name) {
    const auto found = std::ranges::find(tasks, name, &Task::name);
    REQUIRE(found != tasks.end());
    return *found;
}

void check_ids(const Task& task, const JsonView& golden_task) {
    const std::vector<JsonView> lines = golden_task.elements();
    REQUIRE(lines.size() == task.lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
        CAPTURE(task.name, i);
        const TaskLine& line = task.lines[i];
        if (task.kind == TaskKind::document) {
            CHECK(line.requests.front().continuation == golden_ids(lines[i]));
            continue;
        }
        const std::vector<JsonView> requests = lines[i].elements();
        REQUIRE(requests.size() == line.requests.size());
        for (size_t r = 0; r < requests.size(); ++r) {
            CHECK(line.requests[r].context == golden_ids(requests[r][size_t(0)]));
            CHECK(line.requests[r].continuation == golden_ids(requests[r][size_t(1)]));
        }
    }
}

void check_scores(const TaskResult& result, const JsonView& part, const std::string& stride) {
    const std::vector<double> wanted = golden_scores(part, result.task->name, stride);
    REQUIRE(wanted.size() == result.scores.size());
    for (size_t i = 0; i < wanted.size(); ++i)
        CHECK(relatively_close(result.scores[i].log_probability, wanted[i], score_tolerance));
    const JsonView task = part[result.task->name];
    for (const auto& [name, value] : task["metrics" + stride].items()) {
        CAPTURE(name);
        const bool is_error = name.ends_with("_stderr");
        const auto metric = std::ranges::find(
            result.metrics, is_error ? name.substr(0, name.size() - 7) : name, &Metric::name);
        REQUIRE(metric != result.metrics.end());
        const double ours = is_error ? metric->error.value() : metric->value;
        if (name.starts_with("acc"))
            CHECK(relatively_close(ours, value.number(), 1e-14));
        else
            CHECK(relatively_close(ours, value.number(), metric_tolerance));
    }
    if (result.task->kind == TaskKind::document) return;
    size_t next = 0;
    for (const JsonView& line : task["scores"].elements())
        for (const JsonView& choice : line.elements())
            CHECK(result.scores[next++].greedy == (choice[size_t(1)].integer() == 1));
}

void check_sums(const TaskResult& result, const JsonView& task) {
    const DocumentSums sums = sums_of(*result.task, result.scores);
    CHECK(sums.tokens == task.integer("tokens"));
    CHECK(sums.bytes == task.integer("bytes"));
    CHECK(sums.words == task.integer("words"));
    int64_t by_position = 0;
    for (const auto& [k, losses] : result.positions) by_position += losses.tokens;
    CHECK(by_position == sums.tokens);
}

void compare(const fs::path& file) {
    GoldenEvaluation evaluation(file, mesh_of_one());
    const JsonDocument ids =
        JsonDocument::read(golden("evaluate") / ("ids_" + evaluation.tokenizer_name() + ".json"));
    std::map<AddBos, std::vector<Task>> tasks;
    for (const AddBos way : {AddBos::by_template, AddBos::always, AddBos::never})
        tasks[way] = evaluation.tasks(way);
    for (const auto& [mode, of_mode] : ids.root().items())
        for (const auto& [name, golden_task] : of_mode.items()) {
            CAPTURE(mode);
            const TaskKind kind = task_named(tasks[AddBos::never], name).kind;
            check_ids(task_named(tasks[way_of(mode, kind)], name), golden_task);
        }
    for (const auto& [key, part] : evaluation.document().root().items()) {
        if (!key.starts_with("add_bos_token=")) continue;
        CAPTURE(key);
        const std::string mode = key.substr(key.find('=') + 1);
        for (const auto& [name, task] : part.items()) {
            if (!task.is_object() || !task.contains("scores")) continue;
            const TaskKind kind = task_named(tasks[AddBos::never], name).kind;
            const std::vector<Task> one = {task_named(tasks[way_of(mode, kind)], name)};
            const TaskResult result = evaluation.results(one, evaluation.context()).front();
            check_scores(result, part, "");
            for (const auto& [field, scores] : task.items()) {
                if (!field.starts_with("scores_stride_")) continue;
                const std::string stride = field.substr(std::string("scores").size());
                const TaskResult strided = evaluation.results(one, std::stoll(stride.substr(8))).front();
                check_scores(strided, part, stride);
                check_sums(strided, task);
                check_sums(result, task);
            }
        }
    }
    // BOS of a document is not scored unless this is asked for
    for (const Task& task : tasks[AddBos::by_template])
        if (task.kind == TaskKind::document) {
            const Task& never = task_named(tasks[AddBos::never], task.name);
            for (size_t i = 0; i < task.lines.size(); ++i)
                CHECK(task.lines[i].requests.front().continuation ==
                      never.lines[i].requests.front().continuation);
        }
}

// The first batch of a model.
class FirstBatch {
public:
    explicit FirstBatch(const fs::path& folder)
        : expected_(JsonDocument::read(folder / "expected.json")),
          file_(Safetensors::open((folder / "batch.safetensors").string())),
          shape_{expected()["batch"].integer("sequences"), expected()["batch"].integer("length"),
                 expected().string("documents").starts_with("masked")} {
        const std::vector<int32_t> windows = ids("tokens", shape_.seq_len + 1);
        for (int64_t t = 0; t < shape_.count(); ++t)
            tokens_.push_back(windows[size_t(t + t / shape_.seq_len)]);
        labels_ = ids("labels", shape_.seq_len);
        if (!shape_.masks_documents) return;
        const std::vector<int32_t> documents = ids("document_ids", shape_.seq_len);
        for (size_t t = 0; t < documents.size(); ++t) {
            const auto index = int32_t(int64_t(t) % shape_.seq_len);
            starts_.push_back(index == 0 || documents[t] != documents[t - 1] ? index : starts_.back());
        }
    }
    JsonView expected() const { return expected_.root(); }
    const BatchShape& shape() const { return shape_; }
    SampleRows rows() const {
        return {.sequences = shape_.sequences,
                .seq_len = shape_.seq_len,
                .tokens = tokens_,
                .labels = labels_,
                .document_start = starts_};
    }
    bool has_own_positions() const { return file_.has("position_ids") && !shape_.masks_documents; }

private:
    std::vector<int32_t> ids(const std::string& name, int64_t length) const {
        std::vector<int32_t> all(size_t(shape_.sequences * length));
        file_.read(name, Tensor(all.data(), Dtype::i32, {int64_t(all.size())}), 0);
        return all;
    }
    JsonDocument expected_;
    Safetensors file_;
    BatchShape shape_;
    std::vector<int32_t> tokens_, labels_, starts_;
};

void compare_loss(const fs::path& folder) {
    const FirstBatch batch(folder);
    const DecoderConfig model = model_from_hub(folder.string());
    Engine engine(model, {.trains = false,
                          .types = {Dtype::f64, Dtype::f64},
                          .validation = batch.shape(),
                          .scores_tokens = true});
    engine.allocate();
    Pretrained(folder).load(decoder_of(engine.model()));
    engine.renew_weights();
    TokenScores scores;
    const double loss = engine.evaluate(batch.rows(), scores),
                 labels = batch.expected().number("valid_tokens");
    CHECK(relatively_close(loss / labels, batch.expected().number("loss"), 1e-12));
    double sum = 0;
    for (const double of_token : scores.losses) sum += of_token;
    CHECK(relatively_close(sum / labels, batch.expected().number("loss"), 1e-12));
}

}  // namespace

TEST_CASE("evaluate: an engine that only evaluates gives the loss of each model") {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_models()) {
        const fs::path folder = golden(name);
        const auto refusal = [=]() -> std::string {
            if (FirstBatch(folder).has_own_positions())
                return "runs have no positions of their own without a document mask";
            return unknown_architecture(folder);
        };
        cases.push_back({name, refusal, [=] { compare_loss(folder); }});
    }
    compare_golden(cases);
}

TEST_CASE("evaluate: scores and metrics are those of lm-evaluation-harness") {
    std::vector<GoldenCase> cases;
    for (const fs::path& file : golden_evaluations()) {
        const auto refusal = [=] { return refusal_of([&] { (void)GoldenEvaluation::fits(file, {}); }); };
        cases.push_back({"evaluate/" + file.stem().string(), refusal, [=] { compare(file); }});
    }
    compare_golden(cases);
}
