// SPDX-License-Identifier: Apache-2.0
// Names for the tensors of a storage, including those of the optimizer, so that a test can choose which to
// look at.
#pragma once

#include "coeus/state/storage.hpp"

#include <functional>
#include <string>

namespace coeus::test {

/// &Storage::master, or a moment. A tensor that a storage does not have is absent.
using StorageTensor = std::function<Tensor(const Storage&)>;

/// The moment with this name.
inline StorageTensor moment(const std::string& name) {
    return [name](const Storage& storage) -> Tensor {
        for (size_t i = 0; i < storage.kept().size(); ++i)
            if (storage.kept()[i].name == name) return storage.moments[i];
        return {};
    };
}
inline Tensor exp_avg(const Storage& storage) {
    return moment("exp_avg")(storage);
}
inline Tensor exp_avg_sq(const Storage& storage) {
    return moment("exp_avg_sq")(storage);
}

}  // namespace coeus::test
