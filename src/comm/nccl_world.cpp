// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl_world.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"

#include <exception>

namespace coeus {

void NcclConnection::check(nccl::Result result, const char* operation,
                           const std::source_location& where) const {
    if (result == nccl::Result::success) return;
    const char* last = nccl.get_last_error(comm);
    throw SystemError(fmt::format("NCCL: {} between the ranks of {}: {}{}{}", operation, name,
                                  nccl.get_error_string(result), last && *last ? ": " : "", last ? last : ""),
                      where);
}

NcclWorld::~NcclWorld() {
    const bool failed = std::uncaught_exceptions() > 0;
    for (const auto& connection : connections_) {
        if (connection->comm) (failed ? nccl_.comm_abort : nccl_.comm_destroy)(connection->comm);
        connection->comm = nullptr;
    }
}

std::shared_ptr<const NcclConnection> NcclWorld::connect(const Communicator& ranks) {
    const auto here = std::source_location::current();
    const auto& made = connections_.emplace_back(
        std::make_shared<NcclConnection>(NcclConnection{.nccl = nccl_, .name = ranks.name()}));
    nccl::UniqueId id = {};
    on_first_rank(ranks, [&] { made->check(nccl_.get_unique_id(&id), "start", here); });
    ranks.broadcast(Tensor(id.internal, Dtype::u8, {int64_t(sizeof id.internal)}), 0);
    together(ranks, [&] {
        made->check(nccl_.comm_init_rank(&made->comm, ranks.size(), id, ranks.rank()), "start", here);
    });
    return made;
}

}  // namespace coeus
