// SPDX-License-Identifier: Apache-2.0
// Groups of 1, 2 and 4 ranks of one world write files and read each other's.
#include "coeus/device/memory.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "coeus/io/checksum.hpp"
#include "coeus/state/parameters.hpp"
#include "mpi/io/groups.hpp"
#include "support/catch.hpp"
#include "support/full_disk.hpp"

#include <algorithm>
#include <deque>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

double value(const std::string& path, int64_t index) {
    return double((int64_t(path.size()) + index * 13) % 251);  // exact in bfloat16
}

// stripes: the ranks take rows in turns; pieces: like replicated, but in three blocks
enum class Layout { replicated, rows, columns, stripes, pieces };

/// One rank's part of four arrays; one of them is large enough to be shared among replicas.
struct Part {
    std::deque<OwnedTensor> memory;
    std::vector<CheckpointTensor> tensors;

    Part(const Communicator& group, Layout layout, Dtype dtype, bool filled) {
        for (const char* path : {"model/a.weight", "optimizer/exp_avg/a.weight"})
            add(group, layout, dtype, filled, path, {1031, 520});
        add(group, layout, dtype, filled, "model/b.weight", {3, 7, 5});
        add(group, layout == Layout::columns ? Layout::replicated : layout, dtype, filled, "model/c", {13});
    }

    void add(const Communicator& group, Layout layout, Dtype dtype, bool filled, const std::string& path,
             const Shape& shape) {
        CheckpointTensor t{.path = path, .shape = shape, .dtype = dtype};
        const int64_t rows = shape.rows();
        const auto part_of = [&](int64_t n) {
            const int64_t each = div_ceil(n, group.size()), first = std::min(n, group.rank() * each);
            return std::pair(first, std::min(each, n - first));
        };
        if (layout == Layout::replicated || layout == Layout::pieces)
            t.replica = group.rank(), t.replicas = group.size();
        const auto hold = [&](std::pair<int64_t, int64_t> of_rows, std::pair<int64_t, int64_t> of_cols) {
            const auto& [first_row, count] = of_rows;
            const auto& [first_col, cols] = of_cols;
            // rows are stored three elements apart
            const Tensor local = memory.emplace_back(dtype, Shape{count, cols + 3}).view.slice_cols(0, cols);
            for (int64_t r = 0; r < count; ++r)
                for (int64_t c = 0; c < cols; ++c)
                    set_element(local.slice_rows(r, 1), c,
                                filled ? value(path, (first_row + r) * shape.cols() + first_col + c) : -1);
            t.blocks.push_back({local, first_row, first_col});
        };
        const auto hold_rows = [&](int64_t first, int64_t last) {
            hold({first, std::min(last, rows) - first}, {0, shape.cols()});
        };
        if (layout == Layout::stripes)
            for (int64_t first = group.rank() * 5; first < rows; first += group.size() * 5)
                hold_rows(first, first + 5);
        else if (layout == Layout::pieces)
            for (int64_t piece = 0; piece < 3; ++piece) hold_rows(piece * rows / 3, (piece + 1) * rows / 3);
        else
            hold(layout == Layout::rows ? part_of(rows) : std::pair(int64_t(0), rows),
                 layout == Layout::columns ? part_of(shape.cols()) : std::pair(int64_t(0), shape.cols()));
        tensors.push_back(t);
    }

    int64_t wrong() const {
        int64_t wrong = 0;
        for (const auto& t : tensors)
            for (const HeldBlock& block : t.blocks)
                for (int64_t r = 0; r < block.local.rows(); ++r)
                    for (int64_t c = 0; c < block.local.cols(); ++c)
                        wrong +=
                            !(element(block.local.slice_rows(r, 1), c) ==
                              value(t.path, (block.first_row + r) * t.shape.cols() + block.first_col + c));
        return wrong;
    }
};

const TrainRecord record{.step = 12,
                         .tokens_seen = 5,
                         .seed = 3,
                         .sample = 96,
                         .deck = "x = 1",
                         .version = "v",
                         .model = "m",
                         .guards = "{}"};

}  // namespace

TEST_CASE("checkpoints of any number of ranks have the same bytes and load on any other number") {
    const Communicator world = Communicator::world("world");
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const SharedFolder folder(world);
        const auto name = [&](int size, Layout layout) {
            return fmt::format("{}/{}-{}", folder.path, size, int(layout));
        };
        const auto layouts = {Layout::replicated, Layout::rows, Layout::columns, Layout::stripes,
                              Layout::pieces};
        for (int size = 1; size <= world.size(); size *= 2) {
            const Group group(world, size);
            if (group.takes_part && group.number == 0)
                for (Layout layout : layouts) {
                    const Part part(group.comm, layout, dtype, true);
                    const CheckpointStore checkpoint(name(size, layout), 1, group.comm);
                    if (layout != Layout::replicated && layout != Layout::columns) {  // asynchronously
                        AsyncCheckpoint beside(checkpoint, group.comm, part.tensors);
                        beside.begin(record);
                        CHECK(beside.finish().has_value());
                    } else {
                        checkpoint.save(record, part.tensors);
                    }
                }
            world.barrier();
        }
        const std::string first = test::read_file(name(1, Layout::replicated) + "/step-00000012.h5");
        CHECK(first.size() > 1000000);
        for (int size = 1; size <= world.size(); size *= 2)
            for (Layout layout : layouts) {
                INFO(size << " ranks, layout " << int(layout));
                const bool same = test::read_file(name(size, layout) + "/step-00000012.h5") == first;
                CHECK(same);
                const Group group(world, size);
                // all files are alike, so each group reads one that was written with another layout
                const std::string other = name(1, layout == Layout::rows ? Layout::columns : Layout::rows);
                if (group.takes_part) {
                    Part part(group.comm, layout, dtype, false);
                    const auto loaded = CheckpointStore(other, 1, group.comm).load_newest(part.tensors);
                    CHECK((loaded && loaded->train.sample == 96));
                    CHECK(part.wrong() == 0);
                }
            }
        world.barrier();
    }
}

TEST_CASE("several files of a checkpoint are the same bytes whatever wrote them, and load anywhere") {
    const Communicator world = Communicator::world("world");
    const SharedFolder folder(world);
    const char* const names[] = {"step-00000012.h5", "step-00000012.parts/0.h5", "step-00000012.parts/1.h5"};
    const auto written = [&](Layout layout) { return fmt::format("{}/{}", folder.path, int(layout)); };
    for (Layout layout :
         {Layout::replicated, Layout::rows, Layout::columns, Layout::stripes, Layout::pieces}) {
        const Part part(world, layout, Dtype::f32, true);
        const CheckpointStore checkpoint(written(layout), 1, world, 2);
        if (layout == Layout::rows) {
            AsyncCheckpoint beside(checkpoint, world, part.tensors);
            beside.begin(record);
            CHECK(beside.finish().has_value());
        } else {
            checkpoint.save(record, part.tensors);
        }
        for (const char* name : names) {
            INFO(name << ", layout " << int(layout));
            const bool same = test::read_file(written(layout) + "/" + name) ==
                              test::read_file(written(Layout::replicated) + "/" + name);
            CHECK(same);
        }
        Part other(world, layout == Layout::rows ? Layout::columns : Layout::rows, Dtype::f32, false);
        CHECK(checkpoint.load_newest(other.tensors)->train.sample == 96);
        CHECK(other.wrong() == 0);
        Part alone(Communicator::self(), Layout::replicated, Dtype::f32, false);
        load_checkpoint(written(layout) + "/" + names[0], alone.tensors, Communicator::self());
        CHECK(alone.wrong() == 0);
        world.barrier();
    }
}

TEST_CASE("damage is found by all ranks, and an error of one rank is the error of all") {
    const Communicator world = Communicator::world("world");
    const SharedFolder folder(world);
    const CheckpointStore checkpoint(folder.path, 0, world);
    Part part(world, Layout::rows, Dtype::f32, true);
    const std::string path = checkpoint.save(record, part.tensors).path;
    if (world.rank() == 0) {
        const int64_t at = *hdf5::File::open(path).dataset("model/b.weight").offset() + 20 * 5 * 4;
        std::string bytes = test::read_file(path);
        bytes[size_t(at)] = char(bytes[size_t(at)] ^ 1);
        test::write_file(path, bytes);
    }
    world.barrier();
    std::string message;
    try {
        checkpoint.load_newest(part.tensors);
    } catch (const ConfigError& error) {
        message = error.what();
    }
    CHECK_THAT(message, Contains("rows 0 to 20 of model/b.weight do not match their checksum"));

    // the last rank asks for a shape that the file does not have
    if (world.rank() == world.size() - 1) part.tensors[2].shape = {3, 7, 6};
    message.clear();
    try {
        load_checkpoint(path, part.tensors, world);
    } catch (const ConfigError& error) {
        message = error.what();
    }
    CHECK_THAT(message, Contains("b.weight is [3, 7, 5] in the file, [3, 7, 6] in this model"));

    message.clear();
    try {
        CheckpointStore(path + "/below a file", 0, world).save(record, part.tensors);
    } catch (const ConfigError& error) {
        message = error.what();
    }
    CHECK_THAT(message, Contains("is not saved") && Contains("Not a directory"));
}

TEST_CASE(
    "if one rank cannot write an asynchronous save, it fails on all ranks, and the next save succeeds") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 1) return;
    const SharedFolder folder(world);
    const CheckpointStore checkpoint(folder.path, 0, world);
    Part part(world, Layout::rows, Dtype::f32, true);
    AsyncCheckpoint beside(checkpoint, world, part.tensors);
    beside.begin(record);
    CHECK(beside.finish().has_value());
    TrainRecord later = record;
    later.step = 13;
    std::string message;
    {
        std::optional<FullDisk> full;
        if (world.rank() == world.size() - 1) full.emplace();
        world.barrier();
        beside.begin(later);
        try {
            while (!beside.poll()) {
            }
        } catch (const SystemError& error) {
            message = error.what();
        }
        world.barrier();
    }
    CHECK_THAT(message, Contains("step-00000013.h5 is not saved: rank " + std::to_string(world.size() - 1)) &&
                            Contains("File too large") &&
                            Contains("the newest good checkpoint is " + checkpoint.folder().path_of(12)));
    CHECK(list_checkpoints(folder.path).size() == 1);
    world.barrier();
    later.step = 14;
    beside.begin(later);
    CHECK(beside.finish().has_value());
    Part loaded(world, Layout::rows, Dtype::f32, false);
    CHECK(checkpoint.load_newest(loaded.tensors)->train == later);
    CHECK(loaded.wrong() == 0);
}

TEST_CASE("sums over ranks wrap like uint64") {
    const Communicator world = Communicator::world("world");
    const uint64_t large = 0xfedcba9876543210u + uint64_t(world.rank());
    uint64_t expected = 0;
    for (int rank = 0; rank < world.size(); ++rank) expected += 0xfedcba9876543210u + uint64_t(rank);
    const auto sums = sum_over_ranks({large, 1, ~uint64_t(0)}, world);
    CHECK(sums[0] == expected);
    CHECK(sums[1] == uint64_t(world.size()));
    CHECK(sums[2] == uint64_t(0) - uint64_t(world.size()));
}

TEST_CASE("parameters of several groups and shardings are stored as the same arrays as on one rank") {
    const Communicator world = Communicator::world("world");
    const SharedFolder folder(world);
    const int ranks = world.size(), rank = world.rank();
    struct Weights {
        Parameters parameters;

        Weights(int64_t groups, const ShardPlace& dense, const ShardPlace& other)
            : parameters({Dtype::f32, Dtype::f32}, dense) {
            const size_t others = parameters.add_sharding(other);
            const auto param = [&](const char* name, int64_t rows, int64_t cols, size_t sharding) {
                return Param{.name = name,
                             .shape = {groups, rows / groups, cols},
                             .init = Init::normal(1),
                             .shard = {.sharding = sharding},
                             .groups = groups};
            };
            parameters.add({param("a", 12, 5, dense_sharding), param("b", 6, 5, dense_sharding)});
            parameters.add(
                {param("c", 1206, 260, others), param("d", 6, 260, others)});  // shared among replicas
            parameters.allocate(true);
        }
        std::vector<double> values() const {
            std::vector<double> all;
            parameters.for_each_owned([&](const OwnedRows& rows) {
                for (int64_t i = 0; i < rows.master.count(); ++i) all.push_back(element(rows.master, i));
            });
            return all;
        }
    };
    const ShardPlace divided = {.fsdp = ranks, .fsdp_rank = rank}, whole = {};
    const ShardPlace replicated = {.replicas = ranks, .replica = rank};
    for (const int64_t groups : {1, 3}) {
        Weights many(groups, divided, replicated), one(groups, whole, whole);
        many.parameters.initialise(3, 1);
        one.parameters.initialise(3, 1);
        const auto written = [&](const char* name) {
            return fmt::format("{}/{}-{}", folder.path, name, groups);
        };
        CheckpointStore(written("many"), 1, world).save(record, checkpoint_tensors(many.parameters, true));
        const Group alone(world, 1);
        if (rank == 0)
            CheckpointStore(written("one"), 1, alone.comm)
                .save(record, checkpoint_tensors(one.parameters, true));
        world.barrier();
        const auto bytes = [&](const char* name) {
            return test::read_file(written(name) + "/step-00000012.h5");
        };
        const bool same = bytes("many") == bytes("one");
        CHECK(same);
        Weights again(groups, divided, replicated);
        REQUIRE(CheckpointStore(written("one"), 1, world)
                    .load_newest(checkpoint_tensors(again.parameters, true)));
        CHECK(again.values() == many.values());
        world.barrier();
    }
}
