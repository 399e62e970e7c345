// SPDX-License-Identifier: Apache-2.0
#include "coeus/hub/hub.hpp"

#include "coeus/comm/communicator.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/hub/hub_writer.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/write_safetensors.hpp"

#include <cmath>
#include <optional>
#include <utility>

using namespace coeus;
using Catch::Contains;
using Catch::EndsWith;

namespace {

const HubIgnores nothing_ignored = [](const std::string&) { return false; };

}  // namespace

TEST_CASE("hub: rows of rotated heads", "[hub]") {
    // one head of 6: pairs (0,3) (1,4) (2,5) become (0,1) (2,3) (4,5)
    const int64_t theirs[] = {0, 3, 1, 4, 2, 5};
    for (int64_t head = 0; head < 3; ++head)
        for (int64_t r = 0; r < 6; ++r) CHECK(half_split_row(head * 6 + r, 6) == head * 6 + theirs[r]);
    CHECK(half_split_row(3, 2) == 3);
    // only the first 4 rows of each head are rotated: pairs (0,2) (1,3) become (0,1) (2,3)
    const int64_t rotated[] = {0, 2, 1, 3, 4, 5};
    for (int64_t head = 0; head < 3; ++head)
        for (int64_t r = 0; r < 6; ++r) CHECK(half_split_row(head * 6 + r, 6, 4) == head * 6 + rotated[r]);
}

TEST_CASE("hub: weights are read in our order and type, whole or in parts", "[hub]") {
    const auto folder = test::golden("models/llama3_gqa");
    if (folder.empty()) return;
    const Safetensors weights = Safetensors::open(folder);
    const std::string k_proj = "model.layers.1.self_attn.k_proj.weight";
    std::vector<HubTensor> all;
    for (const std::string& name : weights.names()) {
        const Shape& shape = weights.entry(name).shape;
        all.push_back({.shape = shape, .places = {HubPlace::whole(name, shape, name == k_proj ? 2 : 0)}});
    }
    // 2 key-value heads of 16; all of both, then the part from the sixth row on with some of the columns
    OwnedTensor whole(Dtype::f64, {32, 64}), part(Dtype::f32, {10, 20});
    const auto wanted = [&](Tensor local, int64_t row, int64_t col) {
        for (HubTensor& tensor : all)
            if (tensor.places.front().name == k_proj) tensor.blocks = {{local, row, col}};
        load_hub_weights(folder, all, nothing_ignored);
    };
    wanted(whole, 0, 0);
    wanted(part, 21, 30);
    const auto stored = weights.read_all<double>(k_proj);
    for (int64_t r = 0; r < 32; ++r)
        for (int64_t c = 0; c < 64; ++c)
            REQUIRE(element(whole, r * 64 + c) == stored[size_t(half_split_row(r, 16) * 64 + c)]);
    for (int64_t r = 0; r < 10; ++r)
        for (int64_t c = 0; c < 20; ++c)
            REQUIRE(element(part, r * 20 + c) == element(whole, (21 + r) * 64 + 30 + c));
}

TEST_CASE("hub: weights of another model are refused in words", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
    std::vector<int64_t> integers = {1, 2};
    const auto write = [&](const std::vector<test::NamedTensor>& more) {
        std::vector<test::NamedTensor> tensors = {
            {"a", Tensor(values.data(), Dtype::f32, {3, 2})},
            {"lm_head.weight", Tensor(values.data(), Dtype::f32, {1})},
            {"x.rotary_emb.inv_freq", Tensor(values.data(), Dtype::f32, {1})}};
        tensors.insert(tensors.end(), more.begin(), more.end());
        test::write_safetensors(folder / "model.safetensors", tensors);
    };
    OwnedTensor a(Dtype::f32, {3, 2}), b(Dtype::f32, {2});
    const auto whole = [](const std::string& name, const Shape& shape, Tensor local) {
        return std::vector<HubTensor>{
            {.shape = shape, .places = {HubPlace::whole(name, shape)}, .blocks = {{local}}}};
    };
    const HubIgnores ignores = [](const std::string& name) { return name != "q_norm.weight"; };
    write({});
    load_hub_weights(folder.path(), whole("a", {3, 2}, a), ignores);
    CHECK(element(a, 5) == 6);
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), whole("a", {2, 3}, a), ignores),
                      Contains("is of another model: a is [3, 2] in the file, [2, 3] in this model"));
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), whole("b", {2}, b), ignores),
                      Contains("has no tensor 'b'"));
    write({{"q_norm.weight", Tensor(values.data(), Dtype::f32, {1})}});
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), whole("a", {3, 2}, a), ignores),
                      Contains("it has 'q_norm.weight', which no parameter of this model uses"));
    write({{"b", Tensor(integers.data(), Dtype::i64, {2})}});
    CHECK_THROWS_WITH(
        load_hub_weights(folder.path(), whole("b", {2}, b), ignores),
        Contains("tensor 'b' has elements of type int64, but a floating-point type is expected"));
}

TEST_CASE("hub: places may be parts of a tensor, transposed, or rows interleaved with another parameter's",
          "[hub]") {
    // gate [3, 2] and up [3, 2] of two experts in one tensor [2, 2, 6] each, for x W: gate has the even
    // columns and up the odd ones
    const test::TemporaryFolder folder;
    std::vector<float> both(24), halves(24);
    for (size_t i = 0; i < 24; ++i) both[i] = float(i), halves[i] = float(100 + i);
    test::write_safetensors(folder / "model.safetensors",
                            {{"both", Tensor(both.data(), Dtype::f32, {2, 2, 6})},
                             {"halves", Tensor(halves.data(), Dtype::f32, {4, 6})}});
    OwnedTensor up(Dtype::f64, {6, 2}), last(Dtype::f32, {2, 1}), right(Dtype::f32, {4, 3});
    const auto up_of = [](int64_t expert) {  // our rows are columns of the file
        return HubPlace{.name = "both",
                        .shape = {2, 2, 6},
                        .first_row = expert * 3,
                        .rows = 3,
                        .offset = expert * 12 + 1,
                        .row_stride = 2,
                        .col_stride = 6};
    };
    const std::vector<HubPlace> places = {up_of(0), up_of(1)};
    const HubPlace right_half = {.name = "halves", .shape = {4, 6}, .rows = 4, .offset = 3, .row_stride = 6};
    load_hub_weights(folder.path(),
                     {{.shape = {6, 2}, .places = places, .blocks = {{up}}},
                      {.shape = {6, 2}, .places = places, .blocks = {{last, 2, 1}}},
                      {.shape = {4, 3}, .places = {right_half}, .blocks = {{right}}}},
                     nothing_ignored);
    for (int64_t row = 0; row < 6; ++row)
        for (int64_t col = 0; col < 2; ++col)
            CHECK(element(up, row * 2 + col) == double(row / 3 * 12 + col * 6 + 2 * (row % 3) + 1));
    // the last row of one expert, then the first row of the other
    CHECK(element(last, 0) == element(up, 2 * 2 + 1));
    CHECK(element(last, 1) == element(up, 3 * 2 + 1));
    for (int64_t row = 0; row < 4; ++row)
        for (int64_t col = 0; col < 3; ++col)
            CHECK(element(right, row * 3 + col) == double(100 + row * 6 + 3 + col));
}

TEST_CASE("hub: large transposed matrices are read in tiles", "[hub]") {
    // neither side is a multiple of a tile; each parameter has every other row, every third, ...
    const test::TemporaryFolder folder;
    constexpr int64_t rows = 1030, cols = 67, most = 6;
    std::vector<float> values(size_t(rows * most * cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    test::write_safetensors(folder / "model.safetensors",
                            {{"a", Tensor(values.data(), Dtype::f32, {cols, rows * most})}});
    for (int64_t apart = 1; apart <= most; ++apart) {
        CAPTURE(apart);
        const HubPlace place = {.name = "a",
                                .shape = {cols, rows * most},
                                .rows = rows,
                                .offset = 3,
                                .row_stride = apart,
                                .col_stride = rows * most};
        OwnedTensor whole(Dtype::f32, {rows, cols}), part(Dtype::f64, {700, 40});
        load_hub_weights(folder.path(),
                         {{.shape = {rows, cols}, .places = {place}, .blocks = {{whole}, {part, 290, 20}}}},
                         nothing_ignored);
        int64_t wrong = 0;
        const auto expected = [&](int64_t row, int64_t col) {
            return double(float(3 + row * apart + col * rows * most));
        };
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t col = 0; col < cols; ++col)
                wrong += element(whole, row * cols + col) != expected(row, col);
        for (int64_t row = 0; row < 700; ++row)
            for (int64_t col = 0; col < 40; ++col)
                wrong += element(part, row * 40 + col) != expected(290 + row, 20 + col);
        CHECK(wrong == 0);
    }
}

TEST_CASE("hub: places must contain each row of a parameter exactly once", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
    test::write_safetensors(folder / "model.safetensors", {{"a", Tensor(values.data(), Dtype::f32, {3, 2})}});
    OwnedTensor a(Dtype::f32, {3, 2});
    const auto load = [&](std::vector<std::pair<int64_t, int64_t>> runs) {  // first row, number of rows
        HubTensor tensor{.shape = {3, 2}, .places = {}, .blocks = {{a}}};
        for (const auto& [first, rows] : runs)
            tensor.places.push_back({.name = "a",
                                     .shape = {3, 2},
                                     .first_row = first,
                                     .rows = rows,
                                     .offset = first * 2,
                                     .row_stride = 2});
        load_hub_weights(folder.path(), {tensor}, nothing_ignored);
    };
    load({{2, 1}, {0, 2}});
    for (int64_t i = 0; i < 6; ++i) CHECK(element(a, i) == double(i + 1));
    using Runs = std::vector<std::pair<int64_t, int64_t>>;
    for (const Runs& runs :
         {Runs{{0, 2}}, Runs{{1, 2}}, Runs{{0, 1}, {2, 1}}, Runs{{0, 2}, {1, 2}}, Runs{{0, 3}, {3, 1}}})
        CHECK_THROWS_WITH(load(runs), Contains("do not have each of its rows once"));
    // a parameter for which a folder has no place is zero
    load_hub_weights(folder.path(), {{.shape = {3, 2}, .places = {}, .blocks = {{a}}}},
                     [](const std::string& name) { return name == "a"; });
    for (int64_t i = 0; i < 6; ++i) CHECK(element(a, i) == 0);
}

TEST_CASE("hub: elements that are not finite are refused with tensor and position, or kept", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
    OwnedTensor all(Dtype::f64, {3, 2}), part(Dtype::bf16, {1, 1});
    const auto load = [&](Tensor to, int64_t row, int64_t col, NotFinite infinite) {
        test::write_safetensors(folder / "model.safetensors",
                                {{"w", Tensor(values.data(), Dtype::f32, {3, 2})}});
        load_hub_weights(
            folder.path(),
            {{.shape = {3, 2}, .places = {HubPlace::whole("w", {3, 2})}, .blocks = {{to, row, col}}}},
            nothing_ignored, infinite);
    };
    for (const float bad : {HUGE_VALF, -HUGE_VALF, float(NAN)}) {
        values[5] = bad;
        CHECK_THROWS_WITH(load(all, 0, 0, NotFinite::refuse),
                          Contains("tensor 'w' has an element that is not finite, in element 5"));
        load(all, 0, 0, NotFinite::keep);
        CHECK_FALSE(std::isfinite(element(all, 5)));
        CHECK_THROWS_WITH(load(part, 2, 1, NotFinite::refuse), Contains("in element 5"));
        load(part, 1, 1, NotFinite::refuse);  // another part of it
        CHECK(element(part, 0) == 4);
    }
}

TEST_CASE("hub: a tensor that is left out as a copy is compared with what it copies", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> table = {1, 2, 3, 4, 5, 6}, head = table;
    std::vector<bf16> rounded = {bf16(1.F), bf16(2.F), bf16(3.F), bf16(4.F), bf16(5.F), bf16(6.F)};
    const Shape shape = {3, 2};
    const std::vector<HubTensor> parameters = {{.shape = shape, .places = {HubPlace::whole("table", shape)}}};
    const HubCopies copies = [](const std::string& name) {
        return name == "head" ? std::optional(HubCopy{"table", "do this"}) : std::nullopt;
    };
    const auto check = [&](const std::vector<test::NamedTensor>& tensors) {
        test::write_safetensors(folder / "model.safetensors", tensors);
        check_hub_copies(HubWeights::open(folder.path()), parameters, copies);
    };
    const test::NamedTensor of_table = {"table", Tensor(table.data(), Dtype::f32, shape)};
    check({of_table});
    check({of_table, {"head", Tensor(head.data(), Dtype::f32, shape)}});
    check({of_table, {"head", Tensor(rounded.data(), Dtype::bf16, shape)}});  // of another type, but equal
    head[3] = 4.5F;
    CHECK_THROWS_WITH(
        check({of_table, {"head", Tensor(head.data(), Dtype::f32, shape)}}),
        Contains("the model has one tensor for 'head' and 'table', but they differ, first in row "
                 "1; do this"));
    CHECK_THROWS_WITH(check({of_table, {"head", Tensor(head.data(), Dtype::f32, {2, 3})}}),
                      Contains("'head' must be a copy of 'table', but is [2, 3], not [3, 2]; do this"));
    // not left out: it is a parameter
    test::write_safetensors(folder / "model.safetensors",
                            {of_table, {"head", Tensor(head.data(), Dtype::f32, shape)}});
    check_hub_copies(HubWeights::open(folder.path()),
                     {{.shape = shape, .places = {HubPlace::whole("head", shape)}}}, copies);
}

TEST_CASE("hub: a tensor that the layout keeps in float32 is not rounded with the others", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> values = {1 + 0x1p-20F, 2, 3};
    const Communicator self = Communicator::self();
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32, Dtype::f64}) {
        const std::string path = folder / std::string(name_of(dtype));
        HubPlace kept = HubPlace::whole("a.kept", {3});
        kept.keeps_f32 = true;
        HubWriter writer(
            path, Json::object(),
            {{{3}, {kept}}, {{3}, {HubPlace::whole("b", {3})}}, {{3}, {HubPlace::whole("c", {3})}}}, dtype,
            {}, alone());
        for (size_t i = 0; i < 3; ++i) writer.write(i, Tensor(values.data(), Dtype::f32, {3, 1}), 0, 0);
        writer.publish();
        const Safetensors read = Safetensors::open(path);
        const bool is_wider = dtype == Dtype::f64;
        CHECK(read.entry("a.kept").dtype == (is_wider ? Dtype::f64 : Dtype::f32));
        CHECK((read.read_all<float>("a.kept") == values));
        for (const char* name : {"b", "c"}) {
            CHECK(read.entry(name).dtype == dtype);
            CHECK(read.read_all<float>(name)[2] == 3);
        }
        CHECK(writer.bytes() == (is_wider ? 24 : 12) + 6 * size_of(dtype));
    }
}

TEST_CASE("hub: config.json says which tokens begin, end and pad a text, or that none does", "[hub]") {
    const auto written = [](const Json& config, const HubTokenizer& tokenizer) {
        const test::TemporaryFolder folder;
        write_hub_config(folder.path(), config, Dtype::f32, tokenizer);
        const JsonDocument document = JsonDocument::read(folder / "config.json");
        std::string ids;
        for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
            ids += document.root()[key].value().text() + " ";
        return ids;
    };
    HubTokenizer tokenizer;
    const Json own = Json::object().set("bos_token_id", 5);  // of a family whose class refuses null
    CHECK(written(Json::object(), tokenizer) == "null null null ");
    CHECK(written(own, tokenizer) == "5 null null ");
    tokenizer.bos_id = 7;
    tokenizer.eos_id = 8;
    CHECK(written(own, tokenizer) == "7 8 null ");
}

TEST_CASE("hub: a folder with weights of another kind says which, and what to do", "[hub]") {
    const auto refusal = [](const std::string& name) {
        const test::TemporaryFolder folder;
        test::write_file(folder / "config.json", "{}");
        if (!name.empty()) test::write_file(folder / name, "x");
        try {
            HubWeights::open(folder.path());
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    CHECK_THAT(refusal(""), EndsWith("has neither model.safetensors nor model.safetensors.index.json"));
    for (const char* name :
         {"pytorch_model.bin", "consolidated.00.pth", "model.gguf", "tf_model.h5", "flax_model.msgpack"})
        CHECK_THAT(refusal(name),
                   Contains(std::string("; ") + name +
                            ", which is there, is of a kind that Coeus does not read. To convert "
                            "it, in Python with transformers: "
                            "AutoModelForCausalLM.from_pretrained("));
    CHECK_THAT(refusal("consolidated.safetensors"),
               Contains("; consolidated.safetensors, which is there, has another name: rename it"));
}
