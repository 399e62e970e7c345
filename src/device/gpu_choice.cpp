// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/gpu_choice.hpp"

#include "coeus/device/cpu.hpp"

#include <algorithm>

namespace coeus {

namespace {

// A matching of ranks and places: place p is one on GPU p modulo the number of GPUs.
class Matching {
public:
    Matching(const std::vector<std::string>& bound_to, const std::vector<std::string>& near_to)
        : ranks_(bound_to.size()), near_(ranks_), place_of_(ranks_, none), rank_of_(ranks_, none) {
        for (size_t rank = 0; rank < ranks_; ++rank)
            for (size_t place = 0; place < ranks_; ++place)
                near_[rank].push_back(share_processors(bound_to[rank], near_to[place % near_to.size()]));
    }

    // The place of each rank.
    const std::vector<size_t>& solve() {
        for (size_t rank = 0; rank < ranks_; ++rank)
            if (near_[rank][rank]) match(rank, rank);
        for (size_t rank = 0; rank < ranks_; ++rank)
            if (place_of_[rank] == none) {
                std::vector<bool> tried(ranks_);
                find_near(rank, tried);
            }
        // the others are far from any GPU that is left
        for (size_t rank = 0; rank < ranks_; ++rank)
            if (place_of_[rank] == none && rank_of_[rank] == none) match(rank, rank);
        for (size_t rank = 0; rank < ranks_; ++rank)
            if (place_of_[rank] == none)
                match(rank, size_t(std::ranges::find(rank_of_, none) - rank_of_.begin()));
        return place_of_;
    }

private:
    static constexpr size_t none = size_t(-1);

    void match(size_t rank, size_t place) {
        place_of_[rank] = place;
        rank_of_[place] = rank;
    }
    // Finds a near place for a rank: a free one, or that of a rank that has another near place (an augmenting
    // path).
    bool find_near(size_t rank, std::vector<bool>& tried) {
        for (const bool free : {true, false})
            for (size_t place = 0; place < ranks_; ++place) {
                if (!near_[rank][place] || tried[place] || (rank_of_[place] == none) != free) continue;
                tried[place] = true;
                if (!free && !find_near(rank_of_[place], tried)) continue;
                match(rank, place);
                return true;
            }
        return false;
    }

    size_t ranks_;
    std::vector<std::vector<bool>> near_;  // [rank][place]
    std::vector<size_t> place_of_, rank_of_;
};

}  // namespace

std::vector<int> nearest_gpus(const std::vector<std::string>& bound_to,
                              const std::vector<std::string>& near_to) {
    Matching matching(bound_to, near_to);
    std::vector<int> gpus;
    for (const size_t place : matching.solve()) gpus.push_back(int(place % near_to.size()));
    return gpus;
}

}  // namespace coeus
