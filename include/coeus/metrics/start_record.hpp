// SPDX-License-Identifier: Apache-2.0
// What a start of a run was: its version, model, mesh, hosts, data and deck. The first line of a start in
// goodput.jsonl has it as an object "record", so that a report can tell the starts of a run apart.
#pragma once

#include "coeus/file/json.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

struct StartRecord {
    std::string version;             ///< of Coeus
    std::string model;               ///< family and flavour: "llama3 8B"
    int64_t parameters = 0;          ///< 0: not known
    int64_t active_parameters = 0;   ///< of a token; fewer than `parameters` with experts
    int64_t ranks = 0;               ///< 0: not known
    std::string mesh;                ///< MeshShape::text(): "dp_shard 4 x tp 2"
    std::string machine;             ///< the GPU or the CPU of rank 0
    std::vector<std::string> hosts;  ///< each once, in the order of the ranks
    std::string data;                ///< paths of the token files, with their tokens
    /// Bytes of text per token of the training data and of the validation data; none if a token file does not
    /// say how many bytes of text it was made of.
    std::optional<double> bytes_per_token, validation_bytes_per_token;
    std::string deck;  ///< the effective deck, as TOML

    bool operator==(const StartRecord&) const = default;
};

/// The object `record` of a line. Facts that are not known are left out.
Json json_of(const StartRecord& record);
/// The same back; facts that are absent are not known. ConfigError if a fact has another type.
StartRecord start_record(const JsonView& json);

/// "2 hosts: n1, n2"; "n1" for one host; long lists are cut: "16 hosts: n1, n2, n3, ...". "" without hosts.
std::string hosts_text(const std::vector<std::string>& hosts);

}  // namespace coeus
