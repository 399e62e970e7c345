// SPDX-License-Identifier: Apache-2.0
#include "time_out.hpp"

#include <algorithm>

namespace coeus {

double TimeOut::pause() const {
    return std::clamp(seconds_ / 10, 0.01, 1.0);
}

void TimeOut::look(double now) {
    if (last_look_ > 0 && now - last_look_ > 1 + seconds_ / 2) resumed_ = now;
    last_look_ = now;
}

std::optional<double> TimeOut::overdue(const Operation& operation, double now) const {
    if (!operation.under_way() || operation.kind == OperationKind::patient ||
        operation.kind == OperationKind::queued || operation.kind == OperationKind::graph)
        return std::nullopt;
    const double seconds = now - std::max(operation.began, resumed_.load());
    return seconds > seconds_ + operation.allowance ? std::optional(seconds) : std::nullopt;
}

}  // namespace coeus
