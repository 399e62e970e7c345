// SPDX-License-Identifier: Apache-2.0
// Forms of config.json that open decoders may have give the losses that transformers computes for them in
// float64: RoPE of older files, windows and lists of layers, heads of their own, absent keys and others
// (tests/data/hub_variants, whose make.py made them).
#include "coeus/file/json.hpp"
#include "coeus/file/stored_zip.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"
#include "support/model.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

// Relative. Both add a few thousand products in float64, in other orders.
constexpr double tolerance_of_losses = 1e-12;
constexpr int64_t length_of_text = 24;

// make.py: numbers
std::vector<uint32_t> numbers_below_a_million(const std::string& name, int64_t count) {
    const uint32_t first = crc32_of(std::as_bytes(std::span(name)));
    std::vector<uint32_t> all;
    for (int64_t i = 0; i < count; ++i) {
        uint32_t x = uint32_t(i) + first;
        x = (x ^ (x >> 16)) * 0x7feb352d;
        x = (x ^ (x >> 15)) * 0x846ca68b;
        all.push_back((x ^ (x >> 16)) >> 12);
    }
    return all;
}

// make.py: weights
void write_variant(const fs::path& folder, const Json& config, const DecoderConfig& model) {
    FolderTensors tensors;
    for (const auto& [name, shape] : folder_shapes(model)) {
        const Tensor tensor = tensors.add(name, Dtype::f32, shape);
        const std::vector<uint32_t> numbers = numbers_below_a_million(name, shape.count());
        for (int64_t i = 0; i < shape.count(); ++i)
            set_element(tensor, i,
                        (double(numbers[size_t(i)]) - (1 << 19)) / (1 << 21) + (shape.rank == 1 ? 1 : 0));
    }
    tensors.write(folder, config);
}

double loss_of_variant(const fs::path& folder, const DecoderConfig& config) {
    TestModel model(config, {Dtype::f64, Dtype::f64}, {1, length_of_text});
    Pretrained(folder).load(model.decoder);
    model.renew_weights();
    TestBatch batch(1, length_of_text, 1);
    std::vector<int64_t> tokens;
    for (const uint32_t number : numbers_below_a_million("tokens", length_of_text + 1))
        tokens.push_back(number % config.vocab);
    std::copy_n(tokens.begin(), length_of_text, batch.tokens.begin());
    const std::vector<double> logits = values(model.logits(batch));
    double sum = 0;
    for (int64_t t = 0; t < length_of_text; ++t) {
        const auto row = std::span(logits).subspan(size_t(t * config.vocab), size_t(config.vocab));
        double exponentials = 0;
        for (const double logit : row) exponentials += std::exp(logit);
        sum += std::log(exponentials) - row[size_t(tokens[size_t(t) + 1])];
    }
    return sum / double(length_of_text);
}

Json config_of_variant(const JsonView& configs, const JsonView& variant) {
    const Json usual = configs[variant.string("config")].value();
    const std::vector<std::string> left_out = variant["left_out"].strings();
    Json config = Json::object();
    for (const auto& [key, value] : *usual.as_object())
        if (std::ranges::find(left_out, key) == left_out.end()) config.set(key, value);
    for (const auto& [key, value] : variant["changes"].items()) config.set(key, value.value());
    return config;
}

}  // namespace

TEST_CASE("forms of config.json of open decoders give the losses of transformers") {
    const JsonDocument document =
        JsonDocument::read(fs::path(paths::source()) / "tests/data/hub_variants/variants.json");
    std::map<std::string, int> of_family;
    int variants = 0;
    for (const JsonView& variant : document.root()["variants"].elements()) {
        CAPTURE(variant.string("config"), variant.string("name"));
        const TemporaryFolder folder;
        const Json json = config_of_variant(document.root()["configs"], variant);
        write_json(json, folder / "config.json");
        const HubModel read = read_hub_model(folder.path());
        CHECK(read.unknown_keys.empty());
        write_variant(folder.path(), json, read.config);
        CHECK(relatively_close(loss_of_variant(folder.path(), read.config), variant.number("loss"),
                               tolerance_of_losses));
        hub_config_of(read.config);  // throws if the model cannot be written
        ++of_family[variant.string("config")];
        ++variants;
    }
    CHECK(variants >= 100);
    CHECK(of_family.size() >= 20);
    for (const auto& [family, number] : of_family) CHECK(number >= 3);
}
