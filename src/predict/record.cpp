// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/record.hpp"

#include "coeus/base/error.hpp"
#include "coeus/pipeline/executor.hpp"

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

// The purpose of what is submitted during an exchange.
Purpose purpose_of(Exchange exchange) {
    if (exchange == Exchange::gather_weights) return Purpose::weights;
    if (exchange == Exchange::reduce_gradients) return Purpose::gradients;
    if (exchange == Exchange::gather_matrix_parts) return Purpose::others;
    switch (axis_of(exchange)) {
        case ExchangeAxis::pp: return Purpose::stages;
        case ExchangeAxis::tp: return Purpose::tensor;
        case ExchangeAxis::cp: return Purpose::context;
        case ExchangeAxis::ep: return Purpose::experts;
        default: return Purpose::others;
    }
}

// The purpose of what is submitted ahead, before anything waits for it.
Purpose purpose_of(const std::string& operation, unsigned axes) {
    if (operation == "all_gather") return Purpose::weights;
    if (operation != "send_receive" && operation != "peer_copy") return Purpose::others;
    if (axes == axis::pp) return Purpose::stages;
    return axes == axis::tp ? Purpose::tensor : Purpose::context;
}

// The call of a kernel, from what observers are told of it.
class ObservedCall {
public:
    void begin(const char* kernel, double flops, double bytes) {
        call_ = {};
        call_.kernel = kernel;
        call_.flops = flops;
        call_.bytes = bytes;
        elements_in_8_bits_ = 0;
    }
    void operands(std::span<const Tensor> tensors) {
        if (tensors.empty()) return;
        // products and attention may be in another type than their results: that of a, q, dout
        const size_t typical = is_product(call_)                      ? 1
                               : call_.kernel == "attention"          ? 2
                               : call_.kernel == "merge_attention"    ? 2
                               : call_.kernel == "attention_backward" ? 3
                                                                      : 0;
        call_.type = tensors[std::min(typical, tensors.size() - 1)].dtype;
        if (is_8_bit_float(call_.type)) call_.type = Dtype::fp8_e4m3;
        for (const Tensor& t : tensors)
            if (is_8_bit_float(t.dtype)) elements_in_8_bits_ += double(t.count());
    }
    void planned(const PlannedKernel& kernel) {
        call_.variant = kernel.variant;
        call_.size = kernel.size;
        call_.launches = kernel.launches;
        call_.more_bytes = kernel.more_bytes;
        if (call_.variant == "decoded" || call_.variant == "converted") call_.type = Dtype::bf16;
        // decoding reads 1 byte of an element and writes 2, and the product reads 1 more than of a code
        if (call_.variant == "decoded") call_.more_bytes = 4 * elements_in_8_bits_;
    }
    const Call& call() const { return call_; }

private:
    Call call_;
    double elements_in_8_bits_ = 0;  // of the operands
};

class Recorder final : public KernelObserver,
                       public CommunicationObserver,
                       public QueueObserver,
                       public ActionObserver {
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

    // Records from now on.
    void start(const Queue& computation) {
        number_of(computation);
        records_ = true;
    }
    void stop() { records_ = false; }
    // A kernel of another queue than the computation's.
    void add_beside(const Queue& queue, Purpose purpose, const Call& call) {
        if (!records_) return;
        const uint32_t number = number_of(queue);
        add(Submitted::Kind::kernel, number, calls_.number(call));
        recording_.submitted.back().purpose = purpose;
    }
    // The computation waits for everything.
    void finish_queues() {
        for (uint32_t queue = 1; queue < last_.size(); ++queue) wait(0, queue, last_[queue]);
    }

    void begin(const char* kernel, double flops, double bytes) override {
        open_.push_back(std::nullopt);
        call_.begin(kernel, flops, bytes);
    }
    void operands(std::span<const Tensor> tensors) override {
        if (!exchange()) call_.operands(tensors);
    }
    void planned(const PlannedKernel& kernel) override { call_.planned(kernel); }
    void begin_exchange(Exchange exchange, double /*bytes*/) override { open_.push_back(exchange); }
    void end() override {
        if (!exchange()) add(Submitted::Kind::kernel, 0, calls_.number(call_.call()));
        open_.pop_back();
    }

    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& /*where*/, const Queue* queue) override {
        const auto axes = axes_.find(communicator);
        if (!queue || axes == axes_.end()) return 0;  // numbers of the host
        if (!records_) return 0;
        const Purpose purpose = exchange() ? purpose_of(*exchange()) : purpose_of(operation, axes->second);
        const Collective collective = {operation, axes->second, double(bytes), purpose};
        if (!is_grouped_) {
            add(Submitted::Kind::collective, number_of(*queue), collectives_.number(collective));
        } else if (!group_) {
            group_ = collective;
            queue_of_group_ = number_of(*queue);
        } else {
            group_->bytes += collective.bytes;
        }
        return 0;
    }
    void end(int64_t /*event*/) override {}
    void begin_group() override { is_grouped_ = true; }
    void end_group() override {
        if (group_) add(Submitted::Kind::collective, queue_of_group_, collectives_.number(*group_));
        group_.reset();
        is_grouped_ = false;
    }

    // A point is the number of entries up to the queue's last one.
    int64_t mark(const Queue& queue) override { return records_ ? last_[number_of(queue)] : 0; }
    void wait(const Queue& queue, const Queue& other, int64_t point) override {
        if (records_) wait(number_of(queue), number_of(other), point);
    }

    void begin_action(const Action& action) override {
        add(Submitted::Kind::begin_action, 0, uint32_t(action.kind));
    }
    void end_action() override { add(Submitted::Kind::end_action, 0); }

private:
    std::optional<Exchange> exchange() const { return open_.empty() ? std::nullopt : open_.back(); }
    uint32_t number_of(const Queue& queue) {
        const auto [known, is_new] = queues_.try_emplace(&queue, uint32_t(queues_.size()));
        if (is_new) {
            last_.push_back(0);
            recording_.queues = uint32_t(queues_.size());
        }
        return known->second;
    }
    void wait(uint32_t queue, uint32_t other, int64_t point) {
        int64_t& waited = waited_[{queue, other}];
        if (point <= waited) return;
        waited = point;
        add(Submitted::Kind::wait, queue, uint32_t(point - 1));
    }
    void add(Submitted::Kind kind, uint32_t queue, uint32_t index = 0) {
        if (!records_) return;
        recording_.submitted.push_back({kind, queue, index});
        last_[queue] = int64_t(recording_.submitted.size());
    }

    Recording& recording_;
    Numbered<Call> calls_;
    Numbered<Collective> collectives_;
    std::map<std::string, unsigned> axes_;  // by the name of a communicator
    std::map<const Queue*, uint32_t> queues_;
    std::vector<int64_t> last_;  // by queue, the number of entries up to its last one
    std::map<std::pair<uint32_t, uint32_t>, int64_t> waited_;  // for which point, by queue and other queue
    ObservedCall call_;
    std::vector<std::optional<Exchange>> open_;  // what has begun; nothing: a kernel
    bool records_ = false, is_grouped_ = false;
    std::optional<Collective> group_;
    uint32_t queue_of_group_ = 0;
};

// The kernels of a stream beside the computation.
class BesideRecorder final : public KernelObserver {
public:
    BesideRecorder(Recorder& recorder, Exec& exec, Purpose purpose)
        : recorder_(recorder),
          queue_(*exec.queue),
          purpose_(purpose),
          observation_(exec.observers.add(*this)) {}

    void begin(const char* kernel, double flops, double bytes) override { call_.begin(kernel, flops, bytes); }
    void operands(std::span<const Tensor> tensors) override { call_.operands(tensors); }
    void planned(const PlannedKernel& kernel) override { call_.planned(kernel); }
    void end() override { recorder_.add_beside(queue_, purpose_, call_.call()); }

private:
    Recorder& recorder_;
    const Queue& queue_;
    Purpose purpose_;
    ObservedCall call_;
    Observation observation_;
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
        if (operation.kind == Submitted::Kind::kernel && operation.queue == 0)
            all += calls[operation.index].launches;
    return all;
}

int64_t Recording::launches_beside() const {
    int64_t all = 0;
    for (const Submitted& operation : submitted)
        if (operation.kind == Submitted::Kind::collective)
            ++all;
        else if (operation.kind == Submitted::Kind::kernel && operation.queue != 0)
            all += calls[operation.index].launches;
    return all;
}

Recording record_step(const ModelConfig& config, const EngineOptions& options) {
    if (options.types.offload)
        throw ConfigError("the transfers of offloaded state (training.enable_cpu_offload) are not recorded");
    EngineOptions recorded = options;
    recorded.streams = Stream::Mode::eager;  // the order in which work is submitted
    recorded.snapshot = false;
    // the exchanges of the run, although it is recorded kernel by kernel
    recorded.expert_blocks = options.expert_blocks.value_or(options.graphs);
    recorded.graphs = false;
    Mesh mesh = Mesh::planned(options.mesh, options.rank);
    Recording recording = {.mesh = options.mesh, .rank = options.rank};
    Recorder recorder(recording, mesh);
    const std::unique_ptr<Device> device =
        make_planned_device(options.machine.backend, options.machine.architecture, recorder);
    Engine engine(config, recorded);
    engine.allocate(mesh, *device, dry_kernels_of(options.machine.backend));

    recorder.start(*engine.exec().queue);
    mesh.observe(&recorder);
    engine.observe_pipeline(&recorder, nullptr);
    const Observation observed = engine.observe(recorder);
    const Gathered::Execs beside = engine.execs_of_gathered();
    const BesideRecorder gathers(recorder, beside.gather, Purpose::weights),
        sums(recorder, beside.reduce, Purpose::gradients);
    std::optional<BesideRecorder> conversions;
    if (beside.convert) conversions.emplace(recorder, *beside.convert, Purpose::gradients);
    const auto zeros = engine.model().batches().zeros(options.training);
    const auto end_graph = [&] {
        if (options.graphs) recorder.finish_queues();
        return true;
    };
    engine.compute_gradients(
        1, 0, 1, [&](int64_t) { return *zeros; }, {}, end_graph);
    engine.update();
    recorder.stop();
    mesh.observe(nullptr);
    return recording;
}

}  // namespace coeus
