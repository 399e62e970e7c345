// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/record.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace coeus {

namespace {

// Numbers of distinct values, in the order in which they came.
template <class Value>
class Numbered {
public:
    explicit Numbered(std::vector<Value>& all) : all_(all) {}
    uint32_t number(const Value& value) {
        const auto [known, is_new] = numbers_.try_emplace(value, uint32_t(all_.size()));
        if (is_new) all_.push_back(value);
        return known->second;
    }

private:
    std::vector<Value>& all_;
    std::map<Value, uint32_t> numbers_;
};

bool is_product(const Call& call) {
    return call.kernel.find("gemm") != std::string::npos;
}

class Recorder final : public KernelObserver, public CommunicationObserver {
public:
    Recorder(Recording& recording, const Mesh& mesh)
        : recording_(recording), calls_(recording.calls), collectives_(recording.collectives) {
        // axes with the same name have the same ranks
        for (const unsigned axes :
             {unsigned(axis::pp), unsigned(axis::dp_replicate), unsigned(axis::dp_shard), unsigned(axis::cp),
              unsigned(axis::tp), axis::dp, axis::fsdp, loss_axes, owner_axes})
            axes_.try_emplace(mesh[axes].name(), axes);
        axes_.try_emplace(mesh.gradient_reduction().name(), axis::fsdp);
        if (mesh.shape().ep == 1) return;
        for (const unsigned axes : {axis::efsdp, axis::ep, axis::etp})
            axes_.try_emplace(mesh[axes].name(), axes);
        axes_.try_emplace(mesh.expert_gradient_reduction().name(), axis::efsdp);
    }

    void begin(const char* kernel, double flops, double bytes) override {
        open_.push_back(std::nullopt);
        call_ = {};
        call_.kernel = kernel;
        call_.flops = flops;
        call_.bytes = bytes;
    }
    void operands(std::span<const Tensor> tensors) override {
        if (is_exchange() || tensors.empty()) return;
        // a product may be in another type than its operands
        const size_t typical = is_product(call_) ? 1 : 0;
        call_.type = tensors[std::min(typical, tensors.size() - 1)].dtype;
        if (is_8_bit_float(call_.type)) call_.type = Dtype::fp8_e4m3;
    }
    void planned(const PlannedKernel& kernel) override {
        call_.variant = kernel.variant;
        call_.size = kernel.size;
        call_.launches = kernel.launches;
    }
    void begin_exchange(Exchange exchange, double /*bytes*/) override {
        open_.push_back(exchange);
        has_reduced_ = false;
    }
    void end() override {
        const std::optional<Exchange> ended = open_.back();
        open_.pop_back();
        if (!ended)
            add(Submitted::Kind::kernel, calls_.number(call_));
        else if (*ended == Exchange::gather_weights)
            add(Submitted::Kind::wait_for_gathers);
        else if (*ended == Exchange::reduce_gradients && !has_reduced_)
            add(Submitted::Kind::wait_for_room);
    }

    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& /*where*/, const Queue* /*queue*/) override {
        const auto axes = axes_.find(communicator);
        if (axes == axes_.end()) return 0;  // of the world: numbers of the host
        add(kind_of(operation), collectives_.number({operation, axes->second, double(bytes)}));
        return 0;
    }
    void end(int64_t /*event*/) override {}

private:
    bool is_exchange() const { return !open_.empty() && open_.back().has_value(); }
    Submitted::Kind kind_of(const std::string& operation) {
        const bool in_reduction = is_exchange() && *open_.back() == Exchange::reduce_gradients,
                   may_be_gather = !is_exchange() || *open_.back() == Exchange::gather_weights;
        if (in_reduction) {
            has_reduced_ = true;
            return Submitted::Kind::reduce;
        }
        return may_be_gather && operation == "all_gather" ? Submitted::Kind::gather
                                                          : Submitted::Kind::exchange;
    }
    void add(Submitted::Kind kind, uint32_t index = 0) {
        if (kind >= Submitted::Kind::wait_for_gathers && !recording_.submitted.empty() &&
            recording_.submitted.back().kind == kind)
            return;
        recording_.submitted.push_back({kind, index});
    }

    Recording& recording_;
    Numbered<Call> calls_;
    Numbered<Collective> collectives_;
    std::map<std::string, unsigned> axes_;  // by the name of a communicator
    Call call_;
    std::vector<std::optional<Exchange>> open_;  // what has begun; nothing: a kernel
    bool has_reduced_ = false;
};

}  // namespace

std::string Call::key() const {
    std::string text = fmt::format("{} {}", kernel, name_of(type));
    if (!variant.empty()) text += " " + variant;
    if (size[0] > 0) return fmt::format("{} {}x{}x{}", text, size[0], size[1], size[2]);
    return fmt::format("{} {:.0f} bytes", text, bytes);
}

int64_t Recording::launches() const {
    int64_t all = 0;
    for (const Submitted& operation : submitted)
        if (operation.kind == Submitted::Kind::kernel) all += calls[operation.index].launches;
    return all;
}

int64_t Recording::communications() const {
    return std::ranges::count_if(submitted, [](const Submitted& operation) {
        using enum Submitted::Kind;
        return operation.kind == gather || operation.kind == reduce || operation.kind == exchange;
    });
}

Recording record_step(const DecoderConfig& config, const EngineOptions& options) {
    if (options.types.offload)
        throw ConfigError("the transfers of offloaded state (training.enable_cpu_offload) are not recorded");
    EngineOptions recorded = options;
    recorded.streams = Stream::Mode::eager;  // the order in which work is submitted
    recorded.snapshot = false;
    const std::unique_ptr<Device> device = make_planned_device(options.backend, options.architecture);
    Mesh mesh = Mesh::planned(options.mesh, options.rank);
    Engine engine(config, recorded);
    engine.allocate(mesh, *device, dry_kernels_of(options.backend));

    Recording recording = {.mesh = options.mesh, .rank = options.rank};
    Recorder recorder(recording, mesh);
    mesh.observe(&recorder);
    const Observation observed = engine.observe(recorder);
    const BatchShape& batch = options.training;
    const std::vector<int32_t> ids(size_t(batch.count()));  // zeros: tokens, labels, and starts of documents
    const SampleRows rows = {
        .sequences = batch.sequences,
        .seq_len = batch.seq_len,
        .tokens = ids,
        .labels = ids,
        .document_start = batch.masks_documents ? std::span<const int32_t>(ids) : std::span<const int32_t>()};
    engine.compute_gradients(1, 0, 1, [&](int64_t) { return rows; });
    recording.submitted.push_back({Submitted::Kind::wait_for_gradients});
    engine.update();
    mesh.observe(nullptr);
    return recording;
}

}  // namespace coeus
