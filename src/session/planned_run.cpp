// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/planned_run.hpp"

#include "coeus/base/text.hpp"
#include "coeus/predict/machine_file.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/session/chunk_choice.hpp"
#include "coeus/session/operand_choice.hpp"
#include "coeus/session/starting_point.hpp"
#include "coeus/setup/device_choice.hpp"
#include "coeus/setup/precision_checks.hpp"
#include "coeus/setup/run_options.hpp"

namespace coeus {

PlannedDevice planned_device(const CommandLine& command_line, Backend backend) {
    const bool cpu = backend == Backend::cpu;
    if (command_line.memory_bytes > 0)
        return {cpu ? "a rank on CPUs" : "a GPU", command_line.memory_bytes, false};
    if (!command_line.gpu.empty()) {
        const GpuModel& gpu = *machine_of_gpu(command_line.gpu).gpu;
        return {"an NVIDIA " + gpu.title, gpu.memory_bytes, false, gpu.capability};
    }
    if (cpu) return {"the CPUs of this host", memory_limit_bytes(), true};
    if (visible_gpus() == 0) return {"a GPU", std::nullopt, false};
    const auto gpu = open_gpu(0);
    return {"the GPU of this host, " + gpu->name(), gpu->memory_bytes(), true, gpu->architecture()};
}

std::string PlannedDevice::text() const {
    return memory_bytes
               ? fmt::format("Planned for {} with {}", title, bytes_text(double(*memory_bytes)))
               : fmt::format(
                     "Planned for {} whose memory is not known: give --gpu NAME or --memory SIZE to compare "
                     "the plan with it",
                     title);
}

PlannedRun::PlannedRun(const CommandLine& asked, int ranks)
    : command_line(asked),
      mesh(mesh_shape(asked.config, ranks)),
      model(model_from_deck(asked.config)),
      cpu(share_of_cpu(int(asked.config.training.threads), 0, 1)),
      device(planned_device(asked, backend_from_deck(asked.config))),
      chunks_of_checkpoint(coeus::chunks_of_checkpoint(asked.config)),
      engine(model, with_kept_operands(
                        model,
                        with_largest_chunks(
                            model, planned_options(asked.config, model, mesh, device.capability, cpu.threads),
                            device.memory_bytes, chunks_of_checkpoint),
                        device.memory_bytes)) {
    require_8_bit_products(engine.options(), device.title, device.capability);
}

}  // namespace coeus
