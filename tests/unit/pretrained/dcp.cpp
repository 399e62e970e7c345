// SPDX-License-Identifier: Apache-2.0
// Folders of PyTorch's distributed checkpoints, made by hand. Tensors are assembled from parts of any
// division, and contradictions are refused with a message.
#include "coeus/pretrained/dcp.hpp"

#include "coeus/device/memory.hpp"
#include "support/catch.hpp"
#include "support/dcp_writer.hpp"
#include "support/pickle_writer.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <functional>

using namespace coeus;
using namespace coeus::test;
using namespace coeus::test::pickled;
using Catch::Contains;

namespace {

int64_t wrong_elements(const DcpFolder& folder, const DcpMade& tensor) {
    const Shape shape = folder.entry(tensor.name).shape;
    int64_t wrong = 0;
    for (const int64_t step : {int64_t(1), int64_t(3), shape.rows()})  // rows per read
        for (int64_t first = 0; first < shape.rows(); first += step) {
            const int64_t rows = std::min(step, shape.rows() - first);
            const OwnedTensor out(Dtype::f32, {rows, shape.cols()});
            folder.read(tensor.name, out, first);
            for (int64_t i = 0; i < rows * shape.cols(); ++i)
                wrong +=
                    !(element(out, i) == dcp_value(tensor.shape, first + i / shape.cols(), i % shape.cols()));
        }
    return wrong;
}

std::string refusal(const std::vector<DcpMade>& tensors,
                    const std::function<void(std::string&)>& change = {}) {
    const TemporaryFolder folder;
    write_dcp(folder.path(), tensors, change);
    try {
        const DcpFolder read(folder.path().string());
        for (const DcpMade& tensor : tensors) wrong_elements(read, tensor);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}

}  // namespace

TEST_CASE("dcp: tensors are assembled from parts of any division", "[dcp]") {
    const std::vector<DcpMade> tensors = {
        {.name = "whole", .shape = {7, 5}, .parts = {{{0, 0}, {7, 5}}}},
        {.name = "rows",
         .shape = {7, 5},
         .parts = {{{5, 0}, {2, 5}, "__2_0.distcp"}, {{0, 0}, {3, 5}}, {{3, 0}, {2, 5}, "__1_0.distcp"}}},
        {.name = "columns", .shape = {7, 5}, .parts = {{{0, 0}, {7, 3}}, {{0, 3}, {7, 2}, "__1_0.distcp"}}},
        {.name = "both",
         .shape = {7, 5},
         .parts = {{{0, 0}, {4, 3}}, {{0, 3}, {4, 2}}, {{4, 0}, {3, 3}}, {{4, 3}, {3, 2}}}},
        // one long part next to two short ones
        {.name = "uneven", .shape = {7, 5}, .parts = {{{0, 0}, {7, 2}}, {{0, 2}, {1, 3}}, {{1, 2}, {6, 3}}}},
        {.name = "transposed",
         .shape = {7, 5},
         .parts = {{{0, 0}, {3, 5}, "__0_0.distcp", {1, 3}}, {{3, 0}, {4, 5}, "__0_0.distcp", {1, 4}}}},
        {.name = "vector", .shape = {7}, .parts = {{{0}, {4}}, {{4}, {3}, "__1_0.distcp"}}},
        // a rank without rows
        {.name = "empty part", .shape = {2}, .parts = {{{0}, {2}}, {{2}, {0}}}},
    };
    const TemporaryFolder folder;
    write_dcp(folder.path(), tensors);
    CHECK(DcpFolder::is_at(folder.path().string()));
    CHECK_FALSE(DcpFolder::is_at((folder / ".metadata").string()));
    const DcpFolder read(folder.path().string());
    CHECK(read.names().size() == tensors.size());
    for (const DcpMade& tensor : tensors) {
        CAPTURE(tensor.name);
        CHECK(read.entry(tensor.name).dtype == Dtype::f32);
        CHECK(wrong_elements(read, tensor) == 0);
    }
    read.release();
    CHECK(wrong_elements(read, tensors[3]) == 0);
    CHECK_FALSE(read.has("w"));
    CHECK_THROWS_WITH(read.entry("hole"), Contains("has no tensor 'hole'; the nearest name is 'whole'"));
}

TEST_CASE("dcp: numbers", "[dcp]") {
    const TemporaryFolder folder;
    write_dcp(folder.path(), {{.name = "step", .shape = {}, .parts = {{{}, {}}}},
                              {.name = "many", .shape = {3}, .parts = {{{0}, {3}}}}});
    const DcpFolder read(folder.path().string());
    CHECK(read.integer("step") == 0);  // of 0.5
    CHECK_FALSE(read.integer("absent"));
    CHECK_THROWS_WITH(read.integer("many"), Contains("'many' of shape [3] is not a number"));
    const OwnedTensor one(Dtype::f32, {1});
    CHECK_THROWS_WITH(read.read("step", one, 0), Contains("only vectors and matrices can be read"));
}

TEST_CASE("dcp: parts that do not make up the tensor are refused", "[dcp]") {
    const auto with = [](const std::vector<DcpPart>& parts) {
        return refusal({{.shape = {4, 4}, .parts = parts}});
    };
    CHECK_THAT(with({{{0, 0}, {4, 4}}}), Contains("read without complaint"));
    CHECK_THAT(with({}), Contains("the parts of tensor 'w' have 0 of its 16 elements"));
    CHECK_THAT(with({{{0, 0}, {3, 4}}}), Contains("have 12 of its 16 elements"));
    CHECK_THAT(with({{{0, 0}, {2, 4}}, {{3, 0}, {1, 4}}}), Contains("have 12 of its 16 elements"));
    CHECK_THAT(with({{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}),
               Contains("part of shape [2, 4] at [2, 0], which overlaps"));
    // the right number of elements
    CHECK_THAT(with({{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}), Contains("overlaps another part"));
    CHECK_THAT(with({{{0, 0}, {4, 2}}, {{0, 2}, {1, 2}}, {{1, 2}, {1, 2}}, {{2, 1}, {2, 2}}}),
               Contains("overlaps another part"));
    CHECK_THAT(with({{{0, 0}, {5, 4}}}), Contains("goes beyond it"));
    CHECK_THAT(with({{{2, 0}, {4, 4}}}), Contains("goes beyond it"));
    CHECK_THAT(with({{{0}, {16}}}), Contains("has another number of extents"));
    CHECK_THAT(with({{{-1, 0}, {4, 4}}}), Contains("a number is missing, or negative"));
    CHECK_THAT(refusal({{.shape = {1, 1, 1, 1, 1}, .parts = {}}}), Contains("more than four extents"));
}

TEST_CASE("dcp: streams that do not match the part are refused", "[dcp]") {
    const auto with = [](const DcpPart& part) { return refusal({{.shape = {4, 4}, .parts = {part}}}); };
    const DcpPart good = {{0, 0}, {4, 4}};
    DcpPart part = good;
    part.storage = "BFloat16Storage";
    CHECK_THAT(with(part), Contains("a storage of another type than torch.float32"));
    part = good;
    part.stored_sizes = {2, 8};
    CHECK_THAT(with(part), Contains("a part of another shape"));
    part = good;
    part.missing_bytes = 4;
    CHECK_THAT(with(part), Contains("a storage that is shorter than its tensor"));
    for (const std::string name : {"../x.distcp", "/etc/passwd", "..", ""}) {
        part = good;
        part.file = name;
        CHECK_THAT(with(part), Contains("is not the name of a file next to it"));
    }
    CHECK_THAT(refusal({{.dtype = "int8", .shape = {4, 4}, .parts = {good}}}),
               Contains("tensor 'w' has the unknown type torch.int8"));
    CHECK_THAT(refusal({{.dtype = "complex64", .shape = {4, 4}, .parts = {good}}}),
               Contains("it names torch.complex64, which such a file does not need"));
    // a field that asks for more than the file has
    const auto replaced = [](const Code& from, const Code& to) {
        return [=](std::string& metadata) {
            const size_t at = metadata.find(from);
            REQUIRE(at != std::string::npos);
            metadata.replace(at, from.size(), to);
        };
    };
    const std::vector<DcpMade> tensors = {{.shape = {4, 4}, .parts = {good}}};
    CHECK_THAT(refusal(tensors, replaced(text("offset") + integer(0), text("offset") + integer(100))),
               Contains("is truncated: a part of "));
    CHECK_THAT(refusal(tensors, replaced(text("offset") + integer(0), text("offset") + integer(INT64_MAX))),
               Contains("is truncated: a part of "));
    CHECK_THAT(refusal(tensors, replaced(text("sizes") + dcp_size({4, 4}),
                                         text("sizes") + dcp_size({int64_t(1) << 40, int64_t(1) << 40}))),
               Contains("a shape is too large to exist"));
    CHECK_THAT(refusal(tensors, replaced(text("storage_data"), text("storage_dots"))),
               Contains("not in the format that PyTorch writes: a "
                        "torch.distributed.checkpoint.metadata.Metadata has no storage_data"));
    CHECK_THAT(refusal(tensors, replaced(text("fqn") + text("w"), text("fqn") + text("v"))),
               Contains("no file has the part of 'w' at [0, 0]"));
    CHECK_THAT(refusal(tensors, replaced(text("length"), text("transform_descriptors") +
                                                             list({text("zstd")}) + text("length"))),
               Contains("'w' is compressed, which Coeus cannot read"));
}
