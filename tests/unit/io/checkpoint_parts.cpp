// SPDX-License-Identifier: Apache-2.0
// Checkpoints of several files.
#include "../../../src/io/checkpoint_parts.hpp"

#include "../../../src/io/checkpoint_file.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "coeus/io/convert_weights.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <deque>
#include <filesystem>

using namespace coeus;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

/// Six arrays: three weights of different sizes, with one moment each.
struct State {
    std::deque<OwnedTensor> memory;
    std::vector<CheckpointTensor> tensors;

    explicit State(double start) {
        for (const char* group : {"model/", "optimizer/exp_avg/"}) {
            add(group + std::string("tok_embeddings.weight"), {9, 40}, start += 1);
            add(group + std::string("layers.0.attention.wq.weight"), {4, 40}, start += 1);
            add(group + std::string("norm.weight"), {40}, start += 1);
        }
    }
    void add(const std::string& path, const Shape& shape, double start) {
        const Tensor t = memory.emplace_back(Dtype::f32, shape);
        for (int64_t i = 0; i < t.count(); ++i) set_element(t, i, start + double(i) / 7);
        tensors.push_back({.path = path, .shape = shape, .dtype = Dtype::f32, .blocks = {{t}}});
    }
    bool operator==(const State& other) const {
        for (size_t i = 0; i < tensors.size(); ++i)
            for (int64_t k = 0; k < tensors[i].count(); ++k)
                if (!(element(memory[i], k) == element(other.memory[i], k))) return false;
        return true;
    }
};

TrainRecord record(int64_t step) {
    return {.step = step,
            .tokens_seen = 9,
            .seed = 1,
            .sample = 8,
            .deck = "x = 1",
            .version = "v",
            .model = "m"};
}

/// Paths below a folder, in order.
Names files_below(const fs::path& folder) {
    Names names;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), folder));
    std::sort(names.begin(), names.end());
    return names;
}

struct Run {
    test::TemporaryFolder folder;
    Communicator self = Communicator::self();
    CheckpointStore checkpoint{folder.path(), 2, self, 3};
};

}  // namespace

TEST_CASE("checkpoint parts: the distribution of arrays depends only on their sizes", "[checkpoint]") {
    using checkpoint_format::spread;
    CHECK(spread({10, 20, 30, 40}, 2) == std::vector<int64_t>{0, 1, 1, 0});
    CHECK(spread({5, 5, 5, 5, 5}, 3) == std::vector<int64_t>{0, 1, 2, 0, 1});
    CHECK(spread({0, 100, 1, 1}, 2) == std::vector<int64_t>{1, 0, 1, 1});
    CHECK(spread({7}, 1) == std::vector<int64_t>{0});
}

TEST_CASE("checkpoint parts: a reader opens one file", "[checkpoint]") {
    Run run;
    const State saved(0);
    const std::string path = run.checkpoint.save(record(4), saved.tensors).path;
    const Names names = {"step-00000004.h5", "step-00000004.parts/0.h5", "step-00000004.parts/1.h5",
                         "step-00000004.parts/2.h5"};
    CHECK(files_below(run.folder.path()) == names);
    State loaded(-9);
    CHECK(run.checkpoint.load_newest(loaded.tensors)->train.step == 4);
    CHECK(loaded == saved);
    CHECK(verify_checkpoint(path).empty());
    const CheckpointHeader header = read_checkpoint_header(path);
    CHECK(header.full);
    CHECK(header.arrays.size() == 6);
    CHECK(header.parts.size() == 3);
    CHECK(header.bytes > 6000);
    CHECK(fs::file_size(path) < 12000);
    CHECK_THROWS_WITH(
        read_checkpoint_header(run.folder / "step-00000004.parts/1.h5"),
        Contains("1.h5 is a part of a checkpoint; give the checkpoint file next to its folder instead"));
    // with its parts the file may be elsewhere, have another name, and be read through a link
    fs::create_directory(run.folder / "elsewhere");
    fs::rename(path, run.folder / "elsewhere/mine.h5");
    fs::rename(run.folder / "step-00000004.parts", run.folder / "elsewhere/step-00000004.parts");
    fs::create_symlink(run.folder / "elsewhere/mine.h5", run.folder / "link.h5");
    for (const char* name : {"elsewhere/mine.h5", "link.h5"}) {
        State moved(-9);
        CHECK(load_checkpoint(run.folder / name, moved.tensors, run.self).step == 4);
        CHECK(moved == saved);
    }
}

TEST_CASE("checkpoint parts: h5ls lists one file", "[checkpoint]") {
    Run run;
    const std::string path = run.checkpoint.save(record(4), State(0).tensors).path;
    const auto listed = test::run_shell("h5ls -r -E " + path);
    if (listed.exit_code == 127) return test::skip("there is no h5ls (Debian: hdf5-tools)");
    CHECK(listed.exit_code == 0);
    CHECK_THAT(listed.output, Contains("/model/norm.weight") && Contains("{40}") && !Contains("NOT FOUND"));
}

TEST_CASE("checkpoint parts: other programs see one file", "[checkpoint]") {
    if (test::run_shell("/usr/bin/python3 -c 'import h5py'").exit_code != 0)
        return test::skip("there is no h5py (Debian: python3-h5py)");
    Run run;
    const State saved(0);
    const std::string path = run.checkpoint.save(record(4), saved.tensors).path;
    const auto read = test::run_shell("cd / && /usr/bin/python3 -c \"import h5py; f = h5py.File('" + path +
                                      "'); print(f['model/norm.weight'][:2].tolist(), f['model'].keys())\"");
    CHECK_THAT(read.output, Contains("[3.0, 3.142857") && Contains("tok_embeddings.weight"));
    // the program that verifies a file in the documentation: its second block of Python
    const std::string text = test::read_file(fs::path(test::paths::source()) / "doc/checkpoint.md");
    const std::string fence = "```python\n";
    const size_t begin = text.find(fence, text.find(fence) + 1) + fence.size();
    test::write_file(run.folder / "verify.py", text.substr(begin, text.find("```", begin) - begin));
    const std::string verify = "/usr/bin/python3 " + (run.folder / "verify.py").string() + " " + path;
    CHECK(test::run_shell(verify).output.empty());
    hdf5::File file = hdf5::File::open(path);
    CHECK_THROWS_WITH(file.dataset("model/norm.weight"),
                      Contains("/model/norm.weight is a link to the file step-00000004.parts/") &&
                          Contains(".h5, which is not a part of this file"));
    file.allow_links_to({"step-00000004.parts/0.h5", "step-00000004.parts/1.h5", "step-00000004.parts/2.h5"});
    const hdf5::Dataset norm = file.dataset("model/norm.weight");
    std::string bytes = test::read_file(norm.stored_in());
    bytes[size_t(*norm.offset())] ^= 1;
    test::write_file(norm.stored_in(), bytes);
    CHECK(test::run_shell(verify).output == "damaged: model/norm.weight block 0\n");
    const auto damaged = verify_checkpoint(path);
    REQUIRE(damaged.size() == 1);
    CHECK(damaged[0].array == "model/norm.weight");
    const fs::path part = run.folder / "step-00000004.parts/1.h5";
    bytes = test::read_file(part);
    bytes[bytes.find("coeus checkpoint part")] ^= 1;
    test::write_file(part, bytes);
    CHECK(test::run_shell(verify).output == "damaged: layout of " + part.string() + "\n");
}

TEST_CASE("checkpoint parts: parts are created and removed with their file", "[checkpoint]") {
    Run run;
    const State state(0);
    const auto parts = [](int64_t step, const char* number = "") {
        return fmt::format("step-{:08}.parts{}", step, number);
    };
    const auto entries = [&] {
        Names names;
        for (const auto& entry : fs::directory_iterator(run.folder.path()))
            names.push_back(entry.path().filename());
        std::sort(names.begin(), names.end());
        return names;
    };
    run.checkpoint.export_model(record(1), state.tensors, Dtype::bf16);
    for (int64_t step : {1, 2, 3}) run.checkpoint.save(record(step), state.tensors);
    const Names two_left = {"model-00000001.h5", "model-00000001.parts",
                            "step-00000002.h5",  parts(2),
                            "step-00000003.h5",  parts(3)};
    CHECK(entries() == two_left);
    CHECK(newest_weights(run.folder.path()) == (run.folder / "step-00000003.h5").string());
    // left by a save that was killed in its first or second attempt
    for (const std::string& name : {parts(4), parts(3, ".1"), parts(9, ".12")}) {
        fs::create_directory(run.folder / name);
        test::write_file(run.folder / name / "0.h5", "half");
    }
    test::write_file(run.folder / "step-00000004.h5.part", "half");
    fs::create_directory(run.folder / "mine.parts");
    fs::create_directory(run.folder / "step-00000009.parts.old");
    run.checkpoint.save(record(4), state.tensors);
    const Names mine_stay = {"mine.parts",
                             "model-00000001.h5",
                             "model-00000001.parts",
                             "step-00000003.h5",
                             parts(3),
                             "step-00000004.h5",
                             parts(4),
                             "step-00000009.parts.old"};
    CHECK(entries() == mine_stay);
    SECTION("a step that is saved again has new parts before the file is renamed") {
        run.checkpoint.save(record(4), State(5).tensors);
        CHECK_FALSE(fs::exists(run.folder / parts(4)));
        State loaded(-9);
        CHECK(load_checkpoint(run.folder / "step-00000004.h5", loaded.tensors, run.self).step == 4);
        CHECK(loaded == State(5));
        CHECK(fs::exists(run.folder / parts(4, ".1")));
        run.checkpoint.save(record(4), State(6).tensors);
        CHECK(fs::exists(run.folder / parts(4)));
        CHECK_FALSE(fs::exists(run.folder / parts(4, ".1")));
    }
    SECTION("an abandoned file keeps its parts") {
        run.checkpoint.save(record(3), State(5).tensors);
        CHECK(fs::exists(run.folder / "step-00000004.h5.abandoned"));
        fs::rename(run.folder / "step-00000004.h5.abandoned", run.folder / "step-00000004.h5");
        CHECK(verify_checkpoint(run.folder / "step-00000004.h5").empty());
        run.checkpoint.save(record(3), State(6).tensors);
        run.checkpoint.save(record(4), State(7).tensors);
        run.checkpoint.save(record(3), State(8).tensors);
        for (const char* aside : {"step-00000004.h5.abandoned", "step-00000004.h5.abandoned.1"})
            CHECK(verify_checkpoint(run.folder / aside).empty());
    }
    SECTION("a renamed file keeps its parts") {
        fs::rename(run.folder / "step-00000003.h5", run.folder / "best.h5");
        run.checkpoint.save(record(5), state.tensors);
        run.checkpoint.save(record(6), state.tensors);
        CHECK(verify_checkpoint(run.folder / "best.h5").empty());
        CHECK(entries().size() == 4 + mine_stay.size() - 2);
    }
    SECTION("an unreadable file keeps its parts") {
        fs::resize_file(run.folder / "step-00000003.h5", 100);
        run.checkpoint.save(record(4), state.tensors);
        CHECK(fs::exists(run.folder / parts(3)));
    }
    SECTION("a file that is not removed keeps its parts") {
        // the name is too long to be looked at; it stands for a file that the system does not remove
        const std::string too_long = run.folder / std::string(300, 'x'), kept = run.folder / parts(3);
        CHECK_THAT(remove_all({too_long, kept}), Contains("cannot be removed"));
        CHECK(verify_checkpoint(run.folder / "step-00000003.h5").empty());
        fs::remove(run.folder / "step-00000003.h5");
        CHECK_THAT(remove_all({too_long, kept}), Contains("cannot be removed"));
        CHECK_FALSE(fs::exists(kept));
    }
    SECTION("if the files cannot be listed, one may link to the parts") {
        fs::create_symlink("loop", run.folder / "loop");
        CHECK(checkpoint_format::is_linked(run.folder / "loop/step-00000003.parts"));
        CHECK_FALSE(checkpoint_format::is_linked(run.folder / "step-00000009.parts"));
    }
    SECTION("a failed save leaves no parts") {
        const Names before = entries();
        fs::create_directory(run.folder / "step-00000005.h5");  // blocks the name of the file
        CHECK_THROWS_WITH(run.checkpoint.save(record(5), state.tensors),
                          Contains("step-00000005.h5 is not saved"));
        fs::remove(run.folder / "step-00000005.h5");
        CHECK(entries() == before);
    }
}

TEST_CASE("checkpoint parts: a published file keeps them, even if it could not be made durable",
          "[checkpoint]") {
    Run run;
    const State saved(0);
    const std::string path = run.checkpoint.folder().path_of(4);
    CheckpointFile file(path, record(4), saved.tensors, std::nullopt, run.self, 3);
    file.write(saved.tensors);
    SECTION("published") {
        file.publish();
        file.discard();
        CHECK(verify_checkpoint(path).empty());
    }
    SECTION("not published") {
        file.discard();
        CHECK(files_below(run.folder.path()).empty());
    }
}

TEST_CASE("checkpoint parts: a missing, damaged or foreign part is damage", "[checkpoint]") {
    Run run;
    const State older(0), newer(5);
    run.checkpoint.save(record(1), older.tensors);
    run.checkpoint.save(record(2), newer.tensors);
    const std::string newest = run.folder / "step-00000002.h5";
    const fs::path part = run.folder / "step-00000002.parts/1.h5";
    std::string words;
    SECTION("missing") {
        fs::remove(part);
        words = "1.h5: this file does not exist";
    }
    SECTION("all missing") {
        fs::remove_all(part.parent_path());
        words = "0.h5: this file does not exist";
    }
    SECTION("truncated") {
        fs::resize_file(part, fs::file_size(part) - 1);
        words = "1.h5 is truncated";
    }
    SECTION("no HDF5 file") {
        test::write_file(part, "text");
        words = "1.h5 is not an HDF5 file";
    }
    SECTION("another HDF5 file") {
        hdf5::File::create(part).close();
        words = "1.h5 is an HDF5 file, but not a part of a checkpoint";
    }
    SECTION("another part") {
        fs::copy_file(part.parent_path() / "0.h5", part, fs::copy_options::overwrite_existing);
        words = "1.h5 is part 0 of another checkpoint, of step 2, not part 1 of ";
    }
    SECTION("of another step") {
        fs::copy_file(run.folder / "step-00000001.parts/1.h5", part, fs::copy_options::overwrite_existing);
        words = "1.h5 is part 1 of another checkpoint, of step 1, not part 1 of ";
    }
    SECTION("of another run") {
        const CheckpointStore other(run.folder / "other", 0, run.self, 3);
        other.save(record(2), older.tensors);
        fs::copy_file(run.folder / "other/step-00000002.parts/1.h5", part,
                      fs::copy_options::overwrite_existing);
        words = "is damaged: rows 0 to ";
    }
    CAPTURE(words);
    if (words.find("rows") == std::string::npos) {
        CHECK_THROWS_WITH(read_checkpoint_header(newest),
                          Contains(newest + " is incomplete: ") && Contains(words));
        CHECK_THROWS_AS(arrays_of_checkpoint(newest, true), ConfigError);
    }
    State state(-9);
    CHECK_THROWS_WITH(load_checkpoint(newest, state.tensors, run.self), Contains(words));
    CHECK(run.checkpoint.load_newest(state.tensors)->train.step == 1);
    CHECK(state == older);
}

TEST_CASE("checkpoint parts: an asynchronous save writes the files of a synchronous one", "[checkpoint]") {
    Run run;
    const State state(0);
    AsyncCheckpoint beside(run.checkpoint, run.self, state.tensors);
    beside.begin(record(1));
    CHECK(beside.finish().has_value());
    const CheckpointStore at_once(run.folder / "at_once", 0, run.self, 3);
    at_once.save(record(1), state.tensors);
    for (const char* name : {"step-00000001.h5", "step-00000001.parts/0.h5", "step-00000001.parts/1.h5",
                             "step-00000001.parts/2.h5"}) {
        const bool same =
            test::read_file(run.folder / name) == test::read_file(run.folder / "at_once" / name);
        CHECK(same);
    }
    // no more parts than arrays
    const CheckpointStore many(run.folder / "many", 0, run.self, 100);
    many.save(record(1), state.tensors);
    CHECK(files_below(run.folder / "many").size() == 7);
}
