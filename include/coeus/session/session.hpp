// SPDX-License-Identifier: Apache-2.0
// Session: a rank made ready to run: the engine of the deck's model with its plan, then its memory, then its
// weights. A session does not know what the engine is used for.
#pragma once

#include "coeus/comm/nccl_world.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/kernels/product_options.hpp"
#include "coeus/session/rank.hpp"
#include "coeus/setup/finding.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace coeus {

class Session {
public:
    /// Plans: the model of the deck, the options of the engine and its memory, in the phase "plan". Takes no
    /// memory. Config, rank and `start_up` are borrowed. ConfigError as model_from_deck(), engine_options()
    /// and require_8_bit_products(). Collective, like every member that is not const.
    Session(const Config& config, Rank& rank, StartUp& start_up);
    /// The same for a model that is only evaluated, whatever the deck's model is: see evaluation_options().
    Session(const Config& config, Rank& rank, StartUp& start_up, const ModelConfig& model);

    const ModelConfig& model() const { return model_; }
    Engine& engine() { return engine_; }
    const Engine& engine() const { return engine_; }
    Rank& rank() const { return rank_; }

    /// plan_findings() of this rank.
    Findings findings() const;
    /// Lines on the device and the exchange of tensors.
    std::vector<std::string> device_lines() const;
    /// The error of the rank that lacks most memory, on all ranks, if any rank lacks memory: a ConfigError
    /// with advice. Collective.
    void require_fits() const;

    /// Binds the process to its cores, connects NCCL, allocates the memory of the plan and chooses the
    /// kernels, in the phase "memory". `watch` watches NCCL's operations. `search`: how products look for
    /// their algorithms, if not as in a run. Logs what was chosen.
    void take_memory(QueueWatch& watch, const std::optional<SteadySearch>& search = {});
    /// FLOP/s of this rank's part of its device, if known, in the phase "peak": measured on CPUs. All ranks
    /// of a host measure at the same time, as they compute at the same time.
    std::optional<double> peak_flops();
    /// Loads the initial weights of the deck, or draws random ones. Returns the path of the weights; "" if
    /// they are random. Engine::renew_weights() comes afterwards.
    std::string load_initial_weights();

    /// Ends what other ranks take part in. Declared after everything whose queues may wait for another rank,
    /// so that it goes first: after an error, NCCL's operations are aborted and no queue waits for ranks that
    /// have left.
    class Ending {
    public:
        explicit Ending(Session& session) : session_(session) {}
        ~Ending();
        Ending(const Ending&) = delete;
        Ending& operator=(const Ending&) = delete;

    private:
        Session& session_;
    };

private:
    void choose_kernels(const std::optional<SteadySearch>& search);

    const Config& config_;
    Rank& rank_;
    StartUp& start_up_;
    ModelConfig model_;
    std::optional<int64_t> chunks_of_checkpoint_;
    Engine engine_;
    std::optional<NcclWorld> nccl_;  ///< last: it is destroyed before the queues that wait for it
};

}  // namespace coeus
