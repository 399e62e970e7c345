// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/replica.hpp"

namespace coeus {

bool is_divided_over_tp(const Param& param) {
    return param.shard.tp == Split::rows || param.shard.tp == Split::cols;
}

Replica replica_of(const Param& param, const ShardPlace& place) {
    const bool divided = is_divided_over_tp(param);
    const int on_tp = divided ? 1 : place.tp, number = divided ? 0 : place.tp_rank;
    return {.number = (place.replica * param.copies + param.copy) * on_tp + number,
            .count = place.replicas * param.copies * on_tp};
}

bool counts_here(const Param& param, const ShardPlace& place) {
    ShardPlace of_one = place;
    of_one.replicas = 1;
    of_one.replica = 0;
    return replica_of(param, of_one).number == 0;
}

}  // namespace coeus
