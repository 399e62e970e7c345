// SPDX-License-Identifier: Apache-2.0
// OneScaleWeights: the largest magnitudes of parameters that have one scale (Storage::one_scales), and
// weights that are kept in 8 bits. Both follow from the masters, so nothing of it is saved. All ranks agree
// on the largest magnitudes of all trained parameters in one exchange after each update; those of the others
// stay as they are.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class OneScaleWeights {
public:
    /// Allocates no memory yet. The parameters must outlive it.
    explicit OneScaleWeights(Parameters& parameters);

    /// True if some parameter of the model has one scale.
    bool any() const { return trained_ + untrained_ > 0; }
    int64_t bytes() const;
    /// Allocates the memory on the device of the parameters and points the storages at it.
    void allocate();
    /// Called after masters of any parameters changed. `owners` are all ranks that have parts of the
    /// parameters. Weights in 8 bits that this rank has whole are made here, others when they are gathered.
    void renew(Exec& exec, const Kernels& kernels, const Communicator& owners) const;
    /// The same around an update, in which the optimizer finds the largest magnitudes of what it updates
    /// (Parameters::rows_of), also if it refuses the update: begin_update() before it, finish_update() after
    /// it.
    void begin_update(Exec& exec, const Kernels& kernels) const;
    void finish_update(Exec& exec, const Kernels& kernels, const Communicator& owners) const;

private:
    static void find_largest(Exec& exec, const Kernels& kernels, const Storage& storage);
    void agree(Exec& exec, const Kernels& kernels, const Communicator& owners, int64_t count) const;
    static void make_in_8_bits(Exec& exec, const Kernels& kernels, const Storage& storage);
    static constexpr int64_t apart = 4;  // elements between those of two parameters: 16 bytes
    Parameters& parameters_;
    // of the model's parameters that have one scale; the places of the trained ones come first
    int64_t trained_ = 0, untrained_ = 0;
    Buffer buffer_;
    Tensor largest_, rounded_, scales_;
};

/// The largest magnitude and scale of a parameter of the storage, which has one scale for each.
const Storage::OneScale& one_scale_of(const Storage& storage, const Param& param);

/// Writes the rows that this rank owns in 8 bits, from the masters with the scales of the last renewal, into
/// `to` [owned rows, columns] of 8-bit floats.
void quantize_owned(Exec& exec, const Kernels& kernels, const Storage& storage, Tensor to);

}  // namespace coeus
