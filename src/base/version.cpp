// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/version.hpp"

namespace coeus {

const char* version() {
    return COEUS_VERSION;
}

std::string build_type() {
    return COEUS_BUILD_TYPE;
}

std::string build_description() {
    return "GCC " __VERSION__ ", " COEUS_BUILD_TYPE ", -march=" COEUS_ARCH;
}

}  // namespace coeus
