// SPDX-License-Identifier: Apache-2.0
// Compares cases on a mesh with the same models on one rank. The models on one rank are trained on all ranks
// of the world at the same time, a model on each, instead of on one of them while the others wait.
#pragma once

#include "support/mesh_run.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coeus::test {

/// By how much a mesh may differ from one rank: losses and norms relatively, arrays by ||a - b|| / ||b||.
struct Tolerances {
    double loss = 1e-11;
    double later = 1e-11;  ///< of what follows from gradients: their norm, and the validation loss
    double arrays = 1e-9;
    double some_arrays = 0;  ///< of a share of the arrays in each comparison, if it is larger
    double share = 0.25;
};
inline constexpr Tolerances in_float32 = {1e-5, 1e-5, 2e-4};
/// With a recipe, in float32. Sums in another order move a few numbers to the next 8-bit number, which is up
/// to 1/8 larger, so that a few arrays differ. A wrong scale or an operand that is not quantized changes
/// most of them.
inline constexpr Tolerances in_8_bits_and_float32 = {1e-4, 1e-4, 3e-3, 5e-2};

/// What one rank computes in the steps of a case.
struct OneRankResults {
    struct Step {
        bool is_finite = false;
        double loss = 0, norm = 0;
        std::array<double, StepScalars::most_losses> losses = {};  ///< parts of the loss
        std::optional<double> validation_loss;  ///< of the steps after which it is compared
        std::map<std::string, std::vector<double>> gradients;
    };
    std::vector<Step> steps;
    std::map<std::string, std::vector<double>> weights;
    std::vector<int64_t> loads;
};

/// Takes steps of each added case on its mesh and on one rank. Compares loss, norm and every gradient by
/// name; after the last step (with graphs also after the first) every weight and a validation loss; and the
/// used memory with the planned memory. Cases whose models on one rank are the same share its results. All
/// ranks add the same cases.
class OneRankComparison {
public:
    explicit OneRankComparison(const Communicator& world) : world_(world) {}

    void add(const MeshCase& c, int64_t steps = 3, const Tolerances& tolerances = {},
             const std::string& about = "");
    size_t size() const { return cases_.size(); }
    /// The differences of case `i`, one per line, or "". Called once for each case, in order. The result is
    /// the same on every rank if there is none. Collective.
    std::string difference(size_t i);
    /// Checks that no case differs. Collective.
    void check();

private:
    struct Compared {
        MeshCase mesh_case;
        int64_t steps;
        Tolerances tolerances;
        std::string about;
        size_t reference;
    };
    struct Reference {
        MeshCase one_rank;
        int64_t steps;
        bool validates_first;  // after the first step too
        size_t last_use;
        std::optional<OneRankResults> results;  // on one of the ranks, until the last use
    };

    int owner_of(size_t reference) const { return int(reference % size_t(world_.size())); }
    void train_next_references();

    const Communicator& world_;
    std::vector<Compared> cases_;
    std::vector<Reference> references_;  // in the order of their first use
    size_t trained_ = 0;
};

/// The same for one case: its differences, one per line, or "". Collective.
std::string differs_from_one_rank(const MeshCase& c, const Communicator& world, int64_t steps = 3,
                                  const Tolerances& tolerances = {});

}  // namespace coeus::test
