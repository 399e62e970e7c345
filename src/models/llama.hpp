// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/models/registry.hpp"

namespace coeus {

ModelFamily llama2_family();
ModelFamily llama3_family();

}  // namespace coeus
