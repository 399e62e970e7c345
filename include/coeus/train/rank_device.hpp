// SPDX-License-Identifier: Apache-2.0
// Where a rank computes, as its deck asks: on the CPU, or on one of the GPUs that its host has.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/comm/nccl.hpp"
#include "coeus/config/config.hpp"

#include <optional>
#include <string>

namespace coeus {

/// What a run with this deck would use on this host; for planning too. `device = "cuda"` may be planned
/// anywhere.
Backend backend_from_deck(const Config& config);

/// For commands of one process: the first GPU of this host, where `device` ("auto", "cuda" or "cpu") asks for
/// one and it is there; else null. ConfigError where "cuda" finds none.
std::unique_ptr<Device> gpu_of_command(const std::string& device);

/// What carries tensors between the ranks' devices.
struct RankTransport {
    std::optional<NcclLibrary> nccl;  ///< none: MPI
    /// "NCCL 2.28.9", "pinned host memory: ranks 0 and 1 share GPU 0000:1b:00.0 of host a"; empty where no
    /// tensor of a GPU goes anywhere.
    std::string text;
};
/// As comm.transport asks, with the NCCL of that path; the same on every rank. Collective over `world`.
/// ConfigError where the deck asks for NCCL and it cannot be.
RankTransport transport_from_deck(const Config& config, const Communicator& world, const Device& device,
                                  const std::string& library = nccl_path());

/// Has attention of this Exec done as kernels.attention asks, alike on all ranks. "cuDNN 9.19.0", "our own
/// kernels: cuDNN cannot be loaded: ..."; empty on the host. Collective over `world`. ConfigError where the
/// deck asks for cuDNN and it cannot be.
std::string attention_from_deck(const Config& config, const Communicator& world, Exec& exec);

/// The device of one rank.
class RankDevice {
public:
    /// Of ranks that share a host, number `local_rank` of `local_size`. Collective over `world`. ConfigError
    /// where the deck asks for a GPU that is not there, where some ranks would have one and others not, and
    /// as transport_from_deck() says.
    RankDevice(const Config& config, const Communicator& world, int local_rank, int local_size);

    const Device& device() const { return gpu_ ? *gpu_ : host_device(); }
    /// Ranks that compute on it.
    int sharing() const { return sharing_; }
    /// "NVIDIA H100 80GB HBM3, 79.2 GiB free (GPU 0 of 8)"; of the host: why there is no GPU, where that is
    /// worth a word, else empty.
    const std::string& text() const { return text_; }
    const RankTransport& transport() const { return transport_; }

private:
    std::unique_ptr<Device> gpu_;
    int sharing_;
    std::string text_;
    RankTransport transport_;
};

}  // namespace coeus
