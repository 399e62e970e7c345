// SPDX-License-Identifier: Apache-2.0
// gradcheck compares the backward of a layer with central differences of its forward, in double. The
// differentiated function is f = sum(r * y) with fixed random r, or the loss that the layer adds to the
// scalars. Five points per derivative, f'(x) = (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h + O(h^4)
// (Abramowitz and Stegun 25.3.6), leave an error near 1e-10.
#pragma once

#include "coeus/state/parameters.hpp"
#include "support/model.hpp"

#include <functional>
#include <string>

namespace coeus::test {

/// A layer under test, built on the Parameters of the test.
struct CheckedLayer {
    /// x -> y, or an absent tensor if the layer adds its loss to the scalars.
    std::function<Tensor(Ctx&, Tensor x)> forward;
    /// Gradient of y (absent for a loss) -> gradient of x (absent if x is absent).
    std::function<Tensor(Ctx&, Tensor dy)> backward;
};

struct GradcheckOptions {
    Shape x = {};  ///< of the input; rank 0: the layer has no input but the tokens
    // random entries of each tensor to check one by one; all, if a tensor has fewer
    int entries = 40;
    // relative to the entry or to the tensor's root mean square, whichever is larger
    double tolerance = 1e-7;
    // standard deviation of normal values that are added to the initial parameters
    double spread = 0;
    // the function has also the loss that the backward adds to scalars.losses[decoder_loss::balance]
    bool balance_loss = false;
    int threads = 1;
};

/// Declares parameters and layer with `build`, draws parameters and x from Philox, and compares the gradients
/// of every parameter and of x with finite differences: for single entries, and for one random direction that
/// involves all entries. It also checks:
/// - The arenas have exactly the sizes that a dry run measured, and contain NaN before use.
/// - The frame is empty after the backward.
/// - Gradients are added to the previous content.
/// - x does not change.
/// Returns the errors, one per line ("wq.weight[7]: backward 0.12, differences 0.13"), or "".
std::string gradcheck(const std::function<CheckedLayer(Parameters&)>& build, TestBatch batch,
                      const GradcheckOptions& options = {});
/// The same for a layer that already exists; its parameters have no memory yet.
std::string gradcheck(Parameters& parameters, const CheckedLayer& layer, TestBatch batch,
                      const GradcheckOptions& options = {});

}  // namespace coeus::test
