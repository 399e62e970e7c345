// SPDX-License-Identifier: Apache-2.0
// Every table and model of golden/rope against transformers: frequencies, factors, cos and sin, logits, loss
// and norms of gradients for each kind of scaling, from both forms of config.json, in float64 and float32
// with the tolerances of golden/README.md.
#include "coeus/models/parts/rope.hpp"

#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "hub_weights.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

/// What config.json says of RoPE, and back.
RopeConfig rope_of(const JsonView& json, double fraction) {
    RopeConfig rope;
    read_hub_rope(json, rope, json.integer("max_position_embeddings"), fraction);
    Json written = Json::object().set("max_position_embeddings", json.integer("max_position_embeddings"));
    write_hub_rope(written, rope);
    RopeConfig again;
    read_hub_rope(JsonView(written, "written"), again, json.integer("max_position_embeddings"), 1);
    CHECK(again == rope);
    if (const Json described = describe_scaling(rope.scaling); !described.is_null())
        CHECK((scaling_from_description(JsonView(described, "described")) == rope.scaling));
    return rope;
}

void check_cosines(const std::string& name, const RopeConfig& rope, int64_t width, int64_t length,
                   const Safetensors& golden) {
    const std::string row = name + "." + std::to_string(length);
    const std::vector<int64_t> positions = golden.read_all<int64_t>(row + ".positions");
    const std::vector<double> cosines = golden.read_all<double>(row + ".cos"),
                              sines = golden.read_all<double>(row + ".sin");
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
        CAPTURE(name_of(dtype));
        RopeTable table(length, width, rope.theta, rope.scaling, dtype);
        table.allocate();
        // an angle's error is that of its frequency, times the position
        const double tolerance = dtype == Dtype::f64 ? 4e-16 * double(length + 1) + 1e-15 : 3e-7;
        double worst = 0;
        for (size_t i = 0; i < positions.size(); ++i)
            for (int64_t j = 0; j < width / 2; ++j) {
                const size_t at = i * size_t(width / 2) + size_t(j);
                const int64_t place = positions[i] * width + 2 * j;
                worst = worse_of(worst, std::fabs(element(table.view(), place) - cosines.at(at)));
                worst = worse_of(worst, std::fabs(element(table.view(), place + 1) - sines.at(at)));
            }
        CHECK(worst <= tolerance);
    }
}

void check_table(const std::string& name, const JsonView& table, const Safetensors& golden) {
    const auto part = table["rope_parameters"].find("partial_rotary_factor");
    const double fraction = part ? part->number() : 1;
    const auto width = int64_t(double(table.integer("head_dim")) * fraction);
    Json now = Json::object(), older = table["older"].value();
    now.set("rope_parameters", table["rope_parameters"].value());
    for (Json* form : {&now, &older}) {
        form->set("max_position_embeddings", table.integer("max_position_embeddings"));
        const RopeConfig rope = rope_of(JsonView(*form, name), fraction);
        for (const JsonView& row : table["rows"].elements()) {
            const int64_t length = row.integer("length");
            CAPTURE(length);
            CHECK(relatively_close(rope_magnitude(rope.scaling), row.number("attention_factor"), 1e-14));
            const std::vector<double> ours = rope_frequencies(width, rope.theta, rope.scaling, length);
            const std::vector<JsonView> theirs = row["frequencies"].elements();
            REQUIRE(ours.size() == theirs.size());
            for (size_t j = 0; j < ours.size(); ++j)
                CHECK(relatively_close(ours[j], theirs[j].number(), 1e-14));
            // the longest tables have gigabytes
            if (length <= 16384) check_cosines(name, rope, width, length, golden);
        }
    }
}

/// Those of logits are absolute, others relative.
struct RopeTolerances {
    double loss, logits, gradients;
};

// The row of one length, by the model of one of the two forms of config.json.
void check_row(const fs::path& folder, const std::string& weights, const DecoderConfig& config,
               const JsonView& expected, const StateTypes& types, const RopeTolerances& tolerance) {
    const int64_t length = expected.integer("length");
    CAPTURE(length);
    const Safetensors golden = Safetensors::open((folder / "values.safetensors").string());
    const auto of_length = [&](const char* what) { return fmt::format("{}.{}", length, what); };
    const std::vector<int64_t> tokens = golden.read_all<int64_t>(of_length("tokens"));
    TestModel model(config, types, {1, length});
    load_golden_weights(model, weights);
    TestBatch batch(1, length, config.vocab);
    batch.tokens.assign(tokens.begin(), tokens.end() - 1);
    batch.labels.assign(tokens.begin() + 1, tokens.end());
    model.scalars.loss_scale = 1.0 / double(length);
    model.zero_gradients();
    model.forward_backward(batch);
    CHECK(relatively_close(model.scalars.loss, expected.number("loss"), tolerance.loss));

    const std::vector<double> logits = values(model.logits(batch)),
                              theirs = golden.read_all<double>(of_length("logits"));
    const std::vector<int64_t> positions = golden.read_all<int64_t>(of_length("positions"));
    double worst = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
        const size_t vocab = size_t(config.vocab), place = size_t(positions[i / vocab]) * vocab + i % vocab;
        worst = worse_of(worst, std::fabs(logits.at(place) - theirs[i]));
    }
    CHECK(worst <= tolerance.logits);

    const auto gradients = in_golden_layout(model, &Storage::g);
    for (const auto& [name, norm] : expected["grad_l2"].items()) {
        INFO(name);
        double squares = 0;
        for (const double g : gradients.at(name)) squares += g * g;
        CHECK(relatively_close(std::sqrt(squares), norm.number(), tolerance.gradients));
    }
}

void check_model(const fs::path& folder, const StateTypes& types, const RopeTolerances& tolerance) {
    const JsonDocument document = JsonDocument::read(folder / "expected.json");
    const std::string weights = golden("models/" + document.root().string("weights")).string();
    for (const char* form : {"config.json", "config_4x.json"}) {
        INFO(form);
        const TemporaryFolder copy;
        fs::copy_file(folder / form, copy / "config.json");
        const DecoderConfig config = model_from_hub(copy.path().string());
        const JsonDocument written = JsonDocument::parse(hub_config_of(config).text(), "written");
        CHECK(written.root().integer("max_position_embeddings") == config.max_seq_len);
        for (const JsonView& row : document.root()["rows"].elements())
            check_row(folder, weights, config, row, types, tolerance);
    }
}

void check_models(const StateTypes& types, const RopeTolerances& tolerance) {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_folders("rope")) {
        const fs::path folder = golden(name);
        cases.push_back({name, [=] { return refusal_of([&] { model_from_hub(folder.string()); }); },
                         [=] { check_model(folder, types, tolerance); }});
    }
    compare_golden(cases);
}

}  // namespace

TEST_CASE("golden: tables of RoPE with each kind of scaling") {
    const fs::path folder = golden("rope");
    std::optional<JsonDocument> document;
    std::optional<Safetensors> cosines;
    std::vector<GoldenCase> cases;
    if (fs::exists(folder / "tables.json")) {
        document = JsonDocument::read(folder / "tables.json");
        cosines = Safetensors::open((folder / "tables.safetensors").string());
        for (const auto& [name, table] : document->root()["tables"].items())
            cases.push_back({"rope/" + name, [] { return ""; },
                             [&, name = name, table = table] { check_table(name, table, *cosines); }});
    }
    compare_golden(cases);
}

TEST_CASE("golden: models with each kind of scaling of RoPE in float64") {
    check_models({Dtype::f64, Dtype::f64}, {1e-12, 1e-10, 1e-10});
}

TEST_CASE("golden: models with each kind of scaling of RoPE in float32") {
    check_models({Dtype::f32, Dtype::f32}, {1e-6, 5e-5, 3e-5});
}
