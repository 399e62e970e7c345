// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/precision.hpp"

namespace coeus {

const char* name_of(Recipe recipe) {
    switch (recipe) {
        case Recipe::none: return "none";
        case Recipe::tensorwise: return "tensorwise";
        case Recipe::rowwise: return "rowwise";
        case Recipe::rowwise_with_gw_hp: return "rowwise_with_gw_hp";
        case Recipe::mx_floor: return "MXFP8 (floor)";
        case Recipe::mx_rceil: return "MXFP8 (rceil)";
    }
    return "";
}

}  // namespace coeus
