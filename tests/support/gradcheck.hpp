// SPDX-License-Identifier: Apache-2.0
// gradcheck: the backward of a layer against central differences of its forward, in double. The function that
// is differentiated is f = sum(r * y) with fixed random r, or the loss that the layer adds to the scalars.
// Five points a derivative, f'(x) = (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h + O(h^4) (Abramowitz
// and Stegun 25.3.6), leave an error near 1e-10.
#pragma once

#include "coeus/state/parameters.hpp"
#include "support/model.hpp"

#include <functional>
#include <string>

namespace coeus::test {

/// A layer under test, built on the Parameters it was given.
struct CheckedLayer {
    /// x -> y, or an absent tensor where the layer adds its loss to the scalars.
    std::function<Tensor(Ctx&, Tensor x)> forward;
    /// Gradient of y (absent for a loss) -> gradient of x (absent where x is).
    std::function<Tensor(Ctx&, Tensor dy)> backward;
};

struct GradcheckOptions {
    Shape x = {};             ///< of the input; rank 0: the layer has none but the tokens
    int entries = 40;         ///< of each tensor, at random, that are checked one by one; fewer: all
    double tolerance = 1e-7;  ///< relative to the entry or the tensor's root mean square, whichever is larger
    double spread = 0;        ///< adds normal values of this deviation to the parameters' initial ones
    int threads = 1;
};

/// Declares parameters and layer by `build`, draws parameters and x from Philox, and compares every
/// parameter's gradient and that of x with finite differences: single entries, and one random direction that
/// touches all. Also: the arenas are exactly as large as a dry run measured and hold NaN, the frame is empty
/// after the backward, gradients are added to what was there, and x is left alone. Returns what was wrong, a
/// line each ("wq.weight[7]: backward 0.12, differences 0.13"), or "".
std::string gradcheck(const std::function<CheckedLayer(Parameters&)>& build, TestBatch batch,
                      const GradcheckOptions& options = {});
/// The same for a layer that is there already; its parameters have no memory yet.
std::string gradcheck(Parameters& parameters, const CheckedLayer& layer, TestBatch batch,
                      const GradcheckOptions& options = {});

}  // namespace coeus::test
