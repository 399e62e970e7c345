// SPDX-License-Identifier: Apache-2.0
// Texts that a mesh writes are those of one rank, on all of its ranks: drawn tokens too, also if slots are
// used again and texts become longer than the context. Errors are those of all ranks.
#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/generate/text_writer.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A tokenizer of single bytes, of each rank.
const Tokenizer& bytes_tokenizer() {
    static const TemporaryFolder folder;
    static const Tokenizer tokenizer = [] {
        write_file(folder / "text", "ab");
        train_tokenizer(Corpus({folder / "text"}), 258, folder / "tokenizer", 1);
        return Tokenizer(folder / "tokenizer");
    }();
    return tokenizer;
}

// Layers of the first kinds of attention and of experts.
MeshCase writing_case(const MeshShape& mesh, int experts) {
    MeshCase c = {.mesh = mesh, .model = tiny_config()};
    c.model.layers = mesh.pp > 2 ? 6 : 3;
    c.model.vocab = bytes_tokenizer().vocab_size() + 3;
    c.model.grouped().heads = 8;
    c.model.grouped().kv_heads = 4;
    c.model.grouped().head_dim = 4;
    set_experts(c.model, experts);
    set_expert_ranks(c, 1);
    return c;
}

std::vector<std::string> written_on(const MeshCase& c, const Mesh& mesh, int64_t sequences,
                                    const TextWriterOptions& options) {
    Generator generator(c.model, Dtype::f64, 12, sequences, {.mesh = mesh});
    generator.decoder().parameters().initialise(5, 1);
    generator.weights_changed();
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 11; ++i)
        prompts.push_back(bytes_tokenizer().encode(std::string(size_t(1 + i * i % 7), char('a' + i))));
    std::vector<std::string> texts(prompts.size());
    TextWriter(generator, bytes_tokenizer(), options)
        .write(
            prompts, [](size_t, const std::string&) {},
            [&](size_t number, const Written& written) {
                texts.at(number) = fmt::format("{} {}: {}", number, written.finish, written.text);
            });
    return texts;
}

}  // namespace

TEST_CASE("generation: every mesh writes the texts of one rank") {
    const Communicator world = Communicator::world("world");
    const std::vector<MeshShape> all =
        meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp});
    for (size_t i = 0; i < all.size(); ++i) {
        const MeshCase c = writing_case(all[i], i % 2 == 0 ? 1 : 0);
        const Mesh mesh(world.split(0, "a mesh of ranks that write"), c.mesh);
        for (const double temperature : {0.0, 1.0}) {
            CAPTURE(c.name(), temperature);
            const TextWriterOptions options = {
                .sampling = {.temperature = temperature, .seed = 5}, .length = 9, .stops = {"q"}};
            const std::vector<std::string> should = written_on(c, mesh_of_one(), 4, options);
            CHECK(written_on(c, mesh, 2, options) == should);
        }
    }
}

TEST_CASE("generation: what is wrong on one rank is the same error on all") {
    const Communicator world = Communicator::world("world");
    const int last = world.size() - 1;
    for (const MeshShape& shape : {MeshShape{.dp_shard = world.size()}, MeshShape{.tp = world.size()},
                                   MeshShape{.pp = world.size()}}) {
        CAPTURE(shape.text());
        const MeshCase c = writing_case(shape, 0);
        const Mesh mesh(world.split(0, "a mesh of ranks that fail"), shape);
        const GeneratorPlace too_small = {.mesh = mesh, .memory_bytes = world.rank() == last ? 1000 : 0};
        CHECK_THROWS_WITH(Generator(c.model, Dtype::f64, 12, 2, too_small),
                          Contains("only 1000 B is available") &&
                              Contains("Reduce --context or --batch, set --dtype=bfloat16, or use more ranks "
                                       "(parallelism."));
        CHECK_THROWS_AS(Generator(c.model, Dtype::f64, 12, 2, too_small), ConfigError);

        Generator generator(c.model, Dtype::f64, 12, 2, {.mesh = mesh});
        generator.decoder().parameters().initialise(5, 1);
        if (world.rank() == last) {
            const Tensor weights = generator.decoder().parameters().storages().back().master;
            for (int64_t i = 0; i < weights.count(); ++i) set_element(weights, i, std::nan(""));
        }
        generator.weights_changed();
        TextWriter writer(generator, bytes_tokenizer(), {});
        const auto write = [&] {
            writer.write(
                {{1, 2}}, [](size_t, const std::string&) {}, [](size_t, const Written&) {});
        };
        CHECK_THROWS_AS(write(), NotFiniteError);
    }
    if (world.size() > 1)
        CHECK_THROWS_WITH(
            Generator(tiny_config(1), Dtype::f64, 12, 1, {.mesh = Mesh::planned({.pp = 4}, world.rank())}),
            "parallelism.pipeline_parallel_degree = 4: the model has 1 layer, so the largest valid value is "
            "3");
}
