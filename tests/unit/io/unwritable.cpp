// SPDX-License-Identifier: Apache-2.0
// Places that cannot take a checkpoint, detected at once or during an asynchronous save. The run is told, no
// partial file remains, and the newest good checkpoint is kept.
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/log.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/full_disk.hpp"
#include "support/support.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>

using namespace coeus;
using Catch::Contains;
using test::CheckpointState;
using test::record_of;
namespace fs = std::filesystem;

namespace {

void save(const CheckpointStore& checkpoint, const CheckpointState& state, int64_t step, bool beside) {
    if (!beside) {
        checkpoint.save(record_of(step), state.tensors);
        return;
    }
    const Communicator self = Communicator::self();
    AsyncCheckpoint writer(checkpoint, self, state.tensors);
    writer.begin(record_of(step));
    writer.finish();
}

/// In some containers root cannot become another user.
bool can_become(uid_t user) {
    const pid_t child = fork();
    if (child == 0) _exit(setuid(user) == 0 ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Saves in a child process, after `hinder`; returns the message of the SystemError.
std::string error_of_save(const CheckpointStore& checkpoint, const CheckpointState& state, bool beside,
                          const std::function<void()>& hinder) {
    int said[2];
    REQUIRE(pipe(said) == 0);
    const pid_t child = fork();
    if (child == 0) {
        hinder();
        std::string message = "saved";
        try {
            save(checkpoint, state, 2, beside);
        } catch (const SystemError& error) {
            message = error.what();
        }
        const auto written = write(said[1], message.data(), message.size());
        std::exit(written < 0);  // includes HDF5's own exit function, which must not fail
    }
    close(said[1]);
    std::string message(4096, ' ');
    message.resize(size_t(std::max<ssize_t>(0, read(said[0], message.data(), message.size()))));
    close(said[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    return message;
}

/// While it lives, writes of other threads wait until let_go().
class HeldWrites final : public OperationFault {
public:
    HeldWrites() { FlightRecorder::own().set_fault(this); }
    ~HeldWrites() override {
        let_go();
        FlightRecorder::own().set_fault(nullptr);
    }
    void let_go() {
        held_ = false;
        held_.notify_all();
    }
    bool leaves_out(const char*, OperationKind) override { return false; }
    void entered(const char*, OperationKind) override {
        if (gettid() != getpid()) held_.wait(true);
    }

private:
    std::atomic<bool> held_ = true;
};

}  // namespace

TEST_CASE("unwritable: a full disk leaves the newest good checkpoint", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 1, self);
    CheckpointState large(Dtype::f32);
    large.add("model/wide.weight", Dtype::f32, {50, 1000}, 0);
    const std::string good = checkpoint.save(record_of(1), CheckpointState(Dtype::f32).tensors).path;
    const rlim_t limit = GENERATE(rlim_t(2000), rlim_t(100000));  // stands in for the size of the disk
    const bool beside = GENERATE(false, true);
    const CheckpointStore filling(folder.path(), 1, self, GENERATE(1, 2));
    const std::string message = error_of_save(filling, large, beside, [&] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit bound{limit, limit};
        setrlimit(RLIMIT_FSIZE, &bound);
    });
    CHECK(test::files_in(folder.path()) == std::vector<std::string>{"step-00000001.h5"});
    CHECK_THAT(message, Contains("step-00000002.h5 is not saved") && Contains("File too large") &&
                            Contains("the newest good checkpoint is " + good));
    CHECK(verify_checkpoint(good).empty());
}

TEST_CASE("unwritable: a read-only folder", "[checkpoint]") {
    const uid_t nobody = 65534;  // root may write everywhere
    if (geteuid() == 0 && !can_become(nobody)) return test::skip("root cannot become another user here");
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder / "run", 1, self);
    const CheckpointState state(Dtype::f32);
    const std::string good = checkpoint.save(record_of(1), state.tensors).path;
    const bool beside = GENERATE(false, true);
    fs::permissions(folder.path(), fs::perms(0755));
    fs::permissions(folder / "run", fs::perms(0555));
    const std::string message = error_of_save(checkpoint, state, beside, [] {
        if (geteuid() == 0 && setuid(nobody) != 0) std::exit(1);
    });
    fs::permissions(folder / "run", fs::perms(0755));
    CHECK(test::files_in(folder / "run") == std::vector<std::string>{"step-00000001.h5"});
    CHECK_THAT(message, Contains("step-00000002.h5 is not saved") && Contains("Permission denied") &&
                            Contains("the newest good checkpoint is " + good));
    CHECK(verify_checkpoint(good).empty());
}

TEST_CASE("unwritable: a failed asynchronous write is reported and tried once more", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const CheckpointStore checkpoint(folder / "run", 0, self);
    const std::string log_file = folder / "log";
    log::init({.file = log_file});
    AsyncCheckpoint beside(checkpoint, self, state.tensors);
    beside.begin(record_of(1));
    const std::string in_the_way = checkpoint.folder().path_of(1);
    fs::create_directory(in_the_way);
    const auto warned = [&] {
        log::flush();
        return test::read_file(log_file).find("trying once more") != std::string::npos;
    };
    while (!warned()) CHECK_FALSE(beside.poll().has_value());
    CHECK_THAT(test::read_file(log_file), Contains("step-00000001.h5 could not be written during training") &&
                                              Contains("Is a directory"));
    fs::remove(in_the_way);
    std::optional<SavedCheckpoint> done;
    while (!done) done = beside.poll();
    log::init({});
    CHECK(done->step == 1);
    CHECK(test::files_in(folder / "run") == std::vector<std::string>{"step-00000001.h5"});
    CheckpointState loaded(Dtype::f32, -3);
    CHECK(load_checkpoint(done->saved.path, loaded.tensors, self) == record_of(1));
    CHECK(loaded.bytes() == state.bytes());
}

TEST_CASE("unwritable: after two failed asynchronous writes the newest good checkpoint is kept",
          "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const CheckpointStore checkpoint(folder.path(), 0, self);
    AsyncCheckpoint beside(checkpoint, self, state.tensors);
    beside.begin(record_of(1));
    beside.finish();
    HeldWrites held;
    beside.begin(record_of(2));
    std::string message;
    {
        const test::FullDisk full;
        held.let_go();
        try {
            while (!beside.poll()) {
            }
        } catch (const SystemError& error) {
            message = error.what();
        }
    }
    CHECK_THAT(message, Contains("step-00000002.h5 is not saved") && Contains("File too large") &&
                            Contains("the newest good checkpoint is " + checkpoint.folder().path_of(1)));
    CHECK(verify_checkpoint(checkpoint.folder().path_of(1)).empty());
    // the next save succeeds
    beside.begin(record_of(3));
    CHECK(beside.finish().has_value());
    CHECK(test::files_in(folder.path()) == std::vector<std::string>{"step-00000001.h5", "step-00000003.h5"});
}

TEST_CASE("unwritable: the second attempt uses nothing of the first", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const int64_t files = GENERATE(1, 2);
    const CheckpointStore checkpoint(folder.path(), 0, self, files);
    AsyncCheckpoint beside(checkpoint, self, state.tensors);
    beside.begin(record_of(1));
    fs::remove(checkpoint.folder().path_of(1) + ".part");
    fs::remove_all(folder / "step-00000001.parts");
    CHECK(beside.finish().has_value());
    CHECK(verify_checkpoint(checkpoint.folder().path_of(1)).empty());
    CheckpointState loaded(Dtype::f32, -3);
    CHECK(load_checkpoint(checkpoint.folder().path_of(1), loaded.tensors, self) == record_of(1));
    CHECK(loaded.bytes() == state.bytes());
    CHECK(test::files_in(folder.path()).size() == size_t(files));
}

TEST_CASE("unwritable: a file in the place of the folder of parts: the parts get another folder",
          "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    test::write_file(folder / "step-00000001.parts", "in the way");
    const CheckpointStore checkpoint(folder.path(), 0, self, 2);
    checkpoint.save(record_of(1), state.tensors);
    CHECK(verify_checkpoint(checkpoint.folder().path_of(1)).empty());
    CHECK(test::read_file(folder / "step-00000001.parts") == "in the way");
}

TEST_CASE("unwritable: a file in the place of the folder", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    test::write_file(folder / "file", "in the way");
    CHECK_THROWS_WITH(CheckpointStore(folder / "file/checkpoint", 0, self).save(record_of(1), state.tensors),
                      Contains("checkpoint cannot be created: Not a directory") &&
                          Contains("there is no earlier checkpoint"));
    CHECK_THROWS_AS(CheckpointStore(folder / "file/checkpoint", 0, self).save(record_of(1), state.tensors),
                    ConfigError);
}

TEST_CASE("a save that fails because the folder was lost reports that, not the missing files") {
    const test::TemporaryFolder folder;
    const CheckpointState state(Dtype::f32);
    const bool beside = GENERATE(false, true);
    int looks = 0;
    // the folder is lost while the file is written: the new owner removes unfinished files
    const CheckpointWriter writer = {.id = "0123456789abcdef", .require_owned = [&] {
                                         if (++looks == 1) return;
                                         throw SystemError("this run has lost its folder");
                                     }};
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path().string(), 0, self, 1, writer);
    CHECK_THROWS_WITH(save(checkpoint, state, 2, beside), Catch::StartsWith("this run has lost its folder"));
    CHECK(test::files_in(folder.path()).empty());
}
