// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/attention_choice.hpp"

#include "coeus/comm/together.hpp"
#include "coeus/kernels/measured_backward.hpp"
#include "coeus/kernels/own_attention.hpp"

#include <algorithm>

namespace coeus {

namespace {

const std::string our_kernels = "our own kernels";

// Whether a deck ends without cuDNN.
bool asks_for_cudnn(const Config& config) {
    return config.kernels.attention == "cudnn" || config.kernels.attention == "cudnn_forward";
}

ConfigError no_cudnn(const Config& config, const std::string& why) {
    return ConfigError(
        "kernels.attention = \"{}\": {}; set the environment variable COEUS_CUDNN to the path of the "
        "library, or set kernels.attention = \"own\"",
        config.kernels.attention, why);
}

// The ranks' kernels for one direction.
struct Direction {
    bool some_by_cudnn, some_by_own;
    std::string why_own;  // why it is our own kernel on this rank
};

// cuDNN's own text says only that a library is missing.
std::string with_remedy(const std::string& why) {
    const bool lacks_compiler = why.find("nvrtc") != std::string::npos ||
                                why.find("NVRTC") != std::string::npos ||
                                why.find("RUNTIME_PREREQUISITE_MISSING") != std::string::npos;
    return lacks_compiler
               ? why +
                     " (cuDNN compiles this kernel with NVRTC: install libnvrtc of the CUDA version "
                     "for which cuDNN was built)"
               : why;
}

Direction choose(const Communicator& world, Exec& exec, const std::vector<AttentionCall>& calls,
                 bool backward, AttentionReport& report) {
    bool by_cudnn = false, by_own = false;
    std::string why, refused;
    for (const AttentionCall& call : calls) {
        if (call.is_backward != backward) continue;
        const AttentionKernel kernel = choose_kernel(exec, call);
        report.details.push_back(fmt::format(
            "Attention of {}: {}", call.text(),
            kernel.by_cudnn.empty() ? our_kernels + ": " + kernel.why : "cuDNN's " + kernel.by_cudnn));
        (kernel.by_cudnn.empty() ? by_own : by_cudnn) = true;
        if (kernel.by_cudnn.empty() && why.empty()) why = kernel.why;
        if (kernel.is_refused && refused.empty())
            refused = fmt::format("attention of {}, is computed by {}: {}", call.text(), our_kernels,
                                  with_remedy(kernel.why));
    }
    try {
        together(world, [&] {
            if (!refused.empty()) throw ConfigError("{}", refused);
        });
    } catch (const ConfigError& error) {
        report.warnings.push_back(error.what());
    }
    const auto on_some_rank = [&](bool here) { return world.all_reduce(int64_t(here), Reduce::max) != 0; };
    return {on_some_rank(by_cudnn), on_some_rank(by_own), why};
}

// Rank 0 measures its calls, and all ranks take its choices. What it cannot measure is computed by cuDNN.
// Calls that it does not have are computed as its first one. The choices travel as pairs of texts: the call,
// and why our own kernels compute it, "" if cuDNN does.
void take_faster_backwards(const Communicator& world, Exec& exec, const std::vector<AttentionCall>& calls,
                           AttentionReport& report) {
    std::vector<std::string> choices;
    together(world, [&] {
        if (world.rank() != 0) return;
        for (const AttentionCall& call : calls) {
            if (!has_two_backwards(exec, call)) continue;
            const auto measured = measured_backward(exec, call);
            const bool is_own = measured && measured->is_own;
            choices.push_back(call.text());
            choices.push_back(is_own ? "faster than cuDNN's, " + measured->text : "");
            if (measured)
                report.details.push_back(fmt::format("Attention of {}: {}, {}", call.text(),
                                                     is_own ? our_kernels : "cuDNN's", measured->text));
        }
    });
    choices = broadcast_texts(world, choices);
    if (choices.empty()) return;
    for (const AttentionCall& call : calls) {
        if (!has_two_backwards(exec, call)) continue;
        size_t i = 0;
        while (i < choices.size() && choices[i] != call.text()) i += 2;
        const bool is_known = i < choices.size();
        const std::string& why = choices[is_known ? i + 1 : 1];
        if (!why.empty()) take_own_backward(exec, call, is_known ? why : "as that of " + choices[0]);
    }
}

}  // namespace

AttentionLibrary attention_library(const Config& config, const Communicator& world, const Device& device) {
    const bool asks = asks_for_cudnn(config);
    if (device.is_host()) {
        if (asks)
            throw ConfigError(
                "kernels.attention = \"{}\": is for GPUs, but this run computes on CPUs; remove the "
                "option, or set device = \"cuda\"",
                config.kernels.attention);
        return {};
    }
    if (config.kernels.attention == "own") return {false, our_kernels};
    if (config.kernels.attention == "mma") return {false, our_kernels + " by mma"};
    try {
        std::string text;
        together(world, [&] { text = find_cudnn(); });
        return {true, text};
    } catch (const ConfigError& error) {
        if (asks) throw no_cudnn(config, error.what());
        return {false, fmt::format("{}: {}", our_kernels, error.what())};
    }
}

AttentionReport choose_attention(const Config& config, const Communicator& world,
                                 const AttentionLibrary& library, Exec& exec,
                                 const std::vector<AttentionCall>& calls) {
    if (config.kernels.attention == "mma" && !exec.device->is_host())
        choose_own_attention(exec, OwnAttention::mma);
    if (!library.cudnn) return {library.text, {}, {}};
    try {
        together(world, [&] { use_cudnn(exec); });
    } catch (const ConfigError& error) {
        use_own_attention(exec);
        if (asks_for_cudnn(config)) throw no_cudnn(config, error.what());
        return {our_kernels, {fmt::format("attention is computed by {}: {}", our_kernels, error.what())}, {}};
    }
    AttentionReport report;
    if (config.kernels.attention == "auto") take_faster_backwards(world, exec, calls, report);
    const Direction forward = choose(world, exec, calls, false, report),
                    backward = choose(world, exec, calls, true, report);
    if (!forward.some_by_cudnn && !backward.some_by_cudnn) {
        report.text = report.warnings.empty() && !forward.why_own.empty()
                          ? our_kernels + ": " + forward.why_own
                          : our_kernels;
        return report;
    }
    const auto part = [](const Direction& direction, const char* name) {
        return name + std::string(direction.some_by_own ? " (in part)" : "");
    };
    report.text = library.text + ", ";
    if (forward.some_by_cudnn) report.text += part(forward, "forward");
    if (backward.some_by_cudnn)
        report.text += (forward.some_by_cudnn ? " and " : "") + part(backward, "backward");
    if (!backward.some_by_cudnn) report.text += "; " + our_kernels + ", backward";
    if (!forward.some_by_cudnn) report.text += "; " + our_kernels + ", forward";
    if (report.warnings.empty())
        for (const Direction* direction : {&forward, &backward})
            if (direction->some_by_own && !direction->why_own.empty()) {
                report.text += " (" + direction->why_own + ")";
                break;
            }
    return report;
}

}  // namespace coeus
