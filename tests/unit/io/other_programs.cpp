// SPDX-License-Identifier: Apache-2.0
// Checkpoints as h5ls, h5dump and h5py see them. Names, shapes, types and values are as documented in
// doc/checkpoint.md, and the Python programs in that document work unchanged.
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <filesystem>
#include <sstream>

using namespace coeus;
using Catch::Contains;
using test::CheckpointState;
using test::record_of;
namespace fs = std::filesystem;

namespace {

bool there(const std::string& command, const char* what) {
    if (test::run_shell(command).exit_code == 0) return true;
    test::skip(std::string("there is no ") + what);
    return false;
}

/// Lines "name  description" of h5ls -r, with one space between.
std::map<std::string, std::string> listed(const std::string& path) {
    std::map<std::string, std::string> all;
    for (const std::string& line : test::lines_of(test::run_shell("h5ls -r '" + path + "'").output)) {
        std::istringstream words(line);
        std::string name, rest, word;
        words >> name;
        while (words >> word) rest += (rest.empty() ? "" : " ") + word;
        all[name] = rest;
    }
    return all;
}

/// Writes the n-th program of doc/checkpoint.md into a file.
std::string program_of_document(const test::TemporaryFolder& folder, int number) {
    const std::string text = test::read_file(fs::path(test::paths::source()) / "doc/checkpoint.md"),
                      fence = "```python\n";
    size_t begin = 0;
    for (int i = 0; i <= number; ++i) begin = text.find(fence, begin) + fence.size();
    const fs::path path = folder / fmt::format("program{}.py", number);
    test::write_file(path, text.substr(begin, text.find("```", begin) - begin));
    return path.string();
}

void flip(const std::string& path, int64_t at) {
    std::string bytes = test::read_file(path);
    bytes[size_t(at)] = char(bytes[size_t(at)] ^ 4);
    test::write_file(path, bytes);
}

}  // namespace

TEST_CASE("other programs: h5ls lists a checkpoint as documented", "[checkpoint]") {
    if (!there("h5ls --version", "h5ls (Debian: hdf5-tools)")) return;
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState saved(Dtype::f32);
    const std::string path = CheckpointStore(folder.path(), 0, self).save(record_of(3), saved.tensors).path;
    std::map<std::string, std::string> expected;
    for (const char* group : {"/", "/train", "/model", "/optimizer", "/optimizer/exp_avg",
                              "/optimizer/exp_avg_sq", "/checksum", "/checksum/model", "/checksum/optimizer",
                              "/checksum/optimizer/exp_avg", "/checksum/optimizer/exp_avg_sq"})
        expected[group] = "Group";
    for (const CheckpointTensor& tensor : saved.tensors) {
        const Shape& shape = tensor.shape;
        expected["/" + tensor.path] = shape.rank == 1 ? fmt::format("Dataset {{{}}}", shape[0])
                                                      : fmt::format("Dataset {{{}, {}}}", shape[0], shape[1]);
        expected["/checksum/" + tensor.path] = "Dataset {1}";
    }
    CHECK(listed(path) == expected);
}

TEST_CASE("other programs: h5dump shows attributes and values as documented", "[checkpoint]") {
    if (!there("h5dump --version", "h5dump (Debian: hdf5-tools)")) return;
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState saved(Dtype::bf16);
    const std::string path = CheckpointStore(folder.path(), 0, self).save(record_of(3), saved.tensors).path;
    const auto dump = [&](const std::string& what) {
        const auto shown = test::run_shell("h5dump " + what + " '" + path + "'");
        CHECK(shown.exit_code == 0);
        return shown.output;
    };
    CHECK_THAT(dump("-a /format"), Contains("\"coeus checkpoint\"") && Contains("H5T_CSET_UTF8"));
    CHECK_THAT(dump("-a /format_version"), Contains("(0): 1") && Contains("H5T_STD_I64LE"));
    const std::pair<const char*, const char*> numbers[] = {
        {"step", "(0): 3"}, {"tokens_seen", "(0): 12288"}, {"seed", "(0): 42"}, {"sample", "(0): 24"}};
    for (const auto& [name, value] : numbers)
        CHECK_THAT(dump(std::string("-a /train/") + name), Contains(value) && Contains("H5T_STD_I64LE"));
    CHECK_THAT(dump("-a /train/deck"), Contains("[training]") && Contains("steps = 10"));
    CHECK_THAT(dump("-a /train/version"), Contains("\"0.1.0\""));
    CHECK_THAT(dump("-a /train/model"), Contains("llama3"));
    CHECK_THAT(dump("-a /checksum/model/norm.weight/rows_per_block"), Contains("(0): 1048576"));
    // 3.5, 3.5 + 1/7, ... rounded to bfloat16
    CHECK_THAT(dump("-d /model/norm.weight"), Contains("(0): 3.5, 3.64062, 3.78125, 3.92188") &&
                                                  Contains("16-bit little-endian floating-point"));
    CHECK_THAT(dump("-p -H -d /model/norm.weight"), Contains("CONTIGUOUS") && !Contains("CHUNKED"));
    CHECK_THAT(dump("-d /checksum/model/norm.weight"), Contains("H5T_STD_U64LE"));
}

TEST_CASE("other programs: the document's Python programs do what it says", "[checkpoint]") {
    // the system's Python, since a virtual environment does not have the system's h5py
    const std::string python = "/usr/bin/python3";
    if (!there(python + " -c 'import h5py'", "h5py (Debian: python3-h5py)")) return;
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder / "outputs/checkpoint", 0, self);
    const CheckpointState saved(Dtype::bf16);
    const std::string path = checkpoint.save(record_of(100), saved.tensors).path;
    const auto look = test::run_shell("cd '" + folder.path().string() + "' && " + python + " " +
                                      program_of_document(folder, 0));
    CHECK(look.output == "100 [training]\nsteps = 10\n\n(9, 4) float32 [1.5       1.640625  1.7890625]\n");

    const std::string verify = python + " " + program_of_document(folder, 1) + " " + path;
    const auto sound = test::run_shell(verify);
    CHECK(sound.exit_code == 0);
    CHECK(sound.output.empty());
    const auto offset = [&](const char* array) { return *hdf5::File::open(path).dataset(array).offset(); };
    const int64_t at = offset("optimizer/exp_avg_sq/tok_embeddings.weight") + 7,
                  text = int64_t(test::read_file(path).find("[training]"));
    flip(path, at);
    CHECK(test::run_shell(verify).output == "damaged: optimizer/exp_avg_sq/tok_embeddings.weight block 0\n");
    flip(path, at);
    flip(path, text);
    const auto damaged = test::run_shell(verify);
    CHECK(damaged.exit_code == 1);
    CHECK(damaged.output == "damaged: layout of " + path + "\n");
}
