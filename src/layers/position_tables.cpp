// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/position_tables.hpp"

#include <cmath>

namespace coeus {

double Temperature::factor(int64_t position) const {
    return 1 + scale * std::log(1 + std::floor(double(position + 1) / floor));
}

TemperatureTable::TemperatureTable(int64_t positions, const Temperature& temperature, Dtype dtype) {
    if (!temperature) return;
    table_.emplace(dtype, Shape{positions}, "temperature table");
    for (int64_t p = 0; p < positions; ++p) set_element(table_->view, p, temperature.factor(p));
}

void TemperatureTable::move_to(const Device& device) {
    if (device.is_host() || !table_) return;
    OwnedTensor there(table_->view.dtype, table_->view.shape, "temperature table", device.memory());
    device.copy(there.view.data, table_->view.data, there.view.bytes());
    table_ = std::move(there);
}

}  // namespace coeus
