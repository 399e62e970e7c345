// SPDX-License-Identifier: Apache-2.0
// In step s = 1 ... P - 1 of an overlapped exchange every rank sends to the rank s after it, and receives
// from the rank s before it:
//
//   gather    rank r    step:    own     1       2       3
//             computes rows of     r    r - 1   r - 2   r - 3     while those of the next step arrive
//   scatter   computes rows of         r + 1   r + 2   r + 3   own   while those of the step before are sent
#include "coeus/layers/exchanges/sequence_parallel.hpp"

#include <vector>

namespace coeus {

namespace {

// Memory in temp for the rows of all ranks, with their scales if x is in 8 bits: those of rows are gathered,
// the others are the same on all ranks.
Tensor room_for_all(Ctx& c, Tensor x) {
    const Shape shape = {x.rows() * c.tp.size(), x.cols()};
    if (x.groups == ScaleGroups::none) return c.temp.alloc(x.dtype, shape);
    if (x.groups == ScaleGroups::one || x.groups == ScaleGroups::cols) {
        Tensor all = c.temp.alloc(x.dtype, shape);
        all.groups = x.groups;
        all.scale = x.scale;
        return all;
    }
    const Tensor all = c.temp.alloc(x.dtype, shape, x.groups);
    const Tensor scales = scales_of(all);
    const ObservedExchange noted(c.exec, Exchange::gather_tokens, scales);
    c.tp.all_gather(c.exec, scales, scales_of(x));
    return all;
}

}  // namespace

Tensor gather_tokens(Ctx& c, Tensor x) {
    if (c.tp.size() == 1) return x;
    const Tensor all = room_for_all(c, x);
    const ObservedExchange noted(c.exec, Exchange::gather_tokens, all);
    c.tp.all_gather(c.exec, all, x);
    return all;
}

Tensor parts_of(Ctx& c, Tensor y) {
    if (c.tp.size() == 1) return y;
    return c.temp.alloc(y.dtype, {y.rows() * c.tp.size(), y.cols()});
}

void scatter_tokens(Ctx& c, Tensor y, Tensor parts) {
    if (c.tp.size() == 1) return;
    const ObservedExchange noted(c.exec, Exchange::scatter_tokens, parts);
    c.tp.reduce_scatter(c.exec, y, parts);
}

namespace {

class WholeTokens : public TokenExchange {
public:
    Tensor gather(Ctx& c, Tensor x, EachRows each) const override {
        const Tensor all = gather_tokens(c, x);
        each(all, 0);
        return all;
    }
    void scatter(Ctx& c, Tensor y, EachRows compute) const override {
        const Scope temps(c.temp);
        const Tensor parts = parts_of(c, y);
        compute(parts, 0);
        scatter_tokens(c, y, parts);
    }
};

}  // namespace

const TokenExchange& whole_tokens() {
    static const WholeTokens whole;
    return whole;
}

// The messages of one exchange, one for each step.
class OverlappedTokens::Messages {
public:
    Messages(const Communicator& tp, Stream& stream) : tp_(tp), stream_(stream), steps_(size_t(tp.size())) {}

    int after(int step) const { return (tp_.rank() + step) % tp_.size(); }
    int before(int step) const { return (tp_.rank() + tp_.size() - step) % tp_.size(); }

    void begin(int step, Tensor sent, Tensor received) {
        Step& of = steps_[size_t(step)];
        of.sent = sent;
        of.received = received;
        of.pending = stream_.run([this, step] {
            const Step& now = steps_[size_t(step)];
            tp_.send_receive(stream_.exec(), now.sent, after(step), now.received, before(step));
        });
    }
    void wait(Ctx& c, int step, Exchange exchange) {
        Step& of = steps_[size_t(step)];
        const ObservedExchange noted(c.exec, exchange, of.sent);
        of.pending.join();
    }

private:
    struct Step {
        Tensor sent, received;
        Pending pending;
    };
    const Communicator& tp_;
    Stream& stream_;
    std::vector<Step> steps_;
};

OverlappedTokens::OverlappedTokens(const Communicator& tp, Stream& stream)
    : messages_(std::make_unique<Messages>(tp, stream)) {}
OverlappedTokens::~OverlappedTokens() = default;

Tensor OverlappedTokens::gather(Ctx& c, Tensor x, EachRows each) const {
    const int ranks = c.tp.size();
    const Tensor all = room_for_all(c, x);
    const auto use = [&](int rank) { each(all.slice_rows(rank * x.rows(), x.rows()), rank * x.rows()); };
    const Tensor own = all.slice_rows(c.tp.rank() * x.rows(), x.rows());
    c.k.cast(c.exec, own, x);
    for (int step = 1; step < ranks; ++step)
        messages_->begin(step, own, all.slice_rows(messages_->before(step) * x.rows(), x.rows()));
    use(c.tp.rank());
    for (int step = 1; step < ranks; ++step) {
        messages_->wait(c, step, Exchange::gather_tokens);
        use(messages_->before(step));
    }
    return all;
}

void OverlappedTokens::scatter(Ctx& c, Tensor y, EachRows compute) const {
    const int ranks = c.tp.size();
    const Scope temps(c.temp);
    // the products of all ranks for this rank's rows, and this rank's products for two other ranks, which
    // take turns
    const Tensor parts = c.temp.alloc(y.dtype, {y.rows() * ranks, y.cols()}),
                 leaving = c.temp.alloc(y.dtype, {y.rows() * std::min(ranks - 1, 2), y.cols()});
    const auto part_of = [&](int rank) { return parts.slice_rows(rank * y.rows(), y.rows()); };
    for (int step = 1; step < ranks; ++step) {
        if (step > 2) messages_->wait(c, step - 2, Exchange::scatter_tokens);
        const Tensor product = leaving.slice_rows((step - 1) % 2 * y.rows(), y.rows());
        compute(product, messages_->after(step) * y.rows());
        messages_->begin(step, product, part_of(messages_->before(step)));
    }
    compute(part_of(c.tp.rank()), c.tp.rank() * y.rows());
    for (int step = std::max(1, ranks - 2); step < ranks; ++step)
        messages_->wait(c, step, Exchange::scatter_tokens);
    c.k.sum_parts(c.exec, y, parts);
}

std::unique_ptr<TokenExchange> make_token_exchange(bool overlapped, const Communicator& tp, Stream& stream) {
    if (overlapped && tp.size() > 1) return std::make_unique<OverlappedTokens>(tp, stream);
    return std::make_unique<WholeTokens>();
}

}  // namespace coeus
