// SPDX-License-Identifier: Apache-2.0
// The bytes of a checkpoint that a rank reads, as the kernel counts them, are the bytes of its own shards.
#include "coeus/io/checkpoint.hpp"
#include "mpi/io/groups.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;

namespace {

/// The bytes that this process has asked the kernel for, from the page cache or not; -1 if the kernel does
/// not count them.
int64_t bytes_read() {
    std::ifstream counters("/proc/self/io");
    std::string name;
    for (int64_t value = 0; counters >> name >> value;)
        if (name == "rchar:") return value;
    return -1;
}

/// A model of 0.8 million parameters that every mesh of 1, 2 or 4 ranks divides evenly.
DecoderConfig model_to_read() {
    DecoderConfig model = tiny_config(4);
    model.dim = 128;
    model.grouped().heads = model.grouped().kv_heads = 4;
    model.grouped().head_dim = 32;
    model.feed_forward.hidden = 256;
    model.vocab = 512;
    model.ffn_rule.reset();
    return model;
}

int64_t own_bytes(const std::vector<CheckpointTensor>& tensors) {
    int64_t bytes = 0;
    for (const CheckpointTensor& tensor : tensors) bytes += tensor.count() * size_of(tensor.dtype);
    return bytes;
}

}  // namespace

TEST_CASE("a rank reads only its own bytes of a checkpoint") {
    const Communicator world = Communicator::world("world");
    const int ranks = world.size();
    if (bytes_read() < 0) return skip("this kernel does not count the bytes that a process reads");
    std::vector<MeshShape> meshes = {
        {.dp_shard = ranks}, {.tp = ranks}, {.pp = ranks}, {.dp_replicate = ranks}};
    if (ranks == 4) meshes.push_back({.dp_shard = 2, .tp = 2});
    // The counter's own text and a few bytes of messages. Rank 0 also reads each array's header and
    // checksums, and reads everything but elements and checksums once more, before HDF5 parses it.
    constexpr int64_t messages = 4 << 10, headers = 4 << 10;
    for (const MeshShape& shape : meshes) {
        const Mesh mesh(Communicator::world("mesh"), shape);
        MeshCase c = {.mesh = shape, .model = model_to_read(), .types = {Dtype::f32, Dtype::f32}};
        if (shape.pp > 1) c.pipeline = pipeline_of("1F1B", ranks, ranks, 1, c.model);
        c.sequences = shape.pp;
        const MeshRun run(c, mesh);
        const std::vector<CheckpointTensor> tensors =
            checkpoint_tensors(run.engine.model().parameters(), true);
        const SharedFolder folder(world);
        const std::string path = CheckpointStore(folder.path, 0, world).save({.step = 1}, tensors).path;
        int64_t whole = 0;
        for (const CheckpointTensor& tensor : tensors) whole += tensor.shape.count() * size_of(Dtype::f32);
        const int64_t before = bytes_read();
        load_checkpoint(path, tensors, world);
        const int64_t read = bytes_read() - before, own = own_bytes(tensors);
        INFO(c.name() << ", rank " << world.rank());
        CAPTURE(read, own, tensors.size());
        CHECK(world.all_reduce(own) >= whole);
        CHECK(read >= own);
        CHECK(read <= own + messages + (world.rank() == 0 ? headers * int64_t(tensors.size()) : 0));
    }
}
