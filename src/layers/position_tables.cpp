// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/position_tables.hpp"

#include <cmath>
#include <utility>

namespace coeus {

double Temperature::factor(int64_t position) const {
    return 1 + scale * std::log(1 + std::floor(double(position + offset) / floor));
}

TemperatureTable::TemperatureTable(int64_t positions, const Temperature& temperature, Dtype dtype)
    : temperature_(temperature) {
    if (temperature) table_.view = Tensor(nullptr, dtype, Shape{positions});
}

void TemperatureTable::allocate(const Device& device) {
    if (!temperature_) return;
    const int64_t positions = table_.view.shape[0];
    table_ = OwnedTensor(table_.view.dtype, table_.view.shape, "temperature table");
    for (int64_t p = 0; p < positions; ++p) set_element(table_, p, temperature_.factor(p));
    table_ = moved_to(device, std::move(table_));
}

}  // namespace coeus
