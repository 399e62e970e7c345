// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/rank_numbers.hpp"

#include "coeus/base/error.hpp"
#include "communicator_handle.hpp"
#include "wait.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace coeus {

struct RankNumbers::Request {
    MPI_Request request = MPI_REQUEST_NULL;
};

RankNumbers::RankNumbers(const Communicator& ranks, size_t count)
    : ranks_(ranks.split(0, "gather")),
      own_(count),
      all_(ranks_.rank() == 0 ? count * size_t(ranks_.size()) : 0),
      request_(std::make_unique<Request>()) {}

// After an error other ranks may never join the gather. Then the memory is leaked, so that MPI can use it
// until the process ends.
RankNumbers::~RankNumbers() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!under_way_ || finalised) return;
    if (std::uncaught_exceptions() == 0)
        MPI_Wait(&request_->request, MPI_STATUS_IGNORE);
    else
        static_cast<void>(
            std::make_unique<std::pair<decltype(own_), decltype(all_)>>(std::move(own_), std::move(all_))
                .release());
}

void RankNumbers::begin(std::span<const double> values) {
    require(!under_way_ && values.size() == own_.size(),
            "only one gather at a time, of as many numbers as declared");
    std::ranges::copy(values, own_.begin());
    under_way_ = true;
    if (ranks_.size() == 1) {
        all_ = own_;
        return;
    }
    const int count = int(own_.size());
    COEUS_CHECK_MPI(MPI_Igather(own_.data(), count, MPI_DOUBLE, all_.data(), count, MPI_DOUBLE, 0,
                                ranks_.handle().comm, &request_->request));
}

std::span<const double> RankNumbers::finish() {
    require(under_way_, "finish() needs a gather in progress");
    wait_for(request_->request);
    under_way_ = false;
    return all_;
}

}  // namespace coeus
