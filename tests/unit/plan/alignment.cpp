// SPDX-License-Identifier: Apache-2.0
// Where the operands of products lie on a GPU: cuBLASLt's fastest kernels (TMA) take addresses, and distances
// between rows, that are multiples of 16 bytes.
#include "coeus/deck/command_line.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <set>
#include <string_view>

using namespace coeus;

namespace {

// In which order queues work does not matter here.
class NoOrder : public QueueObserver {
public:
    int64_t mark(const Queue& /*queue*/) override { return 0; }
    void wait(const Queue& /*queue*/, const Queue& /*other*/, int64_t /*point*/) override {}
};

// Notes the operands of products that are not aligned, and counts the products.
class Alignment : public KernelObserver {
public:
    void begin(const char* kernel, double /*flops*/, double /*bytes*/) override { kernel_ = kernel; }
    void begin_exchange(Exchange /*exchange*/, double /*bytes*/) override { kernel_ = ""; }
    void operands(std::span<const Tensor> tensors) override {
        if (kernel_.find("gemm") == std::string_view::npos) return;
        ++products_;
        for (size_t i = 0; i < std::min<size_t>(4, tensors.size()); ++i) {
            const Tensor& t = tensors[i];
            if (t.dtype == Dtype::i32 || t.count() == 0) continue;  // the groups of a product, or no operand
            const auto address = reinterpret_cast<uintptr_t>(t.data);
            if (t.ld * size_of(t.dtype) % pack != 0 || address % pack != 0)
                misplaced_.insert(fmt::format("{}: operand {} {} {}, rows {} apart, {} bytes after a pack",
                                              kernel_, i, name_of(t.dtype), t.shape.text(), t.ld,
                                              address % pack));
        }
    }
    void end() override {}

    int64_t products() const { return products_; }
    const std::set<std::string>& misplaced() const { return misplaced_; }

private:
    static constexpr int64_t pack = 16;
    std::string_view kernel_;
    int64_t products_ = 0;
    std::set<std::string> misplaced_;
};

// The products of a step on each of some ranks of a deck's mesh that are not aligned.
std::set<std::string> misplaced(const Words& more, int ranks) {
    Words words = {"--dry_run",
                   "--device=cuda",
                   "--training.seq_len=128",
                   "--training.dtype=bfloat16",
                   "--training.mixed_precision_param=bfloat16",
                   "--comm.transport=staged"};
    words.insert(words.end(), more.begin(), more.end());
    const Config config = parse_command_line(words).config;
    const DecoderConfig model = model_from_deck(config);
    Alignment alignment;
    NoOrder queues;
    for (const int rank : std::set<int>{0, ranks / 2, ranks - 1}) {
        EngineOptions options = planned_options(config, model, mesh_shape(config, ranks), 0, 1, rank);
        options.machine.architecture = 100;
        options.streams = Stream::Mode::eager;
        const auto device =
            make_planned_device(options.machine.backend, options.machine.architecture, queues);
        const Mesh mesh = Mesh::planned(options.mesh, rank);
        Engine engine(model, options);
        engine.allocate(mesh, *device, dry_kernels_of(options.machine.backend));
        const Observation observed = engine.observe(alignment);
        const std::vector<int32_t> ids(size_t(options.training.count()));
        const SampleRows rows = {.sequences = options.training.sequences,
                                 .seq_len = options.training.seq_len,
                                 .tokens = ids,
                                 .labels = ids};
        engine.compute_gradients(1, 0, 1, [&](int64_t) { return rows; });
        engine.update();
    }
    CHECK(alignment.products() > 0);
    return alignment.misplaced();
}

const std::set<std::string> none;

}  // namespace

TEST_CASE("alignment: every operand of a product, for vocabularies and widths that tp does not divide") {
    const Words odd = {"--model.flavor=debugmodel", "--model.vocab_size=50257", "--model.n_heads=12",
                       "--model.n_kv_heads=12",     "--model.head_dim=64",      "--model.ffn_hidden=1400"};
    for (const int tp : {1, 2, 4})
        for (const char* more : {"--model.name=llama3", "--model.name=qwen3",  // the latter is tied
                                 "--parallelism.disable_loss_parallel", "--training.document_mask",
                                 "--activation_checkpoint.mode=full"}) {
            CAPTURE(tp, more);
            Words words = odd;
            words.push_back(fmt::format("--parallelism.tensor_parallel_degree={}", tp));
            words.emplace_back(more);
            CHECK(misplaced(words, tp) == none);
        }
    Words grouped = odd;
    grouped.emplace_back("--model.n_kv_heads=3");
    CHECK(misplaced(grouped, 1) == none);
    CHECK(misplaced(grouped, 3) == none);  // FSDP
}

TEST_CASE("alignment: gradients of weights that a pipeline computes later, and experts") {
    CHECK(misplaced({"--model.flavor=debugmodel", "--model.vocab_size=50257",
                     "--parallelism.pipeline_parallel_degree=2",
                     "--parallelism.pipeline_parallel_schedule=ZBVZeroBubble",
                     "--parallelism.pipeline_parallel_microbatch_size=1", "--training.local_batch_size=4",
                     "--training.global_batch_size=4"},
                    2) == none);
    // 2880 columns divided by 16 are 180, which is not a multiple of 8
    CHECK(
        misplaced({"--model.name=gpt_oss", "--model.flavor=debugmodel", "--model.vocab_size=50257",
                   "--model.n_heads=16", "--model.n_kv_heads=16", "--parallelism.tensor_parallel_degree=16"},
                  16) == none);
}
