// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/session.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/gpu_presence.hpp"
#include "coeus/plan/cpu_peak.hpp"
#include "coeus/predict/machine_file.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/session/chunk_choice.hpp"
#include "coeus/session/operand_choice.hpp"
#include "coeus/session/plan_findings.hpp"
#include "coeus/session/product_choice.hpp"
#include "coeus/session/starting_point.hpp"
#include "coeus/setup/precision_checks.hpp"
#include "coeus/setup/run_options.hpp"
#include "gpu_placement.hpp"

#include <algorithm>

namespace coeus {

namespace {

RankMachine machine_of(const Config& config, const Rank& rank) {
    const RankDevice& choice = rank.choice();
    return {.backend = rank.device().is_host() ? Backend::cpu : Backend::cuda,
            .architecture = rank.device().architecture(),
            .threads = rank.cpu().threads,
            .cudnn_bytes = choice.attention().cudnn ? cudnn_bytes(config) : 0,
            .nccl = choice.transport().nccl.has_value(),
            .nvls = choice.transport().nvls};
}

// What the ranks of this rank's GPU plan, and the least that one of them found free: some ranks look before
// others have begun to use it. Collective.
struct SharedMemory {
    int64_t planned = 0, free = 0;
};
SharedMemory shared_memory(const Rank& rank, const MemoryPlan& plan) {
    const Communicator& world = rank.world();
    SharedMemory own = {.planned = plan.total(), .free = rank.device().memory_bytes()},
                 shared = {0, own.free};
    std::vector<SharedMemory> all(size_t(world.size()));
    world.all_gather(Tensor(all.data(), Dtype::i64, {2 * int64_t(all.size())}),
                     Tensor(&own, Dtype::i64, {2}));
    const std::vector<GpuOfRank> gpus = gpus_of_ranks(world, rank.device());
    for (size_t other = 0; other < all.size(); ++other)
        if (gpus[other] == gpus[size_t(world.rank())]) {
            shared.planned += all[other].planned;
            shared.free = std::min(shared.free, all[other].free);
        }
    return shared;
}

}  // namespace

Session::Session(const Config& config, Rank& rank, StartUp& start_up)
    : config_(config),
      rank_(rank),
      start_up_(start_up),
      model_(model_from_deck(config, rank.world())),
      chunks_of_checkpoint_(rank.device().is_host() ? std::nullopt
                                                    : chunks_of_checkpoint(config, rank.world())),
      engine_(start_up.make<Engine>(
          "plan", model_,
          with_kept_operands(
              model_,
              with_largest_chunks(model_,
                                  engine_options(config, model_, rank.mesh().shape(), rank.world().rank(),
                                                 machine_of(config, rank)),
                                  rank.memory_bytes(), rank.world(), chunks_of_checkpoint_),
              rank.memory_bytes(), rank.world()))) {
    together(rank.world(), [&] {
        require_8_bit_products(engine_.options(), rank.device().name(), rank.device().architecture());
    });
}

Session::Session(const Config& config, Rank& rank, StartUp& start_up, const ModelConfig& model)
    : config_(config),
      rank_(rank),
      start_up_(start_up),
      model_(model),
      engine_(start_up.make<Engine>(
          "plan", model_,
          with_largest_chunks(model_,
                              evaluation_options(config, model_, rank.mesh().shape(), rank.world().rank(),
                                                 machine_of(config, rank)),
                              rank.memory_bytes(), rank.world(), {}))) {
    together(rank.world(), [&] {
        require_8_bit_products(engine_.options(), rank.device().name(), rank.device().architecture());
    });
}

Findings Session::findings() const {
    return plan_findings(config_, rank_.mesh().shape(), engine_, rank_.memory_bytes(), chunks_of_checkpoint_);
}

std::vector<std::string> Session::device_lines() const {
    std::vector<std::string> lines;
    const RankDevice& choice = rank_.choice();
    const bool on_host = rank_.device().is_host();
    if (!choice.text().empty())
        lines.push_back((on_host ? "Computing on the CPU: " : "Computing on ") + choice.text());
    if (const std::string& transport = choice.transport().text; !transport.empty())
        lines.push_back("Ranks exchange tensors through " + transport);
    if (on_host) return lines;
    lines.push_back(cuda_versions_text(cuda_versions(), driver_version()));
    const char* const how = engine_.options().graphs ? "as CUDA graphs"
                            : config_.training.disable_cuda_graphs
                                ? "kernel by kernel: training.disable_cuda_graphs"
                                : "kernel by kernel: CUDA graphs need NCCL between the ranks";
    lines.push_back(fmt::format("The GPU runs steps {}", how));
    return lines;
}

// Plans and hosts differ between ranks.
void Session::require_fits() const {
    const Communicator& world = rank_.world();
    const MemoryPlan& plan = engine_.plan();
    const int ranks = rank_.device().is_host() ? 1 : rank_.choice().sharing();
    const SharedMemory of_gpu = rank_.device().is_host() ? SharedMemory() : shared_memory(rank_, plan);
    // of a GPU, a rank may use what the others do not
    const int64_t share = rank_.memory_bytes(), host_limit = rank_.host_memory_bytes(),
                  limit =
                      ranks > 1 ? std::max<int64_t>(0, of_gpu.free - (of_gpu.planned - plan.total())) : share;
    const int64_t lacking = plan.total() - limit, most = world.all_reduce(lacking, Reduce::max),
                  most_on_host = world.all_reduce(plan.total(MemoryPlace::host), Reduce::max);
    together(world, [&] {
        if (lacking == most)
            coeus::require_fits(plan, limit, [&] {
                const std::string together =
                    ranks == 1
                        ? ""
                        : fmt::format(
                              "The {} ranks that share this GPU need {} together, and {} are free: start "
                              "fewer ranks on it. ",
                              ranks, bytes_text(double(of_gpu.planned)), bytes_text(double(of_gpu.free)));
                if (!engine_.options().trains)
                    return together +
                           "Evaluate with a smaller --batch or --context, or on more ranks, which divide the "
                           "weights (parallelism.data_parallel_shard_degree)";
                return together + memory_advice(model_, engine_.options(), share, host_limit,
                                                [&](const Alternative& advice) {
                                                    return advice_holds(config_, model_, advice);
                                                });
            });
        if (plan.total(MemoryPlace::host) == most_on_host) require_fits_on_host(plan, host_limit);
    });
}

void Session::take_memory(QueueWatch& watch, const std::optional<SteadySearch>& search) {
    apply(rank_.cpu());
    Mesh& mesh = rank_.mesh();
    const RankTransport& transport = rank_.choice().transport();
    if (transport.nccl) connect_by_nccl(nccl_, rank_, &watch);
    start_up_.phase("memory", [&] { engine_.allocate(mesh, rank_.device()); });
    if (nccl_) nccl_->end_connecting();
    choose_kernels(search);
    if (nccl_) log::debug("NCCL: {}", nccl_->text());
}

void Session::choose_kernels(const std::optional<SteadySearch>& search) {
    const Communicator& world = rank_.world();
    if (!rank_.device().is_host())
        together(world, [&] {
            ProductOptions products =
                product_options(config_, rank_.mesh(), engine_.options(), rank_.device().multiprocessors());
            products.steady = search;
            set_product_options(engine_.exec(), products);
        });
    const AttentionReport attention = choose_attention(config_, world, rank_.choice().attention(),
                                                       engine_.exec(), engine_.layer_memory().attention);
    if (!rank_.is_first()) return;
    for (const std::string& line : attention.warnings) log::warn("{}", line);
    for (const std::string& line : attention.details) log::debug("{}", line);
    if (!attention.text.empty()) log::info("Attention kernels: {}", attention.text);
}

std::optional<double> Session::peak_flops() {
    return start_up_.phase("peak", [&]() -> std::optional<double> {
        if (const Device& device = rank_.device(); !device.is_host()) {
            if (multiplies_in_tf32(config_, engine_.options())) return std::nullopt;
            const std::optional<double> peak = gpu_peak_flops(device.name(), compute_dtype(config_));
            if (!peak && rank_.is_first())
                log::info("The peak FLOP/s of {} in {} are not known: MFU is not reported", device.name(),
                          name_of(compute_dtype(config_)));
            return peak ? std::optional(*peak / rank_.choice().sharing()) : std::nullopt;
        }
        return cpu_peak_flops(engine_.exec(), cpu_kernels(), compute_dtype(config_),
                              fmt::format("{}, {} ranks, {}, {}", cpu_name(), rank_.local_size(), version(),
                                          build_description()),
                              user_cache("peaks"), rank_.world());
    });
}

std::string Session::load_initial_weights() {
    std::string source = coeus::load_initial_weights(config_, model_, engine_.model(), rank_.mesh());
    if (source.empty())
        engine_.model().parameters().initialise(engine_.exec(), engine_.kernels(),
                                                uint64_t(config_.debug.seed));
    return source;
}

Session::Ending::~Ending() {
    session_.engine_.forget_graphs();
    session_.nccl_.reset();
}

}  // namespace coeus
