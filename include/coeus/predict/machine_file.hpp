// SPDX-License-Identifier: Apache-2.0
// MachineFile: what is known of a machine's speed, read from TOML (doc/machines.md). Every value has a
// source. What a file does not say is absent here, and never guessed.
#pragma once

#include "coeus/base/types.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// A GPU model, with data from NVIDIA's data sheets.
struct GpuModel {
    std::string title;         ///< the driver's name for it, after "NVIDIA "
    int capability = 0;        ///< the compute capability: 90 for sm_90
    int64_t memory_bytes = 0;  ///< the total memory that the driver reports
};

/// Points of a curve, ascending: bytes, and bytes per second.
using BandwidthCurve = std::vector<std::pair<double, double>>;

struct MachineFile {
    /// From data sheets and published runs; measured by Coeus; or fitted to runs.
    enum class Kind : uint8_t { sheet, measured, fitted };

    /// A product's rate. Absent form or sizes: any. A form that no point has takes the points without one.
    struct Products {
        Dtype type = Dtype::bf16;
        std::string form;  ///< "nt", "nn", "tn", "experts", "expert_weights", "codes" or "converted"
        double m = 0, n = 0, k = 0;  ///< 0: any
        double flops = 0;            ///< per second
    };
    /// A kernel other than a product or attention: bytes per second, and seconds that each call takes more.
    struct Rows {
        std::string kernel;         ///< "*": every other
        double bytes_per_call = 0;  ///< the size of the call that has this rate; 0: any
        double bytes_per_second = 0, seconds = 0;
    };
    struct Attention {
        Dtype type = Dtype::bf16;
        std::string kernel;                ///< as PlannedKernel::variant: "own", "own_wgmma", "cudnn", ...
        double head_dim = 0, tokens = 0;   ///< of a sequence; 0: any
        double forward = 0, backward = 0;  ///< FLOP/s; 0: not known
    };
    /// A level of the network: ranks within a node, or (ranks 0) all.
    struct Level {
        std::string name;
        int ranks = 0;
        double alpha = 0;     ///< latency in seconds, beside what the curves have
        double hop = 0;       ///< latency in seconds of each further node
        double per_node = 0;  ///< bytes per second of a node in each direction; 0: not a level between nodes
        /// Bus bandwidth by size as nccl-tests counts it: "all_gather", "reduce_scatter", "all_reduce",
        /// "all_reduce_nvls" (summed in NVLink's switches), "all_to_all", "message", "copy" (by copy
        /// engines).
        std::map<std::string, BandwidthCurve> bandwidth;
    };
    struct Overlap {
        double sms = 0, sms_of_a_collective = 0;
        double sms_of_a_copy = 0;  ///< of a copy between GPUs; 0: as many as of a collective
        double memory_share = 0;   ///< of the memory's bandwidth that a collective takes
    };

    std::string name;                  ///< "h100-sxm"
    std::vector<std::string> aliases;  ///< other names that mean it, of a built-in machine
    std::string title;
    Kind kind = Kind::sheet;
    std::string note;  ///< on the rates, printed after the kind; may be empty
    std::optional<GpuModel> gpu;
    int ranks_of_node = 0;                          ///< 0: not known
    std::map<Dtype, double> peak;                   ///< dense, FLOP/s
    double peak_of_8_bits = 0;                      ///< dense, FLOP/s; 0: none, or not known
    double memory_bandwidth = 0;                    ///< bytes per second
    std::optional<double> launch, launch_in_graph;  ///< seconds between two kernels
    std::vector<Products> products;
    std::vector<Rows> rows;
    std::vector<Attention> attention;
    std::map<std::string, double> calls;  ///< seconds of exact calls, by Call::key()
    std::vector<Level> levels;            ///< the innermost first
    std::optional<Overlap> overlap;
    int nccl = 0, driver = 0;  ///< versions as in LaunchFacts; 0: new ones
};

/// "from data sheets and published results", "measured", "fitted to runs"
const char* text_of(MachineFile::Kind kind);

/// Reads a machine file. `file` stands for it in messages. ConfigError with key, file and rule, and with the
/// nearest name for an unknown key.
MachineFile parse_machine_file(std::string_view text, const std::string& file);
/// The machines of the folder machines, which are embedded in the program, by name.
const std::map<std::string, MachineFile>& built_in_machines();

/// The machine of a GPU for --gpu: a name, or the path of a machine file, which ends with ".toml". A file is
/// read once, and references stay valid. Its aliases mean nothing. ConfigError if it is unknown, with the
/// nearest name and all names; or if it has no GPU.
const MachineFile& machine_of_gpu(const std::string& name);

/// Dense peak in FLOP/s of a GPU, by the name that its driver reports: with tensor cores for bf16, without
/// them for f32, as Coeus computes products. Nothing for an unknown GPU (or a MIG part): then no MFU is
/// printed, rather than a guess.
std::optional<double> gpu_peak_flops(const std::string& device_name, Dtype dtype);

}  // namespace coeus
