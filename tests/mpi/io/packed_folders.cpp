// SPDX-License-Identifier: Apache-2.0
// Quantized Hugging Face folders: on every mesh, each rank decodes the values that the decoded folder has.
#include "coeus/pretrained/pretrained.hpp"
#include "mpi/io/groups.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/packed_folder.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

using Weights = std::map<std::string, std::vector<double>>;

/// All master weights of a model after a mesh has loaded them from a folder.
Weights loaded(const std::string& folder, MeshCase c, const Mesh& mesh) {
    if (c.mesh.pp > 1) {
        c.sequences = c.mesh.pp;
        c.pipeline = pipeline_of("1F1B", c.mesh.pp, c.mesh.pp, 1, c.model);
    }
    const MeshRun run(c, mesh);
    Pretrained(folder, mesh.world()).load(decoder_of(run.engine.model()), mesh.world());
    return run.whole(&Storage::master);
}

}  // namespace

TEST_CASE("quantized folders give the decoded weights on every mesh and in every type") {
    const Communicator world = Communicator::world("world");
    const int ranks = world.size();
    std::vector<MeshShape> meshes = {
        {.dp_shard = ranks}, {.tp = ranks}, {.pp = std::min(ranks, 2), .tp = ranks > 2 ? 2 : 1}};
    if (ranks == 4) meshes.push_back({.dp_shard = 2, .tp = 2});
    for (const PackedModel& of : packed_models()) {
        const SharedFolder folder(world);
        const std::string quantized = folder.path + "/quantized", decoded = folder.path + "/decoded";
        if (world.rank() == 0) write_packed_folder(quantized, decoded, of);
        world.barrier();
        for (const StateTypes& types :
             {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::f32},
              StateTypes{Dtype::bf16, Dtype::bf16}}) {
            const MeshCase alone = {.model = of.model, .types = types};
            const Weights expected = loaded(decoded, alone, mesh_of_one());
            for (const MeshShape& shape : meshes) {
                MeshCase c = alone;
                c.mesh = shape;
                const Weights found = loaded(quantized, c, Mesh(Communicator::world("mesh"), shape));
                INFO(of.model.family << ", " << name_of(types.master) << ", " << c.name());
                for (const auto& [name, values] : expected) {
                    INFO(name);
                    CHECK((found.at(name) == values));
                }
            }
        }
    }
}
