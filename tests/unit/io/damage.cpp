// SPDX-License-Identifier: Apache-2.0
// One byte of a checkpoint changed, or its end missing, wherever that may be: it is passed over for the one
// before.
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

/// A folder with two checkpoints, of which the newer one will be damaged; of several files: the first part.
struct TwoCheckpoints {
    test::TemporaryFolder folder;
    Communicator self = Communicator::self();
    CheckpointStore checkpoint;
    CheckpointState older{Dtype::f32}, newer{Dtype::f32, 20};
    std::string newest, path, sound;  // of the newer one: name, the file that is damaged, and its bytes

    explicit TwoCheckpoints(int64_t files = 1) : checkpoint(folder.path(), 0, self, files) {
        checkpoint.save(record_of(1), older.tensors);
        newest = checkpoint.save(record_of(2), newer.tensors).path;
        path = files > 1 ? (folder / "step-00000002.parts/0.h5").string() : newest;
        sound = test::read_file(path);
    }

    /// Loads what is newest and sound. "passed over", "unhurt", or what went wrong.
    std::string load() const {
        CheckpointState state(Dtype::f32, -3);
        try {
            const auto found = checkpoint.load_newest(state.tensors);
            const bool same = found && found->path == newest;
            const TrainRecord should = record_of(same ? 2 : 1);
            if (!found || found->train != should) return "another record was loaded";
            if (state.bytes() != (same ? newer : older).bytes()) return "another state was loaded";
            return same ? "unhurt" : "passed over";
        } catch (const std::exception& error) {
            return error.what();
        }
    }
};

/// Runs in a process of its own that may neither take much memory nor much time; what it returns.
std::string bounded(const fs::path& said, const std::function<std::string()>& body) {
    const pid_t child = fork();
    if (child == 0) {
#ifndef __SANITIZE_ADDRESS__  // takes terabytes of addresses
        const rlimit memory{rlim_t(1) << 30, rlim_t(1) << 30};
        setrlimit(RLIMIT_AS, &memory);
#endif
        // of the processor's time, which other processes do not take
        const itimerval most = {{0, 0}, {120, 0}};
        setitimer(ITIMER_PROF, &most, nullptr);
        const int nowhere = open("/dev/null", O_WRONLY);  // hundreds of warnings
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

/// Loads with the bits `flip` of a byte changed. Says what was wrong with that, or "".
std::string flipped(const TwoCheckpoints& files, size_t at, char flip) {
    std::string bytes = files.sound;
    bytes[at] = char(bytes[at] ^ flip);
    test::write_file(files.path, bytes);
    const std::string came = files.load();
    if (came == "passed over") return "";
    return fmt::format("byte {} changed by {:#04x}: {}\n", at, uint8_t(flip), came);
}

/// So many random bytes of these places.
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

/// Elements, or checksums, of all arrays.
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
    CHECK(some({{0, files.sound.size()}}) == "");  // most of it is of HDF5
    CHECK(some(elements) == "");
    CHECK(some(checksums) == "");
    const TrainRecord train = record_of(2);
    for (const std::string& text : {train.deck, train.model, train.version}) {
        const size_t at = files.sound.find(text);
        REQUIRE(at != std::string::npos);
        CHECK(some({{at, text.size()}}) == "");
    }
}

TEST_CASE("damage: nor is one of a part of several files", "[checkpoint]") {
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
                  if (const std::string came = files.load(); came != "passed over")
                      wrong += fmt::format("cut at byte {}: {}\n", end, came);
              }
              return wrong;
          }) == "");
}

TEST_CASE("soak: every byte of a checkpoint changed in turn", "[.soak]") {
    const TwoCheckpoints files;
    for (size_t first = 0; first < files.sound.size(); first += 1000)
        CHECK(bounded(files.folder / "said", [&] {
                  std::string wrong;
                  for (size_t at = first; at < std::min(first + 1000, files.sound.size()); ++at)
                      for (const int flip : {1, 0x80, 0xff}) wrong += flipped(files, at, char(flip));
                  return wrong;
              }) == "");
}
