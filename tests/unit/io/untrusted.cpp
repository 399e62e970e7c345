// SPDX-License-Identifier: Apache-2.0
// Checkpoints that another program wrote, or that belong to another run: invalid numbers, links to other
// places, endless groups, pipes.
#include "coeus/base/error.hpp"
#include "coeus/io/convert_weights.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/support.hpp"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>

using namespace coeus;
using Catch::Contains;
using test::CheckpointState;
using test::record_of;
namespace fs = std::filesystem;

namespace {

/// Removes the layout guard, as h5py does when it changes a file.
void drop_guard(const std::string& path) {
    const std::string bytes = test::read_file(path);
    uint64_t end = 0;
    std::memcpy(&end, bytes.data() + 28, sizeof end);  // in HDF5's superblock
    fs::resize_file(path, end);
}

/// The error of every way to read a checkpoint's arrays; all of them must give the same one.
std::string refusal(const std::string& path) {
    const Communicator self = Communicator::self();
    CheckpointState state(Dtype::f32);
    std::string first;
    const auto attempt = [&](const auto& read) {
        std::string said = "nothing";
        try {
            read();
        } catch (const ConfigError& error) {
            said = error.what();
        }
        if (first.empty()) first = said;
        CHECK(said == first);
    };
    attempt([&] { verify_checkpoint(path); });
    attempt([&] { load_checkpoint(path, state.tensors, self); });
    attempt([&] { arrays_of_checkpoint(path, true); });
    return first;
}

}  // namespace

TEST_CASE("untrusted: invalid numbers of /train are damage", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    CheckpointState state(Dtype::f32);
    const std::string good = checkpoint.save(record_of(1), state.tensors).path;
    const int64_t largest = int64_t(1) << 53;
    const auto check = [&](const char* name, int64_t value, auto&& set) {
        TrainRecord train = record_of(2);
        set(train);
        const std::string path = checkpoint.save(train, state.tensors).path;
        CHECK(refusal(path) == fmt::format("{} is damaged: {} of /train is {}, must be from 0 to {}", path,
                                           name, value, largest));
        CHECK(checkpoint.load_newest(state.tensors)->path == good);
        fs::remove(path);
    };
    for (const int64_t value : {int64_t(-1), INT64_MIN, largest + 1, INT64_MAX}) {
        check("tokens_seen", value, [&](TrainRecord& train) { train.tokens_seen = value; });
        check("sample", value, [&](TrainRecord& train) { train.sample = value; });
        check("schedule_step", value, [&](TrainRecord& train) { train.schedule_step = value; });
        check("optimizer_step", value, [&](TrainRecord& train) { train.optimizer_step = value; });
    }
    TrainRecord train = record_of(3);
    train.tokens_seen = train.sample = largest;
    train.schedule_step = train.optimizer_step = 0;
    checkpoint.save(train, state.tensors);
    CHECK(checkpoint.load_newest(state.tensors)->train == train);
    train.step = -5;
    const std::string path = checkpoint.save(train, state.tensors).path;
    CHECK_THAT(refusal(path), Contains("step of /train is -5, must be from 0 to "));
}

TEST_CASE("untrusted: a link may only lead to the checkpoint's own parts", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const std::string other =
        CheckpointStore(folder / "other", 0, self).save(record_of(2), state.tensors).path;
    // opening a pipe for reading would block until something writes to it
    const std::string pipe = folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const int64_t parts = GENERATE(1, 2);
    const CheckpointStore checkpoint(folder / "run", 0, self, parts);
    const std::string target = GENERATE_COPY(values<std::string>({other, pipe, "../other/step-00000002.h5"}));
    const std::string path = checkpoint.save(record_of(2), state.tensors).path;
    drop_guard(path);
    hdf5::File file = hdf5::File::open_for_update(path);
    file.create_external_link("model/more.weight", target, "/model/norm.weight");
    file.close();
    CHECK(refusal(path) ==
          fmt::format("{}: /model/more.weight is a link to the file {}, which is not a part of this file",
                      path, target));
}

TEST_CASE("untrusted: parts must be in a folder next to the file, and their number is limited",
          "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const auto check = [&](const std::string& parts, int64_t count, const std::string& message) {
        const std::string path =
            CheckpointStore(folder.path(), 0, self).save(record_of(2), state.tensors).path;
        drop_guard(path);
        hdf5::File file = hdf5::File::open_for_update(path);
        file.set_attribute("parts", parts);
        file.set_attribute("files", count);
        file.close();
        CHECK_THAT(refusal(path), Contains(message));
    };
    for (const char* name : {"", "..", "../other", "/tmp"})
        check(name, 2, fmt::format("its parts would be in \"{}\", which is not a folder next to it", name));
    for (const int64_t count : {int64_t(-1), int64_t(0), INT64_MAX})
        check("x.parts", count, fmt::format("it would have {} parts, but 1 to 65536 are possible", count));
}

TEST_CASE("untrusted: a pipe or a folder with a checkpoint's name is skipped", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder.path(), 0, self);
    CheckpointState state(Dtype::f32);
    const std::string good = checkpoint.save(record_of(1), state.tensors).path;
    const std::string pipe = folder / "step-00000002.h5";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_directory(folder / "step-00000003.h5");
    CHECK(checkpoint.load_newest(state.tensors)->path == good);
    CHECK(refusal(pipe) == pipe + " is a pipe or a device, not a file; write its content to a file first");
}

TEST_CASE("untrusted: groups multiplied by links, endless checksums, elements in other files",
          "[checkpoint]") {
    const std::string python = "/usr/bin/python3";
    if (test::run_shell(python + " -c 'import h5py'").exit_code != 0)
        return test::skip("there is no h5py (Debian: python3-h5py)");
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const auto check = [&](const std::string& change, const std::string& message) {
        const std::string path =
            CheckpointStore(folder.path(), 0, self).save(record_of(2), state.tensors).path;
        drop_guard(path);
        test::write_file(folder / "change.py",
                         "import h5py, sys\nwith h5py.File(sys.argv[1], 'a') as f:\n" + change);
        REQUIRE(
            test::run_shell(python + " '" + (folder / "change.py").string() + "' '" + path + "'").exit_code ==
            0);
        CHECK_THAT(refusal(path), Contains(message));
    };
    // 30 groups with 2^29 paths through them
    check("  g = f['model']\n  for i in range(30):\n    g['b'] = g.create_group('a'); g = g['a']\n",
          "more than 4096 groups (a group counts once for each link to it)");
    check("  f['model/again'] = f['model']\n", "groups are nested deeper than 32 levels");
    check("  f['away'] = h5py.ExternalLink('/dev/zero', '/')\n  f['model/more'] = h5py.SoftLink('/away/x')\n",
          "/model/more is a link to the file /dev/zero, which is not a part of this file");
    const std::string sums = "checksum/model/norm.weight";
    check("  del f['" + sums + "']\n  d = f.create_dataset('" + sums +
              "', shape=(2**33,), dtype='u8', chunks=(1024,)); d.attrs['rows_per_block'] = 1048576\n",
          "the checksums of model/norm.weight do not fit it");
    check("  f.create_dataset('model/more', shape=(4,), dtype='f4', external=[('/dev/zero', 0, 16)])\n",
          "the elements of /model/more are in other files");
}

TEST_CASE("untrusted: verification notices a missing array whose checksums exist", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointState state(Dtype::f32);
    const int64_t parts = GENERATE(1, 2);
    const std::string path =
        CheckpointStore(folder.path(), 0, self, parts).save(record_of(2), state.tensors).path;
    CHECK(verify_checkpoint(path).empty());
    drop_guard(path);
    hdf5::File file = hdf5::File::open_for_update(path);
    file.create_dataset("checksum/model/lost.weight", hdf5::Type::u64, {1});
    file.close();
    CHECK_THROWS_WITH(verify_checkpoint(path),
                      Catch::Equals(path + " is damaged: the array model/lost.weight is missing"));
}
