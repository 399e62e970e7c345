// SPDX-License-Identifier: Apache-2.0
// One byte of a checkpoint is changed, or its end is missing, anywhere in the file: the checkpoint is
// skipped, and the one before it is loaded.
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/support.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

using namespace coeus;
using test::CheckpointState;
using test::record_of;
namespace fs = std::filesystem;

namespace {

/// A folder with two checkpoints. The newer one will be damaged; if it has several files, in its first part.
struct TwoCheckpoints {
    test::TemporaryFolder folder;
    Communicator self = Communicator::self();
    CheckpointStore checkpoint;
    CheckpointState older{Dtype::f32}, newer{Dtype::f32, 20};
    // of the newer one: its name, the file to damage, and the bytes of that file
    std::string newest, path, sound;

    explicit TwoCheckpoints(int64_t files = 1) : checkpoint(folder.path(), 0, self, files) {
        checkpoint.save(record_of(1), older.tensors);
        newest = checkpoint.save(record_of(2), newer.tensors).path;
        path = files > 1 ? (folder / "step-00000002.parts/0.h5").string() : newest;
        sound = test::read_file(path);
    }

    /// Loads the newest intact checkpoint. Returns "skipped" or "unhurt" for the newer one, or the error.
    std::string load() const {
        CheckpointState state(Dtype::f32, -3);
        try {
            const auto found = checkpoint.load_newest(state.tensors);
            const bool same = found && found->path == newest;
            const TrainRecord should = record_of(same ? 2 : 1);
            if (!found || found->train != should) return "another record was loaded";
            if (state.bytes() != (same ? newer : older).bytes()) return "another state was loaded";
            return same ? "unhurt" : "skipped";
        } catch (const std::exception& error) {
            return error.what();
        }
    }
};

/// Runs `body` in a child process with limited memory and time, and returns its result.
std::string bounded(const fs::path& said, const std::function<std::string()>& body) {
    const pid_t child = fork();
    if (child == 0) {
#ifndef __SANITIZE_ADDRESS__  // takes terabytes of address space
        const rlimit memory{rlim_t(1) << 30, rlim_t(1) << 30};
        setrlimit(RLIMIT_AS, &memory);
#endif
        // processor time, which does not depend on other processes
        const itimerval most = {{0, 0}, {120, 0}};
        setitimer(ITIMER_PROF, &most, nullptr);
        const int nowhere = open("/dev/null", O_WRONLY);  // for hundreds of warnings
        dup2(nowhere, 1);
        dup2(nowhere, 2);
        test::write_file(said, body());
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
    return test::read_file(said);
}

struct Span {
    size_t first, count;
};

/// Loads after the bits `flip` of a byte are changed. Returns the error, or "" if there is none.
std::string flipped(const TwoCheckpoints& files, size_t at, char flip) {
    std::string bytes = files.sound;
    bytes[at] = char(bytes[at] ^ flip);
    test::write_file(files.path, bytes);
    const std::string came = files.load();
    if (came == "skipped") return "";
    return fmt::format("byte {} changed by {:#04x}: {}\n", at, uint8_t(flip), came);
}

/// Does so for `count` random bytes of these places.
std::string flip_some(const TwoCheckpoints& files, const std::vector<Span>& places, uint64_t count) {
    const RandomStream random(3, "flipped bytes");
    std::string wrong;
    for (uint64_t i = 0; i < count; ++i) {
        const Span span = places[random.u64(3 * i) % places.size()];
        const size_t at = span.first + random.u64(3 * i + 1) % span.count;
        wrong += flipped(files, at, char(1 + random.u64(3 * i + 2) % 255));
    }
    return wrong;
}

/// Places of the elements, or of the checksums, of all arrays.
std::vector<Span> places_of(const TwoCheckpoints& files, const std::string& top) {
    const hdf5::File file = hdf5::File::open(files.path);
    std::vector<Span> places;
    for (const CheckpointTensor& tensor : files.newer.tensors) {
        const hdf5::Dataset array = file.dataset(top + tensor.path);
        places.push_back(
            {size_t(*array.offset()), size_t(array.shape().count() * hdf5::size_of(array.type()))});
    }
    return places;
}

}  // namespace

TEST_CASE("damage: a changed byte is never loaded", "[checkpoint]") {
    const TwoCheckpoints files;
    REQUIRE(files.load() == "unhurt");
    const auto elements = places_of(files, ""), checksums = places_of(files, "checksum/");
    const auto some = [&](const std::vector<Span>& places) {
        return bounded(files.folder / "said", [&] { return flip_some(files, places, 100); });
    };
    CHECK(some({{0, files.sound.size()}}) == "");  // most of these bytes belong to HDF5
    CHECK(some(elements) == "");
    CHECK(some(checksums) == "");
    const TrainRecord train = record_of(2);
    for (const std::string& text : {train.deck, train.model, train.version}) {
        const size_t at = files.sound.find(text);
        REQUIRE(at != std::string::npos);
        CHECK(some({{at, text.size()}}) == "");
    }
}

TEST_CASE("damage: a changed byte in a part of several files is never loaded", "[checkpoint]") {
    const TwoCheckpoints files(2);
    REQUIRE(files.load() == "unhurt");
    CHECK(bounded(files.folder / "said", [&] {
              return flip_some(files, {{0, files.sound.size()}}, 100);
          }) == "");
}

TEST_CASE("damage: a file without its end is never loaded", "[checkpoint]") {
    const TwoCheckpoints files;
    const RandomStream random(4, "ends of files");
    CHECK(bounded(files.folder / "said", [&] {
              std::string wrong;
              for (uint64_t i = 0; i < 100; ++i) {
                  const size_t end = random.u64(i) % files.sound.size();
                  test::write_file(files.path, files.sound.substr(0, end));
                  if (const std::string came = files.load(); came != "skipped")
                      wrong += fmt::format("cut at byte {}: {}\n", end, came);
              }
              return wrong;
          }) == "");
}

TEST_CASE("soak: every byte of a checkpoint is changed in turn", "[.soak]") {
    const TwoCheckpoints files;
    for (size_t first = 0; first < files.sound.size(); first += 1000)
        CHECK(bounded(files.folder / "said", [&] {
                  std::string wrong;
                  for (size_t at = first; at < std::min(first + 1000, files.sound.size()); ++at)
                      for (const int flip : {1, 0x80, 0xff}) wrong += flipped(files, at, char(flip));
                  return wrong;
              }) == "");
}
