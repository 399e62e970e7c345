// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl_world.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "communicator_handle.hpp"

#include <algorithm>
#include <exception>

namespace coeus {

namespace {

constexpr const char *starting = "start", *ending = "end";

// Records the start or the end of a communicator, which waits for the other ranks.
class Watched {
public:
    Watched(const NcclConnection& connection, const char* what) : line_(connection.line.get()) {
        if (line_) line_->begin(what, 0, nullptr);
    }
    ~Watched() {
        if (line_) line_->end(nullptr);
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

private:
    QueueWatch::Line* line_;
};

}  // namespace

std::string NcclConnection::text_of(nccl::Result result) const {
    const char* last = nccl.get_last_error(comm);
    return fmt::format("{}{}{}", nccl.get_error_string(result), last && *last ? ": " : "", last ? last : "");
}

void NcclConnection::check(nccl::Result result, const char* operation,
                           const std::source_location& where) const {
    if (result == nccl::Result::success) return;
    throw SystemError(fmt::format("NCCL: {} between the ranks of {}: {}", operation, name, text_of(result)),
                      where);
}

// Communicators that are split from another one set themselves up through its connections. They share no
// resources (splitShare): sharing would let their operations run one after the other. Without it, weights are
// gathered while gradients are reduced if versions allow it (launch_order.hpp).
NcclWorld::NcclWorld(const NcclLibrary& nccl, const Communicator& world, const Device& device,
                     QueueWatch* watch, int ranks_per_id)
    : nccl_(nccl), world_(world), device_(device), watch_(watch), ranks_per_id_(ranks_per_id) {
    if (!nccl.comm_split || world.size() == 1) return;
    const Timer timer;
    all_ = start(world);
    connections_.push_back(all_);
    make(*all_, world, nullptr);
    splits_ = true;
    seconds_ = timer.seconds();
}

NcclWorld::~NcclWorld() {
    const bool failed = std::uncaught_exceptions() > 0;
    for (const auto& connection : connections_) {
        connection->line.reset();
        if (connection->comm) (failed ? nccl_.comm_abort : nccl_.comm_destroy)(connection->comm);
        connection->comm = nullptr;
    }
}

std::shared_ptr<NcclConnection> NcclWorld::start(const Communicator& ranks) {
    auto made = std::make_shared<NcclConnection>(nccl_, ranks.name());
    if (watch_) {
        const auto failure = [connection = made.get()] {
            nccl::Result state = nccl::Result::success;
            const nccl::Comm comm = connection->comm;
            if (comm) connection->nccl.comm_get_async_error(comm, &state);
            return state == nccl::Result::success ? std::string() : connection->text_of(state);
        };
        made->line = std::make_unique<QueueWatch::Line>(
            *watch_, ranks.name(), failure, &device_,
            FlightRecorder::Line(ranks.name() + " by NCCL", ranks.handle().line.id() + 1, ranks.rank(),
                                 ranks.size()));
    }
    return made;
}

// Ids where ranks meet, the same on all ranks. Each is made by the first of its ranks; NCCL divides the ranks
// as evenly as possible (rootIdFromRank in its src/bootstrap.cc).
std::vector<nccl::UniqueId> NcclWorld::ids(const NcclConnection& made, const Communicator& ranks) const {
    const auto here = std::source_location::current();
    const int64_t size = ranks.size(),
                  count = nccl_.comm_init_rank_scalable ? (size + ranks_per_id_ - 1) / ranks_per_id_ : 1;
    const auto first_of = [&](int64_t id) { return id * (size / count) + std::min(id, size % count); };
    std::vector<nccl::UniqueId> all(static_cast<size_t>(size));
    nccl::UniqueId own = {};
    together(ranks, [&] {
        for (int64_t id = 0; id < count; ++id)
            if (first_of(id) == ranks.rank()) made.check(nccl_.get_unique_id(&own), starting, here);
    });
    constexpr int64_t bytes = sizeof own.internal;
    ranks.all_gather(Tensor(all.data(), Dtype::u8, {bytes * size}), Tensor(&own, Dtype::u8, {bytes}));
    for (int64_t id = 0; id < count; ++id) all[size_t(id)] = all[size_t(first_of(id))];
    all.resize(size_t(count));
    return all;
}

void NcclWorld::make(NcclConnection& made, const Communicator& ranks, nccl::Config* config) {
    const auto here = std::source_location::current();
    const Watched watched(made, starting);
    std::vector<nccl::UniqueId> all = ids(made, ranks);
    nccl::Comm comm = nullptr;
    const auto init = [&] {
        if (all.size() > 1)
            return nccl_.comm_init_rank_scalable(&comm, ranks.size(), ranks.rank(), int(all.size()),
                                                 all.data(), config);
        if (config) return nccl_.comm_init_rank_config(&comm, ranks.size(), all[0], ranks.rank(), config);
        return nccl_.comm_init_rank(&comm, ranks.size(), all[0], ranks.rank());
    };
    together(ranks, [&] { made.check(init(), starting, here); });
    made.comm = comm;
}

// Ranks of one part have the same colour, the number of their first rank; a rank alone has none.
void NcclWorld::split(NcclConnection& made, const Communicator& ranks, nccl::Config* config) {
    const auto here = std::source_location::current();
    const Watched watched(made, starting);
    auto first = int64_t(world_.rank());
    ranks.broadcast(Tensor(&first, Dtype::i64, {1}), 0);
    const int colour = ranks.size() > 1 ? int(first) : nccl::no_color;
    nccl::Comm comm = nullptr;
    together(world_, [&] {
        made.check(nccl_.comm_split(all_->comm, colour, ranks.rank(), &comm, config), starting, here);
    });
    made.comm = comm;
}

std::shared_ptr<const NcclConnection> NcclWorld::connect(const Communicator& ranks, int max_ctas) {
    require(!is_complete_, "a communicator is connected after the last one");
    const Timer timer;
    const auto made = start(ranks);
    connections_.push_back(made);
    nccl::Config limited;
    limited.max_ctas = max_ctas;
    nccl::Config* const config = max_ctas > 0 ? &limited : nullptr;
    if (all_)
        split(*made, ranks, config);
    else if (ranks.size() > 1)
        make(*made, ranks, config);
    seconds_ += timer.seconds();
    if (ranks.size() > 1) return made;
    connections_.pop_back();
    return nullptr;
}

// Splits without shared resources have their own buffers, connections and threads, so their parent may end
// before them. It has no work of its own.
void NcclWorld::end_connecting() {
    is_complete_ = true;
    if (!all_) return;
    const auto here = std::source_location::current();
    const Timer timer;
    {
        const Watched watched(*all_, ending);
        together(world_, [&] {
            if (nccl_.comm_finalize) all_->check(nccl_.comm_finalize(all_->comm), ending, here);
        });
    }
    all_->line.reset();
    all_->check(nccl_.comm_destroy(all_->comm.exchange(nullptr)), ending, here);
    std::erase(connections_, all_);
    all_ = nullptr;
    seconds_ += timer.seconds();
}

std::string NcclWorld::text() const {
    return fmt::format("{} communicators in {:.2f} s{}", connections_.size() - (all_ ? 1 : 0), seconds_,
                       splits_ ? fmt::format(", split from one of all {} ranks", world_.size()) : "");
}

}  // namespace coeus
