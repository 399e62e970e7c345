// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl_world.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "communicator_handle.hpp"

#include <algorithm>
#include <exception>

namespace coeus {

namespace {

constexpr const char* starting = "start";

// Records the start of a communicator, which waits for the other ranks.
class WatchedStart {
public:
    explicit WatchedStart(const NcclConnection& connection) : line_(connection.line.get()) {
        if (line_) line_->begin(starting, 0, nullptr);
    }
    ~WatchedStart() {
        if (line_) line_->end(nullptr);
    }
    WatchedStart(const WatchedStart&) = delete;
    WatchedStart& operator=(const WatchedStart&) = delete;

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
                     QueueWatch* watch)
    : nccl_(nccl), world_(world), device_(device), watch_(watch) {
    if (!nccl.comm_split || world.size() == 1) return;
    const Timer timer;
    NcclConnection& all = add(world);
    make(all, world);
    all_ = &all;
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

NcclConnection& NcclWorld::add(const Communicator& ranks) {
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
    return *connections_.emplace_back(std::move(made));
}

void NcclWorld::make(NcclConnection& made, const Communicator& ranks) {
    const auto here = std::source_location::current();
    const WatchedStart watched(made);
    nccl::UniqueId id = {};
    on_first_rank(ranks, [&] { made.check(nccl_.get_unique_id(&id), starting, here); });
    ranks.broadcast(Tensor(id.internal, Dtype::u8, {int64_t(sizeof id.internal)}), 0);
    nccl::Comm comm = nullptr;
    together(ranks, [&] {
        made.check(nccl_.comm_init_rank(&comm, ranks.size(), id, ranks.rank()), starting, here);
    });
    made.comm = comm;
}

// Ranks of one part have the same colour, the number of their first rank; a rank alone has none.
void NcclWorld::split(NcclConnection& made, const Communicator& ranks) {
    const auto here = std::source_location::current();
    const WatchedStart watched(made);
    auto first = int64_t(world_.rank());
    ranks.broadcast(Tensor(&first, Dtype::i64, {1}), 0);
    const int colour = ranks.size() > 1 ? int(first) : nccl::no_color;
    nccl::Comm comm = nullptr;
    together(world_, [&] {
        made.check(nccl_.comm_split(all_->comm, colour, ranks.rank(), &comm, nullptr), starting, here);
    });
    made.comm = comm;
}

std::shared_ptr<const NcclConnection> NcclWorld::connect(const Communicator& ranks) {
    const Timer timer;
    NcclConnection& made = add(ranks);
    if (all_)
        split(made, ranks);
    else if (ranks.size() > 1)
        make(made, ranks);
    seconds_ += timer.seconds();
    if (ranks.size() > 1) return connections_.back();
    connections_.pop_back();
    return nullptr;
}

std::string NcclWorld::text() const {
    return fmt::format("{} communicators in {:.2f} s{}", connections_.size() - (all_ ? 1 : 0), seconds_,
                       all_ ? fmt::format(", split from one of all {} ranks", world_.size()) : "");
}

}  // namespace coeus
