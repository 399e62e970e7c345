// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/kept_operands.hpp"

namespace coeus {

namespace {

bool is_kept(const Storage& storage) {
    const bool is_linear = storage.params().front().groups == 1;
    return storage.recipe() != Recipe::none && is_linear && !storage.is_gathered() && !storage.is_8_bit();
}

// Calls use(ctx) outside of a micro-batch.
void with_ctx(Exec& exec, const Kernels& kernels, Arena& temp, const Communicator& tp,
              FunctionRef<void(Ctx&)> use) {
    Frame frame;
    const Batch batch;
    StepScalars scalars = {};
    Ctx c{.exec = exec,
          .k = kernels,
          .frame = frame,
          .temp = temp,
          .batch = batch,
          .scalars = scalars,
          .tp = tp};
    use(c);
}

}  // namespace

KeptOperands::KeptOperands(Parameters& parameters, Exec& exec, const Kernels& kernels, const Communicator& tp)
    : parameters_(parameters) {
    lay_out(exec, kernels, tp);
}

void KeptOperands::lay_out(Exec& exec, const Kernels& kernels, const Communicator& tp) {
    Arena temp;
    with_ctx(exec, kernels, temp, tp, [&](Ctx& c) {
        for (Storage& storage : parameters_.storages()) {
            if (!is_kept(storage)) continue;
            storage.kept_operands.clear();
            const LinearWeight weight(storage);
            for (const WeightPart& part : weight.parts())
                storage.kept_operands.push_back(part.room_for_operands(c, memory_));
        }
    });
}

void KeptOperands::allocate(Exec& exec, const Kernels& kernels, const Communicator& tp) {
    if (bytes() == 0) return;
    memory_ = Arena(bytes(), "kept weights in 8 bits", parameters_.device().memory());
    lay_out(exec, kernels, tp);
}

void KeptOperands::renew(Exec& exec, const Kernels& kernels, Arena& temp, const Communicator& tp,
                         Changed changed) const {
    with_ctx(exec, kernels, temp, tp, [&](Ctx& c) {
        for (const Storage& storage : parameters_.storages()) {
            if (storage.kept_operands.empty() || (changed == Changed::trained && !storage.trainable()))
                continue;
            const LinearWeight weight(storage);
            for (size_t i = 0; i < weight.parts().size(); ++i)
                weight.parts()[i].write_operands(c, storage.kept_operands[i]);
        }
    });
}

}  // namespace coeus
