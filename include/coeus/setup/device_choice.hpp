// SPDX-License-Identifier: Apache-2.0
// Which kind of device a deck, or a flag of a command, asks for, and what keeps a GPU of this host from being
// used.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace coeus {

/// True if a run with this deck computes on a GPU wherever there is one.
bool wants_gpu_where_there_is_one(const Config& config);

/// The backend of a run with this deck on this host. For `device = "cuda"` it is CUDA even if the host has no
/// GPU, so that such a run can be planned anywhere. ConfigError if it is "auto" and the host has a GPU that
/// cannot be used (unusable_gpu()). Tests pass another folder as `root`.
Backend backend_from_deck(const Config& config, const std::filesystem::path& root = "/");

/// For commands of one process: the first GPU of this host if `device` ("auto", "cuda" or "cpu") asks for one
/// and there is one; else null. ConfigError if `device` is "cuda" and there is none, and if it is "auto" and
/// there is one that cannot be used.
std::unique_ptr<Device> gpu_of_command(const std::string& device, const std::filesystem::path& root = "/");

/// The error for a GPU that is asked for, by `asked` such as "device = \"cuda\"", and is not there.
ConfigError no_gpu(const std::string& asked);
/// ConfigError if this host has a GPU that cannot be used: "auto" would then compute on CPUs unnoticed.
void require_usable(const std::string& asked, const std::filesystem::path& root);

}  // namespace coeus
