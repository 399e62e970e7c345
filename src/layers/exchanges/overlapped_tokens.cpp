// SPDX-License-Identifier: Apache-2.0
// With groups of one rank, in step s = 1 ... P - 1 every rank sends to the rank s after it, and receives from
// the rank s before it:
//
//   gather    rank r    step:    own     1       2       3
//             computes rows of     r    r - 1   r - 2   r - 3     while those of the next step arrive
//   scatter   computes rows of         r + 1   r + 2   r + 3   own   while those of the step before are sent
//
// With larger groups, the product of a group's rows waits for the rows of all its ranks. Those of the own
// group are computed in up to three products: the own rows, and the rows before and after them.
#include "coeus/layers/exchanges/overlapped_tokens.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/peer_memory.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

int ranks_together(int64_t rows, int64_t columns, int ranks, const ProductTiles& tiles) {
    if (tiles.at_a_time == 0) return 1;
    const auto busy = [&](int number) {
        const int64_t all = round_up(number * rows, tiles.rows) / tiles.rows *
                            (round_up(columns, tiles.columns) / tiles.columns);
        return double(all) / double(round_up(all, tiles.at_a_time));
    };
    int best = 1;
    for (const int number : {2, 4})
        if (ranks % number == 0 && 2 * number <= ranks && busy(number) > busy(best)) best = number;
    return best;
}

namespace {

// Gives parts of a buffer.
class PartsOfBuffer : public Memory {
public:
    PartsOfBuffer(const Buffer& whole, int64_t first) : whole_(whole), given_(first) {}
    std::byte* take(int64_t bytes, const std::string& /*what*/) const override {
        require(given_ + bytes <= whole_.bytes(), "a buffer has no more room");
        return whole_.data() + std::exchange(given_, given_ + padded_bytes(bytes));
    }
    void give_back(std::byte* /*data*/, int64_t /*bytes*/) const override {}
    bool is_host() const override { return whole_.memory().is_host(); }

private:
    const Buffer& whole_;
    mutable int64_t given_;
};

}  // namespace

int64_t OverlappedTokens::bytes(const TokenRooms& rooms, int ranks, Backend backend) {
    const int64_t all = padded_bytes(rooms.gathered) + padded_bytes(rooms.parts);
    if (backend == Backend::cpu || all == 0) return all;
    return round_up(PeerMemory::bytes_of_numbers(ranks) + all, shared_block);
}

// The messages of an exchange, by their steps.
class OverlappedTokens::Messages {
public:
    Messages(const Communicator& tp, Stream& stream) : tp_(tp), stream_(stream), steps_(size_t(tp.size())) {}

    // `place`: where this rank's rows are in the memory of a rank that gets them, as a place in this memory.
    void prepare(int step, Tensor sent, int to, Tensor place, Tensor received, int from) {
        Message& message = steps_[size_t(step)];
        message.sent = sent;
        message.place = place;
        message.received = received;
        message.to = to;
        message.from = from;
    }
    // `peers` is null if GPUs do not copy into each other's memory.
    void begin(int step, PeerMemory* peers) {
        Message& message = steps_[size_t(step)];
        message.peers = peers;
        message.pending = stream_.run([this, &message] { pass(message); });
    }
    void wait(Ctx& c, int step, Exchange exchange) {
        Message& message = steps_[size_t(step)];
        const ObservedExchange noted(c.exec, exchange, message.sent);
        message.pending.join();
    }

private:
    struct Message {
        Tensor sent, place, received;
        int to = 0, from = 0;
        PeerMemory* peers = nullptr;
        Pending pending;
    };
    void pass(const Message& m) {
        if (m.peers)
            m.peers->send_receive(*stream_.exec().queue, m.sent, m.to, m.place, m.received, m.from);
        else
            tp_.send_receive(stream_.exec(), m.sent, m.to, m.received, m.from);
    }
    const Communicator& tp_;
    Stream& stream_;
    std::vector<Message> steps_;
};

class OverlappedTokens::State {
public:
    State(const Communicator& tp, Stream& stream, const ProductTiles& tiles, bool copies,
          std::optional<TokenRooms> rooms)
        : tp_(tp), stream_(stream), tiles_(tiles), gathering_(tp, stream), scattering_(tp, stream) {
        if (!rooms) return;
        const Device& device = *stream.exec().device;
        memory_ = Buffer(bytes(*rooms, tp.size(), device.backend()), term_of_memory, device.memory());
        places_.emplace(memory_, device.is_host() ? 0 : PeerMemory::bytes_of_numbers(tp.size()));
        gathered_ = Arena(rooms->gathered, name_of_gathered, *places_);
        parts_ = Arena(rooms->parts, name_of_parts, *places_);
        if (!copies || device.is_host()) return;
        peers_ = tp.is_planned() ? PeerMemory::planned(tp)
                                 : PeerMemory::open(tp, stream.exec(), memory_, why_no_copies_);
    }

    TokenSteps steps(int64_t rows, int64_t columns) const {
        return {tp_.rank(), tp_.size(), ranks_together(rows, columns, tp_.size(), tiles_)};
    }

    // Prepares to gather x, and returns the room for all rows.
    Tensor prepare_gather(Ctx& c, Tensor x, const TokenSteps& steps) {
        require(!asked_, "a gather of tokens begins before another one has ended");
        gathered_.rewind(0);
        asked_ = sent_ = x;
        all_ = room_for_all(c, gathered_, x);
        own_ = all_.slice_rows(tp_.rank() * x.rows(), x.rows());
        if (!x.dense()) {
            c.k.cast(c.exec, own_, x);
            sent_ = own_;
        }
        for (int step = 1; step < tp_.size(); ++step)
            gathering_.prepare(step, sent_, steps.to(step), own_,
                               all_.slice_rows(steps.from(step) * x.rows(), x.rows()), steps.from(step));
        next_ = 1;
        return all_;
    }
    // Begins up to so many more of the prepared messages.
    void begin_messages(int number) {
        for (; asked_ && number > 0 && next_ < tp_.size(); --number) gathering_.begin(next_++, peers_.get());
    }
    // Computes the rows of each group as soon as they have arrived, and the own rows before.
    void use_parts(Ctx& c, const TokenSteps& steps, EachRows each) {
        const int64_t rows = sent_.rows();
        const int rank = tp_.rank();
        const auto use = [&](int first, int end) {
            if (first < end) each(all_.slice_rows(first * rows, (end - first) * rows), first * rows);
        };
        each(sent_, rank * rows);
        const int group = tp_.size() / steps.groups();
        for (int step = 1; step < tp_.size(); ++step) {
            gathering_.wait(c, step, Exchange::gather_tokens);
            if ((step + 1) % group != 0) continue;
            const int first = steps.first_of_group(steps.from(step));
            if (step < group) {
                use(first, rank);
                use(rank + 1, first + group);
            } else {
                use(first, first + group);
            }
        }
    }
    // The own rows are copied after the messages.
    void begin_copy() {
        if (sent_.data != own_.data && !gathered_.planning())
            copy_ = stream_.run([this] { stream_.exec().queue->copy(own_.data, sent_.data, sent_.bytes()); });
    }
    Tensor end_gather() {
        copy_.join();
        asked_ = {};
        return all_;
    }
    Tensor wait_for_all(Ctx& c) {
        begin_messages(tp_.size());
        begin_copy();
        for (int step = 1; step < tp_.size(); ++step) gathering_.wait(c, step, Exchange::gather_tokens);
        return end_gather();
    }
    bool has_begun(Tensor x) const { return asked_ && asked_.data == x.data; }

    // The own group comes last, and its own rows after the others.
    void scatter(Ctx& c, Tensor y, EachRows compute, Work meanwhile) {
        constexpr int buffers = 2;  // of products that leave
        const TokenSteps order = steps(y.rows(), y.cols());
        const int ranks = tp_.size(), rank = tp_.rank(), group = ranks / order.groups();
        const int64_t rows = y.rows();
        parts_.rewind(0);
        // the products of all ranks for this rank's rows, and this rank's products for two groups of ranks,
        // which take turns
        const Tensor parts = parts_.alloc(y.dtype, {rows * ranks, y.cols()});
        const int sending = group > 1 ? order.groups() : order.groups() - 1;
        const Tensor leaving = c.temp.alloc(y.dtype, {rows * group * std::min(sending, buffers), y.cols()});
        const auto steps_of = [&](int turn) {  // of the groups after the own one, and at last of this one
            const int first = turn == order.groups() ? 1 : turn * group;
            return std::pair(first, turn == order.groups() ? group : first + group);
        };
        const auto wait_for = [&](int turn) {
            const auto [first, end] = steps_of(turn);
            for (int step = first; step < end; ++step) scattering_.wait(c, step, Exchange::scatter_tokens);
        };
        for (int turn = 1; turn <= sending; ++turn) {
            if (turn > buffers) wait_for(turn - buffers);
            const auto [first_step, end] = steps_of(turn);
            const int first = order.first_of_group(order.to(first_step));
            const Tensor products = leaving.slice_rows((turn - 1) % buffers * group * rows, group * rows);
            const auto compute_ranks = [&](int begin, int last) {
                if (begin < last)
                    compute(products.slice_rows((begin - first) * rows, (last - begin) * rows), begin * rows);
            };
            if (turn == order.groups()) {
                compute_ranks(first, rank);
                compute_ranks(rank + 1, first + group);
            } else {
                compute_ranks(first, first + group);
            }
            for (int step = first_step; step < end; ++step) {
                const int to = order.to(step), from = order.from(step);
                scattering_.prepare(step, products.slice_rows((to - first) * rows, rows), to,
                                    parts.slice_rows(rank * rows, rows), parts.slice_rows(from * rows, rows),
                                    from);
                scattering_.begin(step, peers_.get());
                begin_messages(1);
            }
        }
        compute(parts.slice_rows(rank * rows, rows), rank * rows);
        meanwhile();
        for (int turn = std::max(1, sending - buffers + 1); turn <= sending; ++turn) wait_for(turn);
        c.k.sum_parts(c.exec, y, parts);
    }

    const std::string& why_no_copies() const { return why_no_copies_; }
    TokenRooms used() const { return {gathered_.peak(), parts_.peak()}; }
    std::vector<std::pair<std::string, const Arena*>> arenas() const {
        return {{name_of_gathered, &gathered_}, {name_of_parts, &parts_}};
    }
    void observe(ArenaObserver* observer) {
        gathered_.observe(observer);
        parts_.observe(observer);
    }

private:
    static constexpr const char *name_of_gathered = "gathered tokens",
                                *name_of_parts = "parts of sums of tokens",
                                *term_of_memory = "tokens of other ranks";
    const Communicator& tp_;
    Stream& stream_;
    ProductTiles tiles_;
    Buffer memory_;
    std::optional<PartsOfBuffer> places_;
    Arena gathered_, parts_;  // in memory_
    std::unique_ptr<PeerMemory> peers_;
    std::string why_no_copies_;
    // of the gather that has begun
    Tensor asked_, sent_, own_, all_;
    int next_ = 1;
    Pending copy_;
    Messages gathering_, scattering_;  // these and copy_ end before the memory
};

OverlappedTokens::OverlappedTokens(const Communicator& tp, Stream& stream, const ProductTiles& tiles,
                                   bool copies, std::optional<TokenRooms> rooms)
    : state_(std::make_unique<State>(tp, stream, tiles, copies, rooms)) {}
OverlappedTokens::~OverlappedTokens() = default;

void OverlappedTokens::gather_parts(Ctx& c, Tensor x, int64_t columns, EachRows each) const {
    const TokenSteps steps = state_->steps(x.rows(), columns);
    state_->prepare_gather(c, x, steps);
    state_->begin_messages(c.tp.size());
    state_->use_parts(c, steps, each);
    state_->end_gather();
}

Tensor OverlappedTokens::gather(Ctx& c, Tensor x, int64_t columns, EachRows each) const {
    const TokenSteps steps = state_->steps(x.rows(), columns);
    state_->prepare_gather(c, x, steps);
    state_->begin_messages(c.tp.size());
    state_->begin_copy();
    state_->use_parts(c, steps, each);
    return state_->end_gather();
}

// A scatter begins one more message after each of its own, so two at first keep the stream busy.
void OverlappedTokens::begin_gather(Ctx& c, Tensor x) const {
    state_->prepare_gather(c, x, TokenSteps(c.tp.rank(), c.tp.size(), 1));
    state_->begin_messages(2);
}

Tensor OverlappedTokens::gather(Ctx& c, Tensor x) const {
    if (!state_->has_begun(x)) begin_gather(c, x);
    return state_->wait_for_all(c);
}

void OverlappedTokens::scatter(Ctx& c, Tensor y, EachRows compute, Work meanwhile) const {
    const Scope temps(c.temp);
    state_->scatter(c, y, compute, meanwhile);
}

const std::string& OverlappedTokens::why_no_copies() const {
    return state_->why_no_copies();
}

TokenRooms OverlappedTokens::used() const {
    return state_->used();
}

std::vector<std::pair<std::string, const Arena*>> OverlappedTokens::arenas() const {
    return state_->arenas();
}

void OverlappedTokens::observe(ArenaObserver* observer) {
    state_->observe(observer);
}

}  // namespace coeus
