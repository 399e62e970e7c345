// SPDX-License-Identifier: Apache-2.0
// The start of a run: device, mesh, memory plan, data and weights.
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/base/version.hpp"
#include "coeus/base/wall_time.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/gpu_presence.hpp"
#include "coeus/engine/memory_advice.hpp"
#include "coeus/plan/cpu_peak.hpp"
#include "coeus/predict/machine_file.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/chunk_choice.hpp"
#include "coeus/setup/describe_quantized.hpp"
#include "coeus/setup/describe_run.hpp"
#include "coeus/setup/product_choice.hpp"
#include "coeus/setup/quantize_checks.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/setup/start_hints.hpp"
#include "coeus/train/dry_run.hpp"
#include "coeus/train/trainer.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace coeus {

namespace {

constexpr const char* before_training = "before the first step; nothing was lost";

// This rank's share of the host's cores, near its device. Collective.
CpuShare cpu_share(const Config& config, const Device& device, const MpiRuntime& mpi) {
    const int sharing = mpi.local_ranks_with(cpu_binding()).ranks;
    NearDevice near = {.is_gpu = !device.is_host(), .processors = processors_near(device.bus_id())};
    const MpiRuntime::Alike alike = mpi.local_ranks_with(near.processors);
    near.ranks = alike.ranks;
    near.number = alike.number;
    return share_of_cpu(int(config.training.threads), mpi.local_rank(), mpi.local_size(), sharing, near);
}

JobEnd::Options job_end(const Config& config) {
    JobEnd::Options end;
    end.wall_seconds = seconds_of_wall_time(config.training.max_wall_time);
    end.start -= StartUp::seconds_since_exec();
    if (std::getenv("SLURM_JOB_ID")) end.ask = slurm_job_end;
    return end;
}

// Lines on the device of a rank and on the exchange of tensors. `graphs`: steps are run as CUDA graphs.
std::vector<std::string> describe(const RankDevice& device, bool graphs, const Config& config) {
    std::vector<std::string> lines;
    const bool on_host = device.device().is_host();
    if (!device.text().empty())
        lines.push_back((on_host ? "Computing on the CPU: " : "Computing on ") + device.text());
    if (const std::string& transport = device.transport().text; !transport.empty())
        lines.push_back("Ranks exchange tensors through " + transport);
    if (on_host) return lines;
    lines.push_back(cuda_versions_text(cuda_versions(), driver_version()));
    const char* const how = graphs ? "as CUDA graphs"
                            : config.training.disable_cuda_graphs
                                ? "kernel by kernel: training.disable_cuda_graphs"
                                : "kernel by kernel: CUDA graphs need NCCL between the ranks";
    lines.push_back(fmt::format("The GPU runs steps {}", how));
    return lines;
}

// Bytes of a device that a rank may use.
int64_t memory_of(const RankDevice& device) {
    return device.device().memory_bytes() / device.sharing();
}

}  // namespace

Trainer::Trainer(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog,
                 StartUp& start_up)
    : start_up_(start_up),
      config_(command_line.config),
      notices_(command_line.notices),
      origins_(command_line.origins),
      watchdog_(watchdog),
      device_(config_, Communicator::world("devices"), mpi.local_rank(), mpi.local_size()),
      mesh_(start_up.make<Mesh>("mesh", Communicator::world("world"), mesh_shape(config_, mpi.world_size()))),
      faults_(Faults::from_environment(mesh_.world().rank())),
      stop_(mesh_.world(), job_end(config_), config_.checkpoint.walltime_margin),
      owner_(config_, mesh_.world()),
      folder_(config_, mesh_.world(),
              [this] { owner_.take([this] { stop_.end_if_agreed(before_training); }); }),
      cpu_(cpu_share(config_, device_.device(), mpi)),
      model_(model_from_deck(config_, mesh_.world())),
      chunks_of_checkpoint_(device_.device().is_host() ? std::nullopt
                                                       : chunks_of_checkpoint(config_, mesh_.world())),
      engine_(start_up.make<Engine>(
          "plan", model_,
          with_largest_chunks(
              model_,
              engine_options(config_, model_, mesh_.shape(), mesh_.world().rank(), cpu_.threads,
                             device_.transport(), device_.device().architecture(), device_.attention().cudnn),
              memory_of(device_), mesh_.world(), chunks_of_checkpoint_))),
      data_(start_up.make<TrainingData>("data", config_, model_.vocab, folder_.data_folder(), mesh_.world(),
                                        cpu_.cores)),
      schedule_(schedule_from_deck(config_, &notices_)),
      saving_(config_, model_, folder_, mesh_, engine_, owner_.writer()),
      reporting_(folder_, mesh_.world(), device_.device()) {
    watchdog_.set_gpu(device_.device().bus_id());
    watchdog_.meet_in(folder_.root(), owner_.id());
    apply(cpu_);
    const int local_size = mpi.local_size();
    const int64_t limit = memory_of(device_);
    global_batch_ = config_.training.local_batch_size * mesh_.size(axis::dp) * engine_.options().accumulation;
    together(mesh_.world(), [&] {
        require_8_bit_products(engine_.options(), device_.device().name(), device_.device().architecture());
    });
    if (first_rank()) {
        for (const std::string& line : describe_start(local_size, limit)) log::info("{}", line);
        for (const std::string& line : device_.warnings()) log::warn("{}", line);
        for (const std::string& line : device_.transport().warnings) log::warn("{}", line);
        for (const std::string& line : idle_converters(engine_)) log::warn("{}", line);
    }
    stop_.end_if_agreed(before_training);
    require_all_fit(limit, memory_limit_bytes() / local_size);
    take_memory();
    peak_flops_ = start_up.phase("peak", [&] { return measure_peak(local_size); });
    guards_.emplace(config_.guards, engine_, watchdog_.hosts());
    stop_.end_if_agreed(before_training);
    const bool continues = start_up.phase("weights", [&] { return load_state(); });
    guards_->begin(progress_.place());
    prepare_folder(continues);
    if (!config_.checkpoint.create_seed_checkpoint) begin_reporting();  // else there are no steps to report
}

std::vector<std::string> Trainer::describe_start(int local_size, int64_t memory_limit) const {
    std::vector<std::string> lines = {fmt::format("Job: {}", config_.job.description)};
    const auto add = [&](const std::string& text) {
        if (!text.empty()) lines.push_back(text);
    };
    const auto add_all = [&](const std::vector<std::string>& more) {
        std::ranges::copy(more, std::back_inserter(lines));
    };
    add_all(notices_);
    if (config_.job.print_config) add(fmt::format("The effective deck:\n{}", deck_text(config_, origins_)));
    add(fmt::format("Coeus {} on {} ({}), {}, {} {} per rank ({}{})", version(), cpu_name(),
                    cpu_vector_level(), MpiRuntime::library_version(), cpu_.threads,
                    cpu_.threads == 1 ? "thread" : "threads", cpu_.reason,
                    cpu_.first_core >= 0 ? ", pinned" : ""));
    add_all(describe(device_, engine_.options().graphs, config_));
    add_all(describe_run(config_, mesh_.shape(), engine_, memory_limit));
    add(notice_on_chunks(config_, engine_.options(), chunks_of_checkpoint_));
    add_all(product_notices(config_, mesh_.shape(), engine_.options()));
    add(data_.summary());
    if (const std::string passes = data_.passes(config_.training.steps * global_batch_); !passes.empty())
        add(fmt::format("{} {} = {}", config_.training.steps, config_.training.steps == 1 ? "step" : "steps",
                        passes));
    StartFacts facts = start_facts(cpu_, local_size, !device_.device().is_host(), config_);
    facts.gradient_roundings = gradient_roundings(engine_);
    std::vector<std::string> hints = start_hints(facts);
    if (const std::string& folder = saving_.checkpoints().folder().path();
        config_.checkpoint.enable && !config_.checkpoint.load_only)
        hints.push_back(striping_advice(file_system_of(folder), folder, saving_.full_state_bytes(),
                                        saving_.checkpoints().num_part_files()));
    for (const std::string& hint : hints)
        if (!hint.empty()) add("Hint: " + hint);
    return lines;
}

void Trainer::take_memory() {
    if (const auto& library = device_.transport().nccl)
        mesh_.connect(nccl_.emplace(*library, mesh_.world(), device_.device(), &watchdog_.nccl()),
                      device_.transport().ctas);
    start_up_.phase("memory", [&] { engine_.allocate(mesh_, device_.device()); });
    if (nccl_) nccl_->end_connecting();
    if (!device_.device().is_host())
        together(mesh_.world(), [&] {
            const int multiprocessors = device_.device().multiprocessors();
            set_product_options(engine_.exec(),
                                product_options(config_, mesh_, engine_.options(), multiprocessors));
        });
    const AttentionReport attention = choose_attention(config_, mesh_.world(), device_.attention(),
                                                       engine_.exec(), engine_.layer_memory().attention);
    if (first_rank()) {
        for (const std::string& line : attention.warnings) log::warn("{}", line);
        for (const std::string& line : attention.details) log::debug("{}", line);
        if (!attention.text.empty()) log::info("Attention kernels: {}", attention.text);
    }
    if (nccl_) log::debug("NCCL: {}", nccl_->text());
}

void Trainer::prepare_folder(bool continues) {
    on_first_rank(mesh_.world(), [&] {
        // if this run was suspended, another run may have written here since this one read the folder
        owner_.require_owned();
        if (const auto aside = folder_.put_earlier_run_aside(config_, continues && progress_.step > 0))
            log::info("{} had files of an earlier run: its metrics were moved to {}", folder_.root().string(),
                      aside->string());
        // a finished run keeps the deck that it was trained with
        if (!continues || !progress_.is_finished(config_.training.steps)) folder_.write_deck(config_);
    });
}

void Trainer::begin_reporting() {
    if (data_.validation()) evaluator_.emplace(config_, *data_.validation());
    if (config_.metrics.straggler_freq > 0 && mesh_.world().size() > 1)
        stragglers_.emplace(Stragglers::Options{.every = config_.metrics.straggler_freq,
                                                .percent = config_.metrics.straggler_percent},
                            mesh_, watchdog_.hosts(), engine_.exec(), engine_.options().graphs,
                            reporting_.gpu());
    saving_.begin([this](const SavedCheckpoint& done) { note_saved(done); });
    // tokens per rank: all ranks that share a data rank's model and sequences share its tokens
    const double tokens = double(global_batch_ * config_.training.seq_len) / mesh_.world().size();
    reporting_.begin(past(),
                     {.tokens_per_step = tokens,
                      .flops_per_token = model_.flops_per_token(config_.training.seq_len),
                      // the known peaks are not those of 8-bit products
                      .peak_flops = parameters_in_8_bits(engine_) > 0 ? std::nullopt : peak_flops_,
                      .expert_layers = model_.layers_with_experts()},
                     [this] { owner_.require_owned(); });
}

std::optional<StartRecord> Trainer::start_record() const {
    if (!first_rank()) return std::nullopt;
    std::vector<std::string> hosts;
    for (const std::string& host : watchdog_.hosts())
        if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
    return StartRecord{.version = version(),
                       .model = model_.family + " " + model_.flavor,
                       .parameters = model_.parameters(),
                       .active_parameters = model_.active_parameters(),
                       .ranks = mesh_.world().size(),
                       .mesh = mesh_.shape().text(),
                       .machine = device_.device().is_host() ? cpu_name() : device_.device().name(),
                       .hosts = std::move(hosts),
                       .data = data_.sources(),
                       .bytes_per_token = data_.bytes_per_token(),
                       .validation_bytes_per_token = data_.validation_bytes_per_token(),
                       .deck = deck_text(config_)};
}

Trainer::~Trainer() {
    engine_.forget_graphs();
}

// FLOP/s of this rank's part of its device, if known. All ranks of a host measure at the same time, as they
// compute at the same time; only rank 0 stores the best result.
std::optional<double> Trainer::measure_peak(int local_size) {
    if (const Device& device = device_.device(); !device.is_host()) {
        if (multiplies_in_tf32(config_, engine_.options())) return std::nullopt;
        const std::optional<double> peak = gpu_peak_flops(device.name(), compute_dtype(config_));
        if (!peak && first_rank())
            log::info("The peak FLOP/s of {} in {} are not known: MFU is not reported", device.name(),
                      name_of(compute_dtype(config_)));
        return peak ? std::optional(*peak / device_.sharing()) : std::nullopt;
    }
    return cpu_peak_flops(
        engine_.exec(), cpu_kernels(), compute_dtype(config_),
        fmt::format("{}, {} ranks, {}, {}", cpu_name(), local_size, version(), build_description()),
        user_cache("peaks"), mesh_.world());
}

// Plans and hosts differ between ranks. If any rank lacks memory, all throw the error of the rank that lacks
// most.
void Trainer::require_all_fit(int64_t limit, int64_t host_limit) const {
    const MemoryPlan& plan = engine_.plan();
    const int64_t lacking = plan.total() - limit, most = mesh_.world().all_reduce(lacking, Reduce::max),
                  most_on_host = mesh_.world().all_reduce(plan.total(MemoryPlace::host), Reduce::max);
    together(mesh_.world(), [&] {
        if (lacking == most)
            require_fits(plan, limit, [&] {
                return memory_advice(
                    model_, engine_.options(), limit, host_limit,
                    [&](const Alternative& advice) { return advice_holds(config_, model_, advice); });
            });
        if (plan.total(MemoryPlace::host) == most_on_host) require_fits_on_host(plan, host_limit);
    });
}

bool Trainer::load_state() {
    const Timer timer;
    if (const std::string& folder = saving_.checkpoints().folder().path();
        config_.checkpoint.create_seed_checkpoint && !list_checkpoints(folder).empty())
        throw ConfigError("{}", seed_checkpoint_error(folder));
    const std::optional<Resume> resume = Resume::load(config_, saving_, engine_, mesh_.world());
    std::optional<bool>& shuffle = config_.training.shuffle;
    if (!shuffle) shuffle = (resume ? resume->shuffle() : std::nullopt).value_or(true);
    data_.set_shuffled(*shuffle);
    if (first_rank())
        for (const std::string& notice : data_.notices()) log::warn("{}", notice);
    if (resume) {
        continue_from(*resume);
        saving_.note_loaded(resume->saved_step(), timer.seconds());
    } else {
        start_fresh();
    }
    if (engine_.options().backend == Backend::cuda)
        config_.kernels.logits_chunk_mib = *engine_.options().chunk_bytes >> 20;
    engine_.renew_weights();
    return resume && resume->in_own_folder();
}

void Trainer::continue_from(const Resume& resume) {
    resume.require_deck_if_finished();
    if (!resume.in_own_folder())
        on_first_rank(mesh_.world(), [&] {
            data_.require_tokenizer_of(initial_weights_path(config_), config_.model.tokenizer());
        });
    progress_ = resume.progress();
    guards_->resume(resume.guards());
    std::vector<std::string> notices;
    if (progress_.schedule_begins != 0)
        schedule_ = schedule_from_deck(config_, &notices, progress_.schedule_begins);
    if (!first_rank()) return;
    for (const std::string& line : resume.warnings(global_batch_, guards_->samples_passed_over()))
        log::warn("{}", line);
    for (const std::string& notice : notices) log::info("{}", notice);
    for (const std::string& line : resume.lines()) log::info("{}", line);
}

void Trainer::start_fresh() {
    if (first_rank() && config_.training.shuffle == false) log::info("{}", unshuffled_notice);
    if (const std::string path = initial_weights_path(config_); !path.empty())
        on_first_rank(mesh_.world(), [&] { data_.require_tokenizer_of(path, config_.model.tokenizer()); });
    else if (const std::string notice = first_rank() ? unused_weights_notice(config_) : ""; !notice.empty())
        log::warn("{}", notice);
    if (const std::string source = load_initial_weights(config_, engine_.decoder(), mesh_); !source.empty()) {
        if (first_rank()) log::info("Starting from the weights of {}", source);
        return;
    }
    engine_.decoder().parameters().initialise(uint64_t(config_.debug.seed), cpu_.threads);
    if (first_rank()) log::info("No checkpoint was found: starting from scratch");
}

}  // namespace coeus
