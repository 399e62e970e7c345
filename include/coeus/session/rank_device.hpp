// SPDX-License-Identifier: Apache-2.0
// RankDevice: the device on which a rank computes, as the deck asks: the CPU, or a GPU of its host.
// gpu_placement.hpp says which GPU.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/comm/nccl.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/config/config.hpp"
#include "coeus/session/attention_choice.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The library that carries tensors between the ranks' devices.
struct RankTransport {
    std::optional<NcclLibrary> nccl = std::nullopt;  ///< none: MPI
    /// "NCCL 2.28.9, without NVLS: comm.deterministic", or "pinned host memory: ranks 0 and 1 share GPU
    /// 0000:1b:00.0 of host a"; empty if no tensors are exchanged between GPUs.
    std::string text;
    NcclCtas ctas = {};                 ///< limits of NCCL's operations
    bool nvls = false;                  ///< NCCL may sum in NVLink's switches
    std::vector<std::string> warnings;  ///< what the user should know of NCCL
};
/// The transport that comm.transport asks for, the same on every rank, with NCCL's environment variables set
/// (comm/nccl_environment.hpp). `library`: path of NCCL. Collective over `world`. ConfigError if the deck
/// asks for NCCL and it cannot be used.
RankTransport transport_from_deck(const Config& config, const Communicator& world, const Device& device,
                                  const std::string& library = nccl_path());

/// The device of one rank.
class RankDevice {
public:
    /// For rank number `local_rank` of the `local_size` ranks of this host. Collective over `world`.
    /// ConfigError if the deck asks for a GPU and there is none, if it leaves the choice to the program and a
    /// GPU cannot be used, if some ranks have a GPU and others do not, and as transport_from_deck() and
    /// attention_library(). Tests pass another folder as `root`.
    RankDevice(const Config& config, const Communicator& world, int local_rank, int local_size,
               const std::filesystem::path& root = "/");

    const Device& device() const { return gpu_ ? *gpu_ : host_device(); }
    /// Number of ranks that compute on this device.
    int sharing() const { return sharing_; }
    /// "NVIDIA H100 80GB HBM3, 79.2 GiB free (GPU 0 of 8)", and whether the driver compiles its kernels. On
    /// the host: why no GPU is used if this program was built for GPUs and the deck allows one, else empty.
    const std::string& text() const { return text_; }
    /// What is wrong with the ranks' places on their hosts, the same on every rank.
    const std::vector<std::string>& warnings() const { return warnings_; }
    const RankTransport& transport() const { return transport_; }
    const AttentionLibrary& attention() const { return attention_; }

private:
    std::unique_ptr<Device> gpu_;
    int sharing_;
    std::string text_;
    std::vector<std::string> warnings_;
    RankTransport transport_;
    AttentionLibrary attention_;
};

}  // namespace coeus
