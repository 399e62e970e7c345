// SPDX-License-Identifier: Apache-2.0
// The machines that the program contains, and GPUs by name.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/predict/machine_file.hpp"
#include "machines.hpp"

#include <algorithm>

namespace coeus {

namespace {

// True for "NVIDIA <model>" followed by nothing but the board or the memory size ("-SXM4-80GB", " 80GB
// HBM3"). An "A10G", an "RTX 4090 D", a " Laptop GPU" and MIG parts (" MIG 1g.5gb") are other models.
bool is_of_model(const std::string& name, const std::string& model) {
    const std::string start = "NVIDIA " + model;
    if (!name.starts_with(start) || name.find(" MIG ") != std::string::npos) return false;
    const std::string rest = name.substr(start.size());
    return rest.empty() || rest[0] == '-' ||
           (rest[0] == ' ' && rest.size() > 1 && rest[1] >= '0' && rest[1] <= '9');
}

// A machine file of the user. It is read once and kept, as the built-in ones are.
const MachineFile& read_machine(const std::string& path) {
    static std::map<std::string, MachineFile> read;
    if (const auto known = read.find(path); known != read.end()) return known->second;
    constexpr int64_t most_bytes = 16 << 20;
    MachineFile machine = parse_machine_file(read_text_file(path, most_bytes), path);
    if (!machine.gpu)
        throw ConfigError("--gpu={}: the machine file has no table gpu (model, capability, memory_mib)",
                          path);
    machine.aliases.clear();  // a copy of a built-in file has them; this file is given by its path
    return read.emplace(path, std::move(machine)).first->second;
}

}  // namespace

const std::map<std::string, MachineFile>& built_in_machines() {
    static const std::map<std::string, MachineFile> machines = [] {
        std::map<std::string, MachineFile> all;
        for (const auto& [file, text] : machine_files()) {
            MachineFile machine = parse_machine_file(text, "machines/" + file);
            require(machine.name + ".toml" == file, "the file of a machine has its name");
            all[machine.name] = std::move(machine);
        }
        return all;
    }();
    return machines;
}

const MachineFile& machine_of_gpu(const std::string& name) {
    if (name.ends_with(".toml")) return read_machine(name);
    std::vector<std::string> names, all;
    for (const auto& [known, machine] : built_in_machines()) {
        if (!machine.gpu) continue;
        if (known == name || std::ranges::find(machine.aliases, name) != machine.aliases.end())
            return machine;
        names.push_back(known);
        all.insert(all.end(), machine.aliases.begin(), machine.aliases.end());
    }
    all.insert(all.end(), names.begin(), names.end());
    const std::string near = nearest_name(name, all);
    throw ConfigError(
        "--gpu={}: unknown GPU{} Known are {}, and machine files (FILE.toml). --memory SIZE, such as "
        "--memory "
        "80GiB, plans for any other",
        name, near.empty() ? "." : "; did you mean " + near + "?", join(names, ", "));
}

std::optional<double> gpu_peak_flops(const std::string& device_name, Dtype dtype) {
    for (const auto& [name, machine] : built_in_machines()) {
        if (!machine.gpu || !is_of_model(device_name, machine.gpu->title)) continue;
        if (const auto peak = machine.peak.find(dtype); peak != machine.peak.end()) return peak->second;
    }
    return std::nullopt;
}

}  // namespace coeus
