// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/product_choice.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/setup/precision_checks.hpp"

namespace coeus {

namespace {

// True if collectives of NCCL run beside products: weights are gathered and gradients scattered while layers
// compute.
bool multiplies_beside_nccl(const MeshShape& mesh, const EngineOptions& options) {
    return options.machine.nccl && mesh.size(axis::fsdp) > 1;
}

std::string only_on_gpus(const std::string& option, const std::string& what) {
    return fmt::format("kernels.{} has no effect on CPUs: it is for {} on GPUs", option, what);
}

std::string margin_notice(const MeshShape& mesh, const EngineOptions& options) {
    if (options.machine.backend == Backend::cpu) return only_on_gpus("sm_margin", "products");
    const std::string idle = "kernels.sm_margin has no effect ";
    if (mesh.size(axis::fsdp) == 1)
        return idle +
               "on this mesh: only where parameters are divided (dp_shard x cp > 1) do products run beside "
               "NCCL's operations";
    if (!options.machine.nccl) return idle + "without NCCL: tensors go through the host";
    return "";
}

std::string idle_tf32_notice(const EngineOptions& options) {
    const std::string idle = "kernels.allow_tf32 has no effect";
    if (options.machine.backend == Backend::cpu) return idle + " on CPUs: they have no TF32";
    return idle + ": all products have operands in " + std::string(name_of(options.types.compute)) +
           "; it is for training.mixed_precision_param = \"float32\"";
}

std::string recheck_notice(const Config& config, const EngineOptions& options) {
    if (options.machine.backend == Backend::cpu) return only_on_gpus("autotune_recheck", "products");
    return config.kernels.autotune ? ""
                                   : "kernels.autotune_recheck has no effect with kernels.autotune = false";
}

std::string experts_notice(const ModelConfig& model, const EngineOptions& options) {
    if (options.machine.backend == Backend::cpu) return only_on_gpus("experts", "products of experts");
    return model->experts().all > 0
               ? ""
               : fmt::format("kernels.experts has no effect: {} has no experts", model->name());
}

std::string experts_in_8_bits_notice(const ModelConfig& model, const EngineOptions& options) {
    if (options.machine.backend == Backend::cpu)
        return only_on_gpus("experts_in_8_bits", "products of experts");
    const std::string idle = "kernels.experts_in_8_bits has no effect: ";
    if (model->experts().all == 0) return idle + model->name() + " has no experts";
    return forms_of(options.types.precision.experts).x == rows_form
               ? ""
               : idle + "it is for the converter quantize.grouped_mm.float8";
}

std::optional<ExpertsKernel> experts_kernel(const std::string& name) {
    for (const ExpertsKernel kernel : experts_kernels)
        if (name == name_of(kernel)) return kernel;
    return {};  // "auto"
}

}  // namespace

ProductOptions product_options(const Config& config, const Mesh& mesh, const EngineOptions& options,
                               int multiprocessors) {
    const bool has_margin = multiplies_beside_nccl(mesh.shape(), options);
    if (has_margin && config.kernels.sm_margin >= multiprocessors)
        throw ConfigError(
            "kernels.sm_margin = {}: this GPU has {} multiprocessors, of which products need at least one; "
            "give at most {}",
            config.kernels.sm_margin, multiprocessors, multiprocessors - 1);
    // one rank of each stage times kept algorithms again, so that a slow one is reported once
    const bool is_first = mesh.rank(axis::dp) == 0 && mesh.rank(axis::cp) == 0 && mesh.rank(axis::tp) == 0;
    return {.folder = config.kernels.autotune ? user_cache("products") : "",
            .recheck = !is_first                         ? Recheck::none
                       : config.kernels.autotune_recheck ? Recheck::all
                                                         : Recheck::old,
            .sm_margin = has_margin ? int(config.kernels.sm_margin) : 0,
            .allow_tf32 = config.kernels.allow_tf32,
            .experts = experts_kernel(config.kernels.experts)};
}

bool multiplies_in_tf32(const Config& config, const EngineOptions& options) {
    return config.kernels.allow_tf32 && options.machine.backend == Backend::cuda &&
           options.types.compute == Dtype::f32;
}

Findings product_findings(const Config& config, const MeshShape& mesh, const ModelConfig& model,
                          const EngineOptions& options) {
    Findings found;
    const auto add = [&](const std::string& notice) {
        if (!notice.empty()) found.add(Finding::Topic::plan, notice, Finding::Severity::notice);
    };
    if (config.kernels.sm_margin > 0) add(margin_notice(mesh, options));
    if (multiplies_in_tf32(config, options))
        found.add(Finding::Topic::plan,
                  "Products use TF32 (kernels.allow_tf32): operands in float32 are rounded to 10 bits after "
                  "the binary point. MFU is not reported, since the peak in TF32 is not known");
    else if (config.kernels.allow_tf32)
        add(idle_tf32_notice(options));
    if (config.kernels.autotune_recheck) add(recheck_notice(config, options));
    if (config.kernels.experts != "auto") add(experts_notice(model, options));
    if (config.kernels.experts_in_8_bits) add(experts_in_8_bits_notice(model, options));
    if (!config.kernels.stream_priorities && options.machine.backend == Backend::cpu)
        add(only_on_gpus("stream_priorities", "communication"));
    if (options.machine.backend == Backend::cuda && options.types.compute == Dtype::f32)
        add("attention in float32 runs without tensor cores; training.mixed_precision_param = "
            "\"bfloat16\" would use them");
    return found;
}

}  // namespace coeus
