// SPDX-License-Identifier: Apache-2.0
// The speed of checkpoints, next to what the disk can do:
//     mpirun -n 4 build/bench/mpi_checkpoint [FOLDER, which is created]
// The state is about 1 GiB; the ranks divide its rows as FSDP does. The measurements alternate; the figures
// are medians of 5:
// - save, next to a plain write of the same bytes by the same ranks (pwrite into one shared file, fsync)
// - load, next to a plain read of the same bytes (pread); the page cache is dropped before both
// - the time that training waits for an asynchronous save, as a fraction of the time of a synchronous one
// The last lines say whether the goals are reached: 80 % of the plain speeds, 5 % of the time.
#include "coeus/base/clock.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/io/async_checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <vector>

using namespace coeus;
namespace fs = std::filesystem;

namespace {

constexpr int rounds = 5;
constexpr double wanted_speed = 0.8, wanted_stall = 0.05;

// A model's matrices and vectors with both moments; one array in 25 is small.
struct State {
    std::deque<OwnedTensor> memory;
    std::vector<CheckpointTensor> tensors;
    int64_t own_bytes = 0, bytes = 0;

    explicit State(const Communicator& ranks) {
        for (const char* group : {"model/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"})
            for (int i = 0; i < 44; ++i) {
                add(ranks, fmt::format("{}layers.{}.weight", group, i), {2048, 1024});
                if (i % 12 == 0) add(ranks, fmt::format("{}layers.{}.norm.weight", group, i), {2048});
            }
    }
    void add(const Communicator& ranks, const std::string& path, const Shape& shape) {
        const int64_t rows = div_ceil(shape.rows(), ranks.size()), first = ranks.rank() * rows;
        Shape own = shape;
        own[0] = std::min(rows, shape.rows() - first);
        const Tensor local = memory.emplace_back(Dtype::f32, own);
        for (int64_t i = 0; i < local.count(); ++i)
            static_cast<float*>(local.data)[i] = float(first + i) * 1e-3f;
        tensors.push_back({.path = path, .shape = shape, .dtype = Dtype::f32, .blocks = {{local, first}}});
        own_bytes += local.bytes();
        bytes += shape.count() * size_of(Dtype::f32);
    }
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The seconds that the slowest rank takes.
template <class Work>
double timed(const Communicator& ranks, const Work& work) {
    ranks.barrier();
    const Timer timer;
    work();
    ranks.barrier();
    return timer.seconds();
}

// Moves every rank's parts of the arrays, each at its place in one file.
template <class Move>
void for_each_part(const State& state, const Move& move) {
    int64_t place = 0;
    for (const CheckpointTensor& tensor : state.tensors) {
        const int64_t row = tensor.shape.cols() * size_of(Dtype::f32);
        for (const HeldBlock& block : tensor.blocks) move(block.local, place + block.first_row * row);
        place += tensor.shape.count() * size_of(Dtype::f32);
    }
}

double plain_write(const State& state, const std::string& path, const Communicator& ranks) {
    return timed(ranks, [&] {
        on_first_rank(ranks, [&] { RawFile::create(path); });
        RawFile file = RawFile::open_for_update(path);
        for_each_part(state, [&](Tensor part, int64_t place) { file.write(part.data, part.bytes(), place); });
        file.sync();
    });
}

double plain_read(const State& state, const std::string& path, const Communicator& ranks) {
    return timed(ranks, [&] {
        const RawFile file = RawFile::open(path);
        for_each_part(state, [&](Tensor part, int64_t place) { file.read(part.data, part.bytes(), place); });
    });
}

void drop_from_cache(const std::string& path, const Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 0) {
        const int file = open(path.c_str(), O_RDONLY);
        fsync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
    ranks.barrier();
}

void remove(const std::string& path, const Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 0) fs::remove(path);
    ranks.barrier();
}

struct Medians {
    double plain_write = 0, save = 0, plain_read = 0, load = 0;
};

Medians measure_in_turns(const State& state, const std::string& folder, const Communicator& ranks) {
    const std::string plain = folder + "/plain";
    const CheckpointStore checkpoint(folder, 0, ranks);
    std::vector<double> writes, saves, reads, loads;
    for (int64_t round = 0; round < rounds; ++round) {
        writes.push_back(plain_write(state, plain, ranks));
        saves.push_back(timed(ranks, [&] { checkpoint.save({.step = round}, state.tensors); }));
        const std::string saved = checkpoint.folder().path_of(round);
        drop_from_cache(plain, ranks);
        reads.push_back(plain_read(state, plain, ranks));
        drop_from_cache(saved, ranks);
        loads.push_back(timed(ranks, [&] { load_checkpoint(saved, state.tensors, ranks); }));
        remove(plain, ranks);
        remove(saved, ranks);
    }
    return {median(writes), median(saves), median(reads), median(loads)};
}

// Stands in for a forward and backward: a fixed amount of work that does not touch the state.
double compute(int64_t sweeps) {
    static std::vector<float> values(1 << 14, 1.5f);
    for (int64_t sweep = 0; sweep < sweeps; ++sweep)
        for (float& value : values) value = value * 0.999f + 0.001f;
    return values[0];
}

struct Stall {
    double waited = 0, step = 0, step_while_saving = 0;  // seconds, medians
};

Stall measure_stall(const State& state, const std::string& folder, const Communicator& ranks) {
    const CheckpointStore checkpoint(folder, 2, ranks);
    AsyncCheckpoint beside(checkpoint, ranks, state.tensors);
    compute(1000);
    const Timer timer;
    compute(10000);
    const auto sweeps = int64_t(ranks.all_reduce(10000 / timer.seconds(), Reduce::max));  // about a second
    std::vector<double> waited, quiet, saving;
    bool is_saving = false;
    for (int64_t step = 1; step <= 6 * rounds; ++step) {
        const double seconds = timed(ranks, [&] {
            compute(sweeps);
            beside.wait_for_copies();
            for (const CheckpointTensor& tensor : state.tensors)
                for (const HeldBlock& block : tensor.blocks)
                    for (int64_t i = 0; i < block.local.count(); ++i)
                        static_cast<float*>(block.local.data)[i] += 1;
        });
        (is_saving ? saving : quiet).push_back(seconds);
        std::optional<SavedCheckpoint> done = beside.poll();
        if (step % 6 == 0) done = beside.finish();
        if (done) {
            waited.push_back(done->seconds_waited);
            is_saving = false;
        }
        if (step % 6 == 1) {
            beside.begin({.step = step});
            is_saving = true;
        }
    }
    return {median(waited), median(quiet), median(saving)};
}

void say(const char* what, double share, double wanted, bool at_least) {
    const bool reached = at_least ? share >= wanted : share < wanted;
    fmt::print("  {:<44} {:>5.1f} %, wanted {} {:.0f} %: {}\n", what, 100 * share,
               at_least ? "at least" : "less than", 100 * wanted, reached ? "reached" : "MISSED");
}

}  // namespace

int main(int argc, char** argv) {
    const MpiRuntime mpi(&argc, &argv);
    const Communicator ranks = Communicator::world("world");
    const std::string folder = argc > 1 ? argv[1] : "build/bench/checkpoint.files";
    if (ranks.rank() == 0) fs::create_directories(folder);
    {
        const State state(ranks);
        const Medians m = measure_in_turns(state, folder, ranks);
        const Stall stall = measure_stall(state, folder, ranks);
        const auto speed = [&](double seconds) { return bytes_text(double(state.bytes) / seconds) + "/s"; };
        if (ranks.rank() == 0) {
            fmt::print("{} of state in {} arrays, {} {}, medians of {}\n", bytes_text(double(state.bytes)),
                       state.tensors.size(), ranks.size(), ranks.size() == 1 ? "rank" : "ranks", rounds);
            fmt::print("  plain write {}, save {}; plain read {}, load {}\n", speed(m.plain_write),
                       speed(m.save), speed(m.plain_read), speed(m.load));
            fmt::print("  a step takes {:.2f} s, and {:.2f} s during an asynchronous save\n", stall.step,
                       stall.step_while_saving);
            say("save, relative to a plain write", m.plain_write / m.save, wanted_speed, true);
            say("load, relative to a plain read", m.plain_read / m.load, wanted_speed, true);
            say("waits, relative to a synchronous save", stall.waited / m.save, wanted_stall, false);
        }
    }
    ranks.barrier();
    if (ranks.rank() == 0) fs::remove_all(folder);
    return 0;
}
