// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders of one file and of several, written by groups of 1, 2 or 4 ranks that divide the
// arrays by rows or by columns. The bytes do not depend on who writes them, nor the elements on the number of
// files.
#include "coeus/device/memory.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/hub/hub_writer.hpp"
#include "mpi/io/groups.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

HubEntry whole(const char* name, const Shape& shape, int64_t rotated_heads = 0, int64_t rotated_rows = 0) {
    HubPlace place = HubPlace::whole(name, shape, rotated_heads);
    place.rotated_rows = rotated_rows;
    return {shape, {place}};
}
// Two parameters [8, 10] of two experts share one tensor [2, 10, 8], transposed; each has every other column.
HubEntry every_other(int64_t first) {
    HubEntry entry = {{8, 10}, {}};
    for (int64_t expert = 0; expert < 2; ++expert)
        entry.places.push_back({.name = "gate_up",
                                .shape = {2, 10, 8},
                                .first_row = expert * 4,
                                .rows = 4,
                                .offset = expert * 80 + first,
                                .row_stride = 2,
                                .col_stride = 8});
    return entry;
}
// Rows of one parameter in two tensors: transposed in one, not in the other.
HubEntry in_two() {
    return {{9, 5},
            {{.name = "turned", .shape = {5, 6}, .rows = 6, .row_stride = 1, .col_stride = 6},
             {.name = "rest", .shape = {3, 5}, .first_row = 6, .rows = 3, .row_stride = 5}}};
}

const std::vector<HubEntry> entries = {whole("embed", {300, 20}),
                                       whole("q_proj", {24, 10}, 2),
                                       whole("norm", {20}),
                                       whole("k_proj", {12, 10}, 1, 8),
                                       whole("down", {17, 33}),
                                       whole("head", {300, 20}),
                                       every_other(0),
                                       every_other(1),
                                       in_two()};
constexpr size_t tensors_there = 9;

double value(size_t entry, int64_t index) {
    return double((int64_t(entry) * 31 + index * 13) % 251);  // exact in 16 bits
}

struct HubPart {
    int64_t first, count;
};
HubPart part_of(int64_t n, const Communicator& group) {
    const int64_t each = div_ceil(n, group.size()), first = std::min(n, group.rank() * each);
    return {first, std::min(each, n - first)};
}

void write_all(HubWriter& writer, const Communicator& group, Dtype dtype, bool by_columns) {
    for (size_t i = 0; i < entries.size(); ++i) {
        const Shape& shape = entries[i].shape;
        const bool columns = by_columns && shape.rank > 1;
        const HubPart rows = columns ? HubPart{0, shape.rows()} : part_of(shape.rows(), group);
        const HubPart cols = columns ? part_of(shape.cols(), group) : HubPart{0, shape.cols()};
        if (rows.count == 0 || cols.count == 0) continue;
        const OwnedTensor local(dtype, {rows.count, cols.count});
        for (int64_t r = 0; r < rows.count; ++r)
            for (int64_t c = 0; c < cols.count; ++c)
                set_element(local, r * cols.count + c,
                            value(i, (rows.first + r) * shape.cols() + cols.first + c));
        writer.write(i, local, rows.first, cols.first);
    }
    writer.publish();
}

std::map<std::string, std::string> contents(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder))
        files[entry.path().filename().string()] = read_file(entry.path());
    return files;
}

int64_t wrong_elements(const std::string& folder, Dtype dtype) {
    const Safetensors weights = Safetensors::open(folder);
    CHECK(weights.names().size() == tensors_there);
    int64_t wrong = 0;
    for (size_t i = 0; i < entries.size(); ++i)
        for (const HubPlace& place : entries[i].places) {
            CHECK(weights.entry(place.name).dtype == dtype);
            CHECK(weights.entry(place.name).shape == place.shape);
            const std::vector<double> stored = weights.read_all<double>(place.name);
            const int64_t cols = entries[i].shape.cols();
            for (int64_t r = place.first_row; r < place.first_row + place.rows; ++r) {
                const int64_t own = r - place.first_row;
                const int64_t width = place.rotated_heads > 0 ? place.rows / place.rotated_heads : 0;
                const int64_t rotated = place.rotated_rows > 0 ? place.rotated_rows : width;
                const int64_t theirs = width > 0 ? half_split_row(own, width, rotated) : own;
                for (int64_t c = 0; c < cols; ++c) {
                    const int64_t at = place.offset + theirs * place.row_stride + c * place.col_stride;
                    wrong += !(stored[size_t(at)] == value(i, r * cols + c));
                }
            }
        }
    return wrong;
}

// No file of weights is larger than its limit, unless it holds a single tensor that is.
void check_division(const std::string& folder, int64_t file_bytes, size_t files, int64_t bytes) {
    const Safetensors weights = Safetensors::open(folder);
    std::map<size_t, std::pair<int64_t, int>> of_file;  // bytes and tensors
    for (const std::string& name : weights.names()) {
        const Safetensors::Entry& entry = weights.entry(name);
        auto& [sum, tensors] = of_file[entry.file];
        sum += entry.shape.count() * size_of(entry.dtype);
        ++tensors;
    }
    CHECK(of_file.size() == files);
    for (const auto& [file, held] : of_file) CHECK((held.first <= file_bytes || held.second == 1));
    const fs::path index = fs::path(folder) / "model.safetensors.index.json";
    CHECK(fs::exists(index) == (files > 1));
    if (files == 1) return;
    const JsonDocument document = JsonDocument::read(index);
    CHECK(document.root()["metadata"].integer("total_size") == bytes);
    CHECK(document.root()["weight_map"].size() == tensors_there);
    const std::string last = fmt::format("model-{0:05}-of-{0:05}.safetensors", files);
    CHECK(document.root()["weight_map"].string("turned") == last);
}

}  // namespace

TEST_CASE("Hugging Face folders of any number of ranks are the same bytes, in one file or in several") {
    const Communicator world = Communicator::world("world");
    const Json config = Json::object().set("hidden_size", 20);
    struct Division {
        int64_t file_bytes;
        size_t files;
    };
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
        // all in one file; the large ones alone and the small ones together; each alone
        for (const auto& [file_bytes, files] :
             {Division{HubWriter::usual_file_bytes, 1}, Division{1200 * size_of(dtype), 5}, Division{1, 9}}) {
            INFO(name_of(dtype) << ", " << files << " files");
            const SharedFolder folder(world);
            std::map<std::string, std::string> first;
            for (int size = 1; size <= world.size(); size *= 2)
                for (const bool by_columns : {false, true}) {
                    INFO(size << (by_columns ? " ranks by columns" : " ranks by rows"));
                    const Group group(world, size);
                    const std::string path = fmt::format("{}/{} {}", folder.path, size, by_columns);
                    if (group.takes_part && group.number == 0) {
                        HubWriter writer(path, config, entries, dtype, {.bos_id = 7, .eos_id = 3}, group.comm,
                                         file_bytes);
                        write_all(writer, group.comm, dtype, by_columns);
                        CHECK_FALSE(fs::exists(path + ".part"));
                    }
                    world.barrier();
                    const auto written = contents(path);
                    if (first.empty()) first = written;
                    CHECK(written.size() == files + (files > 1) + 2);
                    CHECK((written == first));
                    CHECK(wrong_elements(path, dtype) == 0);
                    if (size == 1) check_division(path, file_bytes, files, 13146 * size_of(dtype));
                }
        }
    }
}

TEST_CASE("a Hugging Face folder names the tokens at the begin and end of its texts") {
    const Communicator world = Communicator::world("world");
    const SharedFolder folder(world);
    const std::string own = R"({"eos_token_id": [5, 6], "temperature": 0.6})";
    if (world.rank() == 0) {
        fs::create_directories(folder.path + "/assets");
        write_file(folder.path + "/assets/tokenizer.json", "{}");
        write_file(folder.path + "/bare.json", "{}");
    }
    const auto write = [&](const std::string& name, const HubTokenizer& tokenizer) {
        const std::string path = folder.path + "/" + name;
        // only the tokenizer of rank 0 counts
        HubWriter writer(path, Json::object(), entries, Dtype::f32,
                         world.rank() == 0 ? tokenizer : HubTokenizer(), world);
        write_all(writer, world, Dtype::f32, false);
        return path;
    };
    const auto ids = [](const std::string& file) {
        const JsonDocument document = JsonDocument::read(file);
        return std::pair(document.root().integer("bos_token_id", -1),
                         document.root().integer("eos_token_id", -1));
    };
    const std::string assets = folder.path + "/assets";
    const std::string both = write("both", {.folder = assets, .bos_id = 7, .eos_id = 0});
    CHECK(ids(both + "/config.json") == std::pair<int64_t, int64_t>(7, 0));
    CHECK(ids(both + "/generation_config.json") == std::pair<int64_t, int64_t>(7, 0));
    CHECK(fs::exists(both + "/tokenizer.json"));
    const std::string end = write("end", {.folder = assets + "/tokenizer.json", .eos_id = 3});
    CHECK(ids(end + "/config.json") == std::pair<int64_t, int64_t>(-1, 3));
    CHECK(ids(end + "/generation_config.json") == std::pair<int64_t, int64_t>(-1, 3));
    CHECK(fs::exists(end + "/tokenizer.json"));
    // null, since transformers would take 1 and 2 if there were no key
    CHECK(JsonDocument::read(end + "/config.json").root()["bos_token_id"].is_null());
    CHECK_FALSE(fs::exists(end + "/bare.json"));
    const std::string named = write("named", {.folder = folder.path + "/bare.json", .eos_id = 3});
    CHECK(read_file(named + "/bare.json") == "{}");
    const std::string none = write("none", {});
    CHECK_FALSE(fs::exists(none + "/generation_config.json"));
    CHECK(JsonDocument::read(none + "/config.json").root()["eos_token_id"].is_null());
    // the file that the model was published with stays as it is
    if (world.rank() == 0) write_file(assets + "/generation_config.json", own);
    world.barrier();
    const std::string published = write("published", {.folder = assets, .bos_id = 7, .eos_id = 3});
    CHECK(read_file(published + "/generation_config.json") == own);
}

TEST_CASE("errors of a Hugging Face folder are errors on all ranks, and no file is left") {
    const Communicator world = Communicator::world("world");
    const SharedFolder folder(world);
    const auto message_of = [&](const std::string& path, int64_t rows) {
        try {
            HubWriter(path, Json::object(), {whole("huge", {rows, 1 << 20})}, Dtype::f32, {}, world);
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
        return std::string("made");
    };
    CHECK(count_of("already exists", message_of(folder.path, 1)) == 1);
    CHECK(count_of("needed in", message_of(folder.path + "/new", int64_t(1) << 36)) == 1);
    world.barrier();
    CHECK_FALSE(fs::exists(folder.path + "/new.part"));
    CHECK_FALSE(fs::exists(folder.path + ".part"));
}
