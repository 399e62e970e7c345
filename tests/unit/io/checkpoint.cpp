// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/memory.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/support.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

using namespace coeus;
using Catch::Contains;
using coeus::test::CheckpointState;
using coeus::test::record_of;
namespace fs = std::filesystem;

namespace {

/// Flips one bit in the bytes of an array.
void flip(const std::string& path, const std::string& array, int64_t element_byte) {
    const int64_t at = *hdf5::File::open(path).dataset(array).offset() + element_byte;
    std::string bytes = test::read_file(path);
    bytes[size_t(at)] = char(bytes[size_t(at)] ^ 4);
    test::write_file(path, bytes);
}

void truncate(const std::string& path, double share) {
    fs::resize_file(path, uintmax_t(double(fs::file_size(path)) * share));
}

}  // namespace

TEST_CASE("checkpoint: the same bits come back", "[checkpoint]") {
    const Dtype dtype = GENERATE(Dtype::f32, Dtype::f64, Dtype::bf16);
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder / "deep/checkpoint", 0, self);
    const CheckpointState saved(dtype);
    const std::string path = checkpoint.save(record_of(100), saved.tensors).path;
    CHECK(path == (folder / "deep/checkpoint/step-00000100.h5").string());
    CHECK(test::files_in(folder / "deep/checkpoint") == std::vector<std::string>{"step-00000100.h5"});

    CheckpointState loaded(dtype, -3);
    const auto found = checkpoint.load_newest(loaded.tensors);
    REQUIRE(found.has_value());
    CHECK(found->path == path);
    CHECK(loaded.bytes() == saved.bytes());
    CHECK(found->train.step == 100);
    CHECK(found->train.tokens_seen == 409600);
    CHECK(found->train.seed == 42);
    CHECK(found->train.sample == 800);
    CHECK(found->train.deck == "[training]\nsteps = 10\n");
    CHECK(found->train.version == "0.1.0");
    CHECK(found->train.model == R"({"name": "llama3"})");
    CHECK(verify_checkpoint(path).empty());
    CHECK(hdf5::File::open(path).dataset("model/norm.weight").type() == hdf5::type_of(dtype));
}

TEST_CASE("checkpoint: types are converted on request", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    const CheckpointState saved(Dtype::f32);
    checkpoint.save(record_of(1), saved.tensors);
    CheckpointState wide(Dtype::f64, -3);
    REQUIRE(checkpoint.load_newest(wide.tensors));
    for (size_t i = 0; i < saved.tensors.size(); ++i)
        for (int64_t k = 0; k < saved.tensors[i].count(); ++k)
            REQUIRE(element(wide.memory[i], k) == element(saved.memory[i], k));

    const std::string path = checkpoint.export_model(record_of(1), saved.tensors, Dtype::bf16).path;
    CHECK(fs::path(path).filename() == "model-00000001.h5");
    const CheckpointHeader header = read_checkpoint_header(path);
    CHECK_FALSE(header.full);
    REQUIRE(header.arrays.size() == 3);
    CHECK(header.arrays[1].path == "model/norm.weight");
    CHECK(header.arrays[1].type == hdf5::Type::bf16);
    CHECK(verify_checkpoint(path).empty());
    const auto values = hdf5::File::open(path).dataset("model/tok_embeddings.weight").read_all<float>();
    for (size_t k = 0; k < values.size(); ++k)
        REQUIRE(values[k] == float(bf16(float(element(saved.memory[0], int64_t(k))))));
    // a file of only weights can be a start
    CheckpointState start(Dtype::f32, -3);
    start.tensors.resize(3);
    CHECK(load_checkpoint(path, start.tensors, self).step == 1);
    CHECK(element(start.memory[2], 0) == 3.5);
}

TEST_CASE("checkpoint: the newest full one is found", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    CheckpointState state(Dtype::f32);
    CHECK_FALSE(checkpoint.load_newest(state.tensors).has_value());
    CHECK_THROWS_WITH(newest_weights(folder.path()), Contains("has no checkpoint"));
    checkpoint.save(record_of(9), state.tensors);
    checkpoint.save(record_of(10), CheckpointState(Dtype::f32, 7).tensors);
    checkpoint.export_model(record_of(11), state.tensors, Dtype::f32);
    test::write_file(folder / "step-00000099.h5.part", "half");
    test::write_file(folder / "step-x.h5", "no number");
    CHECK(checkpoint.load_newest(state.tensors)->train.step == 10);
    CHECK(state.bytes() == CheckpointState(Dtype::f32, 7).bytes());
    CHECK(checkpoint.load_step(9, state.tensors).train.step == 9);
    CHECK(state.bytes() == CheckpointState(Dtype::f32).bytes());
    CHECK_THROWS_WITH(checkpoint.load_step(8, state.tensors),
                      Contains("checkpoint.load_step = 8: there is no checkpoint of step 8 in ") &&
                          Contains("; existing steps: 9, 10"));
    CHECK(newest_weights(folder.path()) == (folder / "model-00000011.h5").string());
}

TEST_CASE("checkpoint: a folder that cannot be listed is an error, not a new run", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    CheckpointState state(Dtype::f32);
    test::write_file(folder / "file", "root may list every folder, but not this");
    const std::string unlistable = GENERATE("file", "file/checkpoint");
    const CheckpointStore checkpoint(folder / unlistable, 0, self);
    CHECK_THROWS_AS(checkpoint.load_newest(state.tensors), SystemError);
    CHECK_THROWS_WITH(checkpoint.load_newest(state.tensors),
                      Contains(unlistable + " cannot be listed: Not a directory") &&
                          Contains("or start in another job.dump_folder"));
    CHECK_THROWS_WITH(list_checkpoints(folder / unlistable), Contains("cannot be listed: Not a directory"));
    CHECK_THROWS_WITH(newest_weights(folder / unlistable), Contains("cannot be listed: Not a directory"));
    fs::create_symlink("loop", folder / "loop");
    CHECK_THAT(CheckpointFolder(folder / "loop", 0).newest_text("found ", "none"),
               Contains("loop cannot be listed: Too many levels of symbolic links, so it is not known which "
                        "checkpoints there are"));
}

TEST_CASE("checkpoint: a file that the system cannot read is not damaged, and no earlier one replaces it",
          "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    CheckpointState state(Dtype::f32);
    const CheckpointStore checkpoint(folder.path(), 0, self);
    checkpoint.save(record_of(9), state.tensors);
    // root can read every file, except this one
    const fs::path loop = folder / "step-00000010.h5";
    fs::create_symlink(loop, loop);
    CHECK_THROWS_WITH(
        checkpoint.load_newest(state.tensors),
        Contains(loop.string() + " cannot be read: Too many levels of symbolic links. It may be intact: "
                                 "make it readable, or move it away"));
    fs::remove(loop);
    CHECK(checkpoint.load_newest(state.tensors)->train.step == 9);
}

TEST_CASE("checkpoint: a save removes files of a killed save, and only files of the run", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    for (const char* name :
         {"step-00000077.h5.part", "model-00000077.h5.part", "w.h5.part", "step-x.h5.part"})
        test::write_file(folder / name, "half");
    fs::create_directory(folder / "step-00000001.h5");
    test::write_file(folder / "step-00000001.h5/notes", "somebody's");
    CheckpointStore(folder.path(), 1, self).save(record_of(99), state.tensors);
    CHECK(test::files_in(folder.path()) ==
          std::vector<std::string>{"step-00000001.h5", "step-00000099.h5", "step-x.h5.part", "w.h5.part"});
    CHECK(fs::exists(folder / "step-00000001.h5/notes"));
    CHECK(list_checkpoints(folder.path()).size() == 1);
}

TEST_CASE("checkpoint: old ones are removed after a success", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    CheckpointStore(folder.path(), 0, self).export_model(record_of(1), state.tensors, Dtype::f32);
    for (int64_t step : {1, 2, 3, 4})
        CheckpointStore(folder.path(), 2, self).save(record_of(step), state.tensors);
    CHECK(test::files_in(folder.path()) ==
          std::vector<std::string>{"model-00000001.h5", "step-00000003.h5", "step-00000004.h5"});
    CheckpointStore(folder.path(), 0, self).save(record_of(5), state.tensors);
    CHECK(list_checkpoints(folder.path()).size() == 3);
    CHECK(list_checkpoints(folder / "nowhere").empty());
}

TEST_CASE("checkpoint: a damaged newest one is skipped", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    const CheckpointState good(Dtype::f32), newer(Dtype::f32, 20);
    const std::string older = checkpoint.save(record_of(1), good.tensors).path;
    const std::string newest = checkpoint.save(record_of(2), newer.tensors).path;
    SECTION("truncated") {
        const double share = GENERATE(0.0, 0.01, 0.3, 0.7, 0.9999);
        truncate(newest, share);
    }
    SECTION("foreign") {
        test::write_file(newest, "not a checkpoint at all");
    }
    SECTION("another HDF5 file") {
        auto file = hdf5::File::create(newest);
        file.create_dataset("tokens", hdf5::Type::u16, {5});
        file.close();
        CHECK_THROWS_WITH(read_checkpoint_header(newest),
                          Contains("is an HDF5 file, but not a checkpoint of Coeus"));
    }
    SECTION("a flipped bit") {
        flip(newest, "optimizer/exp_avg/norm.weight", 5);
    }
    SECTION("a flipped checksum") {
        flip(newest, "checksum/model/norm.weight", 0);
    }
    CheckpointState state(Dtype::f32, -3);
    const auto found = checkpoint.load_newest(state.tensors);
    REQUIRE(found);
    CHECK(found->path == older);
    CHECK(state.bytes() == good.bytes());
    truncate(older, 0.5);
    CHECK_THROWS_WITH(checkpoint.load_newest(state.tensors), Contains("none of the checkpoints in") &&
                                                                 Contains("is readable") &&
                                                                 Contains("step-00000001.h5 is truncated"));
    CHECK_THROWS_AS(checkpoint.load_newest(state.tensors), ConfigError);
}

TEST_CASE("checkpoint: damage is located", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    CheckpointState state(Dtype::f32);
    state.add("model/wide.weight", Dtype::f32, {5, 1 << 19}, 0);  // blocks of 2 rows
    const std::string path = CheckpointStore(folder.path(), 0, self).save(record_of(1), state.tensors).path;
    flip(path, "model/wide.weight", (3 * (int64_t(1) << 19) + 17) * 4);
    flip(path, "model/norm.weight", 1);
    int64_t last = 0;
    const auto damaged = verify_checkpoint(path, [&](int64_t done, int64_t total) {
        CHECK(done > last);
        CHECK(done <= total);
        last = done;
    });
    REQUIRE(damaged.size() == 2);
    CHECK(damaged[0].array == "model/norm.weight");
    CHECK(damaged[0].first_row == 0);
    CHECK(damaged[0].last_row == 4);
    CHECK(damaged[1].array == "model/wide.weight");
    CHECK(damaged[1].first_row == 2);
    CHECK(damaged[1].last_row == 4);
    CHECK_THROWS_WITH(load_checkpoint(path, state.tensors, self),
                      Contains("is damaged: rows 0 to 3 of model/norm.weight do not match their checksum"));
}

TEST_CASE("checkpoint: another model is refused in words", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    checkpoint.save(record_of(5), CheckpointState(Dtype::f32).tensors);
    SECTION("another shape") {
        CheckpointState other(Dtype::f32, 0, 10);
        CHECK_THROWS_WITH(
            checkpoint.load_newest(other.tensors),
            Contains("step-00000005.h5 is of another model: tok_embeddings.weight is [9, 4] in the file, "
                     "[10, 4] in this model"));
        CHECK_THROWS_AS(checkpoint.load_newest(other.tensors), ConfigError);
    }
    SECTION("a parameter more in the model") {
        CheckpointState other(Dtype::f32);
        other.add("model/layers.1.attention.wq.weight", Dtype::f32, {4, 4}, 0);
        CHECK_THROWS_WITH(checkpoint.load_newest(other.tensors),
                          Contains("it has no model/layers.1.attention.wq.weight, which this model has"));
    }
    SECTION("a parameter more in the file") {
        CheckpointState other(Dtype::f32);
        other.tensors.erase(other.tensors.begin());
        CHECK_THROWS_WITH(checkpoint.load_newest(other.tensors),
                          Contains("it has tok_embeddings.weight, which this model does not have"));
    }
    SECTION("integers") {
        CheckpointState other(Dtype::i32);
        CHECK_THROWS_WITH(checkpoint.load_newest(other.tensors),
                          Contains("model/tok_embeddings.weight has elements of type float32"));
    }
    SECTION("another optimizer of the same model") {
        CheckpointState other(Dtype::f32);
        other.add("optimizer/momentum_buffer/norm.weight", Dtype::f32, {4}, 0);
        CHECK_THROWS_WITH(
            checkpoint.load_newest(other.tensors),
            Contains(
                "step-00000005.h5 is of the same model, but of another optimizer or other "
                "optimizer.param_groups: it has no optimizer/momentum_buffer/norm.weight, which this run's "
                "optimizer needs. To continue with its weights and a new state of the optimizer, set "
                "checkpoint.exclude_from_loading = \"optimizer,lr_scheduler\""));
        CHECK_THROWS_AS(checkpoint.load_newest(other.tensors), ConfigError);
        // a difference of models comes first
        other.add("model/layers.1.attention.wq.weight", Dtype::f32, {4, 4}, 0);
        CHECK_THROWS_WITH(checkpoint.load_newest(other.tensors), Contains("is of another model"));
    }
    SECTION("a file of only weights does not resume") {
        CheckpointState state(Dtype::f32);
        const std::string path = checkpoint.export_model(record_of(5), state.tensors, Dtype::f32).path;
        CHECK_THROWS_WITH(load_checkpoint(path, state.tensors, self),
                          Contains("has only weights, without the optimizer state"));
    }
    SECTION("a format of the future") {
        const std::string path = folder / "future.h5";
        auto file = hdf5::File::create(path);
        file.set_attribute("format", "coeus checkpoint");
        file.set_attribute("format_version", 2);
        file.close();
        CHECK_THROWS_WITH(read_checkpoint_header(path),
                          Contains("format version 2; this program reads version 1"));
    }
    SECTION("absent") {
        CheckpointState state(Dtype::f32);
        CHECK_THROWS_WITH(load_checkpoint(folder / "no.h5", state.tensors, self),
                          Contains("no.h5: this file does not exist"));
    }
}

TEST_CASE("checkpoint: a file with another storage layout is refused with the remedy", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    const CheckpointState saved(Dtype::f32);
    const std::string path = checkpoint.save(record_of(1), saved.tensors).path;
    const auto repack = [&](const std::string& how, const std::string& from, const std::string& to) {
        return test::run_shell(fmt::format("h5repack {} '{}' '{}'", how, from, to)).exit_code;
    };
    const std::string newest = folder / "step-00000002.h5", mended = folder / "step-00000003.h5";
    const int status = repack("-f model/tok_embeddings.weight:GZIP=5", path, newest);
    if (status == 127) return test::skip("there is no h5repack (Debian: hdf5-tools)");
    REQUIRE(status == 0);
    CheckpointState state(Dtype::f32, -3);
    // an error, not skipped: the file is complete
    CHECK_THROWS_WITH(
        checkpoint.load_newest(state.tensors),
        Contains("step-00000002.h5: model/tok_embeddings.weight is chunked, compressed or in an "
                 "external file") &&
            Contains("`h5repack -l CONTI -f NONE " + newest + " NEW.h5`"));
    CHECK_THROWS_AS(checkpoint.load_newest(state.tensors), ConfigError);
    REQUIRE(repack("-l CONTI -f NONE", newest, mended) == 0);
    CHECK(checkpoint.load_newest(state.tensors)->path == mended);
    CHECK(state.bytes() == saved.bytes());
}

TEST_CASE("checkpoint: an asynchronous save writes the file of a synchronous one", "[checkpoint]") {
    const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    CheckpointState state(dtype);
    state.add("model/wide.weight", dtype, {700, 1000}, 0);
    const std::string at_once =
        CheckpointStore(folder / "at_once", 0, self).save(record_of(3), state.tensors).path;
    const std::string before = state.bytes();
    const CheckpointStore checkpoint(folder / "beside", 2, self);
    AsyncCheckpoint beside(checkpoint, self, state.tensors);
    CHECK_FALSE(beside.poll());
    CHECK_FALSE(beside.finish());
    for (int64_t step : {1, 2, 3}) {
        beside.begin(record_of(step));
        CHECK_THROWS_AS(beside.begin(record_of(step + 1)), LogicError);
        beside.wait_for_copies();
        state.set_bytes(std::string(before.size(), 1));  // the save uses the values that were copied
        std::optional<SavedCheckpoint> done;
        if (step == 2)
            while (!done) done = beside.poll();
        else
            done = beside.finish();
        REQUIRE(done.has_value());
        CHECK(done->step == step);
        CHECK(done->seconds >= done->seconds_waited);
        CHECK(done->saved.path == checkpoint.folder().path_of(step));
        state.set_bytes(before);
    }
    CHECK(test::files_in(folder / "beside") ==
          std::vector<std::string>{"step-00000002.h5", "step-00000003.h5"});
    CHECK((test::read_file(checkpoint.folder().path_of(3)) == test::read_file(at_once)));
}

TEST_CASE("checkpoint: a run that has lost its folder renames and retires no file", "[checkpoint]") {
    const test::TemporaryFolder folder;
    for (int64_t step = 1; step <= 5; ++step)
        test::write_file(folder / fmt::format("step-{:08}.h5", step), "of the new owner");
    const auto before = test::files_in(folder.path());
    bool owned = false;
    const CheckpointFolder checkpoints(folder.path(), 1, {.id = "", .require_owned = [&] {
                                                              if (!owned) throw SystemError("lost");
                                                          }});
    CHECK(checkpoints.retire(3).empty());
    CHECK(test::files_in(folder.path()) == before);
    owned = true;
    CHECK(checkpoints.retire(3) == std::vector<std::string>{checkpoints.path_of(1), checkpoints.path_of(2)});
    CHECK(test::files_in(folder.path()) ==
          std::vector<std::string>{"step-00000001.h5", "step-00000002.h5", "step-00000003.h5",
                                   "step-00000004.h5.abandoned", "step-00000005.h5.abandoned"});
}

TEST_CASE("checkpoint: a kill at any moment leaves only intact files", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    CheckpointState state(Dtype::f32);
    state.add("model/wide.weight", Dtype::f32, {700, 1000}, 0);
    const int64_t parts = GENERATE(1, 3);
    for (int64_t round = 0; round < 5; ++round) {
        const int64_t first = 10 * round;
        const pid_t child = fork();
        if (child == 0) {
            for (int64_t step = first;; ++step)
                CheckpointStore(folder.path(), 3, self, parts).save(record_of(step), state.tensors);
        }
        // killed while it writes another file after the first one that was seen
        while (list_checkpoints(folder.path()).empty() || list_checkpoints(folder.path()).back().step < first)
            ;
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        const auto files = list_checkpoints(folder.path());
        CHECK_FALSE(files.empty());
        for (const StepFile& file : files) CHECK(verify_checkpoint(file.path).empty());
        CHECK(CheckpointStore(folder.path(), 3, self).load_newest(state.tensors)->path == files.back().path);
    }
    // the next save removes the partial files of killed runs
    test::write_file(folder / "step-00000077.h5.part", "half");
    CheckpointStore(folder.path(), 1, self, parts).save(record_of(99), state.tensors);
    std::vector<std::string> left = {"step-00000099.h5"};
    if (parts > 1) left.push_back("step-00000099.parts");
    CHECK(test::files_in(folder.path()) == left);
}
