// SPDX-License-Identifier: Apache-2.0
// golden/flux against torchtitan's Flux: the pieces, the whole transformer (activations, prediction, every
// gradient by name), its variants, and ten AdamW steps by the engine; in float64 and float32 with the
// tolerances of golden/README.md.
#include "coeus/models/flux.hpp"

#include "coeus/engine/engine.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/layers/modulated_norm.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

/// Those of predictions and activations are absolute, others relative.
struct FluxTolerances {
    double loss, prediction, all_gradients, each_gradient, run_loss, run_norm, final_l2;
};
constexpr FluxTolerances flux_in_float64 = {1e-12, 1e-10, 1e-11, 1e-10, 1e-10, 1e-9, 1e-9};
constexpr FluxTolerances flux_in_float32 = {1e-6, 8e-6, 2e-5, 5e-5, 1e-5, 5e-5, 5e-6};
const StateTypes flux_doubles = {Dtype::f64, Dtype::f64}, flux_floats = {Dtype::f32, Dtype::f32};

FluxConfig config_of_folder(const fs::path& folder, double qk_norm_eps, int64_t text_tokens) {
    const JsonDocument document = JsonDocument::read(folder / "config.json");
    const JsonView json = document.root()["transformer"];
    const std::vector<int64_t> axes = json["axes_dim"].integers(),
                               latent = document.root()["latent"].integers();
    return {.flavor = "golden",
            .hidden_size = json.integer("hidden_size"),
            .num_heads = json.integer("num_heads"),
            .depth = json.integer("depth"),
            .depth_single_blocks = json.integer("depth_single_blocks"),
            .mlp_ratio = json.number("mlp_ratio"),
            .axes_dim = {axes[0], axes[1], axes[2]},
            .theta = json.number("theta"),
            .in_channels = json.integer("in_channels"),
            .context_in_dim = json.integer("context_in_dim"),
            .vec_in_dim = json.integer("vec_in_dim"),
            .qk_norm_eps = qk_norm_eps,
            .text_tokens = text_tokens,
            .patch_rows = latent[0] / 2,
            .patch_columns = latent[1] / 2};
}

/// Latents, noise, encodings and times of one batch, as the loader would make samples of them.
class GoldenImages {
public:
    /// The batch number `number` of a file with several, or the only one.
    GoldenImages(const std::string& path, const FluxConfig& config, std::optional<int64_t> number = {})
        : file_(Safetensors::open(path)), config_(config) {
        const Shape shape = file_.entry("timesteps").shape;
        const int64_t batches = number ? shape[0] : 1;
        samples = number ? shape[1] : shape[0];
        const auto read = [&]<class T>(T, const std::string& name) {
            const int64_t count = file_.entry(name).shape.count() / batches;
            std::vector<T> all(static_cast<size_t>(count));
            file_.read(name, Tensor(all.data(), dtype_of<T>(), {count}), number.value_or(0) * count);
            return all;
        };
        times = read(double(), "timesteps");
        text = read(float(), "t5");
        pooled = read(float(), "clip");
        const std::vector<double> x = patches(read(double(), "x")), noise = patches(read(double(), "noise"));
        const size_t each = x.size() / size_t(samples);
        for (size_t i = 0; i < x.size(); ++i) {
            noisy.push_back((1 - times[i / each]) * x[i] + times[i / each] * noise[i]);
            target.push_back(noise[i] - x[i]);
        }
        weights.assign(size_t(samples), 1);
    }

    ImageSamples view() const {
        return {.samples = samples,
                .patches = config_.patches(),
                .patch_width = config_.in_channels,
                .text_tokens = config_.text_tokens,
                .text_width = config_.context_in_dim,
                .pooled_width = config_.vec_in_dim,
                .noisy = noisy,
                .target = target,
                .text = text,
                .pooled = pooled,
                .times = times,
                .weights = weights};
    }
    int64_t elements() const { return int64_t(target.size()); }

    int64_t samples = 0;
    std::vector<double> noisy, target, times, weights;
    std::vector<float> text, pooled;

private:
    // [B, C, h, w] -> [B, (h/2) (w/2), 4 C]: channel, row, column in the patch.
    std::vector<double> patches(const std::vector<double>& latents) const {
        const int64_t channels = config_.in_channels / 4, rows = config_.patch_rows,
                      columns = config_.patch_columns;
        std::vector<double> packed;
        for (int64_t b = 0; b < samples; ++b)
            for (int64_t patch = 0; patch < rows * columns; ++patch)
                for (int64_t i = 0; i < 4 * channels; ++i) {
                    const int64_t row = 2 * (patch / columns) + i / 2 % 2,
                                  column = 2 * (patch % columns) + i % 2;
                    packed.push_back(
                        latents[size_t(((b * channels + i / 4) * 2 * rows + row) * 2 * columns + column)]);
                }
        return packed;
    }
    Safetensors file_;
    FluxConfig config_;
};

/// Our name of each parameter, and that of the file.
std::map<std::string, std::string> names_of_file(const fs::path& folder) {
    std::map<std::string, std::string> names;
    const JsonDocument document = JsonDocument::read(folder / "names.json");
    for (const JsonView& one : document.root().elements())
        names[one.string("torchtitan")] = one.string("original");
    return names;
}

// Reads all parameters of the model, which are those of the file.
void load_flux(Parameters& parameters, const fs::path& folder) {
    const std::map<std::string, std::string> names = names_of_file(folder);
    const Safetensors file = Safetensors::open((folder / "transformer/flux.safetensors").string());
    CHECK(parameters.storages().size() == names.size());
    for (const Storage& storage : parameters.storages()) {
        const std::string& name = names.at(storage.params().front().name);
        REQUIRE(file.entry(name).shape == storage.params().front().shape);
        const std::vector<double> values = file.read_all<double>(name);
        for (size_t i = 0; i < values.size(); ++i) set_element(storage.master, int64_t(i), values[i]);
    }
}

/// The model in exactly the memory that was planned, which contains NaN before.
class FluxRun {
public:
    FluxRun(const FluxConfig& config, const StateTypes& types, const GoldenImages& images)
        : model(config, types, {}, {{0, size_t(config.depth + config.depth_single_blocks) + 2}}),
          part_(config.sizes(), types.compute, {{images.samples, config.sizes().tokens()}}, 1, 0),
          stage_(model) {
        const BatchShape shape = {images.samples, config.sizes().tokens()};
        const LayerMemory layers = measure_training(model, shape, shape, {1});
        model.allocate(true);
        exec.workspace = Arena(layers.workspace, "workspace");
        frame_ = Frame(layers.activations, layers.executor.frame_entries);
        temp_ = Arena(layers.temporaries, "temporaries");
        poison(frame_, layers.activations);
        poison(temp_, layers.temporaries);
        part_.stage(0, images.view());
        batch_ = part_.bring(exec, 0);
        scalars.loss_scale = 1 / double(images.elements());
    }

    Ctx context() {
        return {.exec = exec,
                .k = cpu_kernels(),
                .frame = frame_,
                .temp = temp_,
                .batch = batch_,
                .scalars = scalars};
    }
    std::vector<double> prediction() {
        const OwnedTensor out(model.parameters().types().accumulate(), batch_.images.target.shape);
        Ctx c = context();
        stage_.logits(c, out);
        frame_.rewind({0, 0});
        return values(out);
    }
    void train() {
        cpu_kernels().zero(exec, model.parameters().gradients());
        Ctx c = context();
        stage_.forward(c, {});
        stage_.backward(c, {});
        frame_.rewind({0, 0});
    }
    // The flow after each segment but the last.
    std::vector<Flow> flows() {
        std::vector<Flow> all;
        Ctx c = context();
        for (const Segment& segment : model.segments())
            if (segment.block) all.push_back(segment.block->forward(c, all.empty() ? Flow() : all.back()));
        return all;
    }
    const Batch& batch() const { return batch_; }

    Flux model;
    Exec exec;
    StepScalars scalars;

private:
    ImagePart part_;
    Stage stage_;
    Frame frame_;
    Arena temp_;
    Batch batch_;
};

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = worse_of(worst, std::fabs(a[i] - b[i]));
    return worst;
}

std::vector<double> rows_of(const Tensor& t, int64_t first, int64_t count) {
    const std::vector<double> all = values(t);
    return {all.begin() + first * t.cols(), all.begin() + (first + count) * t.cols()};
}

// The first sample's activations.
void check_activations(FluxRun& run, const FluxConfig& config, const Safetensors& golden, double tolerance) {
    const std::vector<Flow> flows = run.flows();
    const int64_t text = config.text_tokens, patches = config.patches(),
                  first_patch = run.batch().sequences * text;
    const auto check = [&](const std::string& name, const std::vector<double>& ours) {
        INFO(name);
        CHECK(furthest(ours, golden.read_all<double>(name)) <= tolerance);
    };
    const auto check_streams = [&](const Flow& flow, const std::string& of_text,
                                   const std::string& of_patches) {
        check(of_text, rows_of(flow.hidden(), 0, text));
        check(of_patches, rows_of(flow.hidden(), first_patch, patches));
    };
    check_streams(flows[0], "txt_in", "img_in");
    std::vector<double> vec = golden.read_all<double>("time_in");
    const std::vector<double> pooled = golden.read_all<double>("vector_in");
    for (size_t i = 0; i < vec.size(); ++i) {
        vec[i] += pooled[i];
        vec[i] /= 1 + std::exp(-vec[i]);
    }
    CHECK(furthest(rows_of(flows[0].all()[1], 0, 1), vec) <= tolerance);
    for (int64_t i = 0; i < config.depth; ++i) {
        const std::string name = fmt::format("double_blocks.{}.", i);
        check_streams(flows[size_t(1 + i)], name + "txt", name + "img");
    }
    for (int64_t i = 0; i < config.depth_single_blocks; ++i)
        check(fmt::format("single_blocks.{}", i),
              rows_of(flows[size_t(1 + config.depth + i)].hidden(), 0, text + patches));
}

void check_transformer(const StateTypes& types, const FluxTolerances& tolerance) {
    const fs::path folder = golden("flux");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "transformer/expected.json");
    const JsonView expected = document.root();
    const std::string batch = (folder / "transformer/batch.safetensors").string();
    const Safetensors output = Safetensors::open((folder / "transformer/output.safetensors").string());
    const int64_t text_tokens = Safetensors::open(batch).entry("t5").shape[1];
    const auto config_with = [&](double eps) { return config_of_folder(folder, eps, text_tokens); };
    const FluxConfig config = config_with(expected.number("qk_norm_eps"));
    const GoldenImages images(batch, config);
    CHECK(images.elements() == expected.integer("elements"));
    CHECK(furthest(images.target, Safetensors::open(batch).read_all<double>("model.target")) == 0);
    CHECK(furthest(images.noisy, Safetensors::open(batch).read_all<double>("model.img")) <= 1e-15);

    FluxRun run(config, types, images);
    load_flux(run.model.parameters(), folder);
    run.model.parameters().refresh_compute(run.exec, cpu_kernels());
    const std::vector<double> prediction = run.prediction();
    CHECK(furthest(prediction, output.read_all<double>("prediction")) <= tolerance.prediction);
    CHECK(furthest(prediction, output.read_all<double>("prediction.causal_attention")) > 0.1);
    check_activations(run, config, output, tolerance.prediction);

    FluxRun trained(config, types, images);
    load_flux(trained.model.parameters(), folder);
    trained.model.parameters().refresh_compute(trained.exec, cpu_kernels());
    trained.train();
    CHECK(relatively_close(trained.scalars.loss, expected.number("loss"), tolerance.loss));
    measure_norm(trained.exec, cpu_kernels(), trained.model.parameters(), trained.scalars, 1);
    CHECK(relatively_close(trained.scalars.grad_norm, expected.number("grad_norm"), tolerance.run_norm));
    const Safetensors gradients = Safetensors::open((folder / "transformer/grads.safetensors").string());
    const std::map<std::string, std::string> names = names_of_file(folder);
    CHECK(gradients.names().size() == names.size());
    std::vector<double> joined, joined_golden;
    for (const Storage& storage : trained.model.parameters().storages()) {
        const std::string& name = names.at(storage.params().front().name);
        INFO(name);
        const std::vector<double> ours = values(storage.g), theirs = gradients.read_all<double>(name);
        CHECK(normalised_error(ours, theirs) <= tolerance.each_gradient);
        joined.insert(joined.end(), ours.begin(), ours.end());
        joined_golden.insert(joined_golden.end(), theirs.begin(), theirs.end());
    }
    CHECK(normalised_error(joined, joined_golden) <= tolerance.all_gradients);

    for (const auto& [name, eps] :
         {std::pair("qk_norm_eps_1e-6", 1e-6), std::pair("qk_norm_eps_1e-5", 1e-5)}) {
        INFO(name);
        FluxRun variant(config_with(eps), types, images);
        load_flux(variant.model.parameters(), folder);
        variant.model.parameters().refresh_compute(variant.exec, cpu_kernels());
        CHECK(furthest(variant.prediction(), output.read_all<double>(std::string("prediction.") + name)) <=
              tolerance.prediction);
    }
}

// A copy of a file in which tensors of five extents have the first two as one, since Shape has at most four.
std::string with_four_extents(const fs::path& file, const TemporaryFolder& folder) {
    std::string bytes = read_file(file);
    const std::string key = "\"shape\":[";
    for (size_t at = bytes.find(key); at != std::string::npos; at = bytes.find(key, at + 1)) {
        const size_t first = at + key.size(), end = bytes.find(']', first),
                     second = bytes.find(',', first) + 1, rest = bytes.find(',', second);
        if (std::count(bytes.begin() + int64_t(first), bytes.begin() + int64_t(end), ',') != 4) continue;
        std::string text =
            std::to_string(std::stoll(bytes.substr(first)) * std::stoll(bytes.substr(second))) +
            bytes.substr(rest, end - rest);
        text.resize(end - first, ' ');
        bytes.replace(first, text.size(), text);
    }
    write_file(folder / "batches.safetensors", bytes);
    return (folder / "batches.safetensors").string();
}

void check_flux_steps(const StateTypes& types, const FluxTolerances& tolerance) {
    const fs::path folder = golden("flux");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "training/expected.json");
    const JsonView expected = document.root(), optimizer = expected["optimizer"];
    const TemporaryFolder flat;
    const std::string batches = with_four_extents(folder / "training/batches.safetensors", flat);
    const FluxConfig config = config_of_folder(
        folder, JsonDocument::read(folder / "transformer/expected.json").root().number("qk_norm_eps"),
        Safetensors::open(batches).entry("t5").shape[2]);
    const int64_t samples = Safetensors::open(batches).entry("timesteps").shape[1];
    Engine engine(flux_model(config), {.types = types,
                                       .training = {.sequences = samples, .seq_len = config.sizes().tokens()},
                                       .optimizer = {.beta1 = optimizer["betas"][0].number(),
                                                     .beta2 = optimizer["betas"][1].number(),
                                                     .eps = optimizer.number("eps"),
                                                     .weight_decay = optimizer.number("weight_decay")},
                                       .max_norm = optimizer.number("max_norm")});
    engine.allocate();
    load_flux(engine.model().parameters(), folder);
    engine.renew_weights();
    for (const JsonView& step : expected["steps"].elements()) {
        const int64_t number = step.integer("step");
        CAPTURE(number);
        const GoldenImages images(batches, config, number - 1);
        engine.compute_gradients(number, step.number("lr"), images.elements(),
                                 [&](int64_t) { return LocalBatch(images.view()); });
        CHECK(engine.update().taken);
        CHECK(relatively_close(engine.scalars().loss, step.number("loss"), tolerance.run_loss));
        CHECK(relatively_close(engine.scalars().grad_norm, step.number("grad_norm"), tolerance.run_norm));
    }
    // the names are those of the file
    const std::map<std::string, std::string> names = names_of_file(folder);
    for (const Storage& storage : engine.model().parameters().storages()) {
        const std::string& name = names.at(storage.params().front().name);
        INFO(name);
        double squares = 0;
        for (const double x : values(storage.master)) squares += x * x;
        CHECK(relatively_close(std::sqrt(squares), expected["final_l2"].number(name), tolerance.final_l2));
    }
    CHECK(engine.used().activations == engine.layer_memory().activations);
}

OwnedTensor golden_tensor(const Safetensors& file, const std::string& name, const Shape& shape) {
    OwnedTensor t(Dtype::f64, shape);
    file.read(name, Tensor(t.view.data, Dtype::f64, {shape.count()}));
    return t;
}

// Shifts, scales and gates of a matrix [count width, width], and what they make of x and y [2, 5, width].
void check_modulation(const Safetensors& parts, const std::string& name, int64_t count) {
    INFO(name);
    constexpr int64_t samples = 2, rows = 5;
    const int64_t width = parts.entry(name + ".vec").shape[1];
    Parameters parameters({Dtype::f64, Dtype::f64});
    parameters.begin_unit();
    const Storage& w = parameters.add({.name = "w", .shape = {count * width, width}});
    const Storage& b = parameters.add({.name = "b", .shape = {count * width}});
    parameters.allocate(false);
    Exec exec;
    const Kernels& k = cpu_kernels();
    k.cast(exec, w.w, golden_tensor(parts, name + ".weight", w.shape()));
    k.cast(exec, b.w, golden_tensor(parts, name + ".bias", b.shape()));
    Frame frame(1 << 20, 64);
    Arena temp(1 << 20, "temporaries");
    const Batch batch;
    StepScalars scalars;
    Ctx c{.exec = exec, .k = k, .frame = frame, .temp = temp, .batch = batch, .scalars = scalars};
    const OwnedTensor vec = golden_tensor(parts, name + ".vec", {samples, width});
    k.activation(exec, vec, vec, Activation::silu);
    const Tensor m = Modulation(w, b).forward(c, vec, Dtype::f64);
    const auto part = [&](int64_t i) { return m.slice_cols(i * width, width); };
    constexpr const char* kinds[] = {"shift", "scale", "gate"};
    for (int64_t i = 0; i < count; ++i) {
        const OwnedTensor dense(Dtype::f64, {samples, width});
        k.cast(exec, dense, part(i));
        CHECK(furthest(values(dense), parts.read_all<double>(
                                          fmt::format("{}.{}{}", name, kinds[i % 3], i / 3 + 1))) <= 1e-14);
    }
    const OwnedTensor x = golden_tensor(parts, name + ".x", {samples * rows, width}),
                      y = golden_tensor(parts, name + ".y", {samples * rows, width}),
                      out(Dtype::f64, x.view.shape);
    const ModulatedNorm norm(1e-6, Output::kept);
    CHECK(furthest(values(norm.forward(c, x, part(0), part(1))),
                   parts.read_all<double>(name + ".modulated")) <= 1e-13);
    GatedSum().forward(c, out, x, y, part(2));
    CHECK(furthest(values(out), parts.read_all<double>(name + ".gated")) <= 1e-14);
}

}  // namespace

TEST_CASE("golden: the pieces of Flux") {
    const fs::path folder = golden("flux");
    if (folder.empty()) return;
    const Safetensors parts = Safetensors::open((folder / "parts/parts.safetensors").string());
    const std::vector<double> times = parts.read_all<double>("timestep_embedding.t");
    std::vector<double> features;
    for (const double time : times)
        for (const double feature : features_of_time(time)) features.push_back(feature);
    CHECK(furthest(features, parts.read_all<double>("timestep_embedding.256")) <= 1e-12);

    FluxConfig config;
    for (const std::array<int64_t, 3>& axes : {std::array<int64_t, 3>{16, 56, 56}, {4, 6, 6}}) {
        config.axes_dim = axes;
        const std::string name = fmt::format("rope_{}_{}_{}", axes[0], axes[1], axes[2]);
        const std::vector<double> ids = parts.read_all<double>(name + ".ids");
        std::vector<double> cosines, sines;
        for (size_t row = 0; row < ids.size() / 3; ++row)
            for (int64_t pair = 0; pair < (axes[0] + axes[1] + axes[2]) / 2; ++pair) {
                const double angle = flux_angle(
                    config, {int64_t(ids[3 * row]), int64_t(ids[3 * row + 1]), int64_t(ids[3 * row + 2])},
                    pair);
                cosines.push_back(std::cos(angle));
                sines.push_back(std::sin(angle));
            }
        CHECK(furthest(cosines, parts.read_all<double>(name + ".cos")) <= 1e-12);
        CHECK(furthest(sines, parts.read_all<double>(name + ".sin")) <= 1e-12);
    }
    check_modulation(parts, "modulation_double", 6);
    check_modulation(parts, "modulation_single", 3);
}

TEST_CASE("golden: Flux in float64") {
    check_transformer(flux_doubles, flux_in_float64);
}

TEST_CASE("golden: Flux in float32") {
    check_transformer(flux_floats, flux_in_float32);
}

TEST_CASE("golden: ten steps of Flux in float64") {
    check_flux_steps(flux_doubles, flux_in_float64);
}

TEST_CASE("golden: ten steps of Flux in float32") {
    check_flux_steps(flux_floats, flux_in_float32);
}
