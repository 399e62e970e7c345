// SPDX-License-Identifier: Apache-2.0
// Ring attention. At step s rank r has the keys and values of rank r - s:
//
//   step   rank 0   1   2
//     0         0   1   2      each has its own
//     1         2   0   1      received from the left
//     2         1   2   0
//             ->  ->  ->  (and from the last to the first)
//
// Gradients take one more step, which brings them back to their rank. In the backward, the sum of the ranks
// before arrives while a rank computes its own gradients of the same part. Then it adds them and passes on.
#include "coeus/layers/exchanges/context_parallel.hpp"

#include <utility>

namespace coeus {

namespace {

struct KeysAndValues {
    Tensor keys, values;
    KeysAndValues(Tensor both, const AttentionTensors& t)
        : keys(both.slice_cols(0, t.k.cols())), values(both.slice_cols(t.k.cols(), t.v.cols())) {}
};

// The two exchanges may be under way at the same time.
int channel_of(Exchange exchange) {
    return exchange == Exchange::pass_keys_on ? 0 : 1;
}
int number_sent(Exchange exchange) {
    return 2 * channel_of(exchange);
}
int number_received(Exchange exchange) {
    return number_sent(exchange) + 1;
}

}  // namespace

// [T, K (d + e)] in temp, to be sent as one message.
Tensor RingExchange::keys_and_values(Ctx& c, const AttentionTensors& t) const {
    const Tensor both = c.temp.alloc(t.k.dtype, {t.k.rows(), t.k.cols() + t.v.cols()});
    const KeysAndValues parts(both, t);
    c.k.cast(c.exec, parts.keys, t.k);
    c.k.cast(c.exec, parts.values, t.v);
    return both;
}

// Sends to the right and receives from the left.
void RingExchange::pass_on(Exchange exchange, Tensor here, Tensor coming) const {
    const int ranks = cp_.size(), rank = cp_.rank(), channel = channel_of(exchange);
    messages_->receive(number_received(exchange), coming, (rank + ranks - 1) % ranks, channel);
    messages_->send(number_sent(exchange), here, (rank + 1) % ranks, channel);
    messages_->start();  // together: each rank's receive needs its neighbour's send
}

// Waits for the part of the messages that the computation did not hide.
void RingExchange::finish(Ctx& c, Exchange exchange, Tensor passed) const {
    const ObservedExchange noted(c.exec, exchange, passed);
    messages_->wait(number_sent(exchange));
    messages_->wait(number_received(exchange));
}

void RingExchange::forward(Ctx& c, const AttentionTensors& t) const {
    const Scope temps(c.temp);
    const Dtype acc = t.lse.dtype;
    Tensor here = keys_and_values(c, t), coming = c.temp.alloc(here.dtype, here.shape);
    const Tensor out = c.temp.alloc(acc, t.out.shape);
    AttentionShape shape = t.shape;
    shape.query_part = part_of(cp_.rank(), t);
    for (int step = 0; step < cp_.size(); ++step) {
        const bool last = step == cp_.size() - 1;
        if (!last) pass_on(Exchange::pass_keys_on, here, coming);
        shape.key_part = part_of((cp_.rank() + cp_.size() - step) % cp_.size(), t);
        const KeysAndValues kv(here, t);
        const auto attend = step == 0 ? c.k.attention : c.k.merge_attention;
        attend(c.exec, out, t.lse, t.q, kv.keys, kv.values, c.batch.document_start, shape);
        if (!last) finish(c, Exchange::pass_keys_on, here);
        std::swap(here, coming);
    }
    add_sinks(c, out, t.lse, t.sinks);
    c.k.cast(c.exec, t.out, out);
}

void RingExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    const Scope temps(c.temp);
    add_sinks_backward(c, t.dsinks, dout, t.out, t.lse, t.sinks);
    const Dtype acc = t.lse.dtype;
    Tensor here = keys_and_values(c, t), coming = c.temp.alloc(here.dtype, here.shape);
    // gradients of keys and values: this rank's, the sum that is being passed on, and the one that arrives
    Tensor own = c.temp.alloc(acc, here.shape), sum = c.temp.alloc(acc, here.shape),
           arriving = c.temp.alloc(acc, here.shape);
    const Tensor dq = c.temp.alloc(acc, t.q.shape);
    c.k.zero(c.exec, dq);
    AttentionShape shape = t.shape;
    shape.query_part = part_of(cp_.rank(), t);
    for (int step = 0; step < cp_.size(); ++step) {
        const bool first = step == 0, last = step == cp_.size() - 1;
        if (!last) pass_on(Exchange::pass_keys_on, here, coming);
        shape.key_part = part_of((cp_.rank() + cp_.size() - step) % cp_.size(), t);
        const KeysAndValues kv(here, t), gradients(own, t);
        c.k.attention_backward(c.exec, dq, gradients.keys, gradients.values, dout, t.out, t.lse, t.q, kv.keys,
                               kv.values, c.batch.document_start, shape, true);
        if (first) {
            std::swap(own, sum);
        } else {
            finish(c, Exchange::pass_gradients_on, sum);
            c.k.add(c.exec, arriving, own);
            std::swap(sum, arriving);
        }
        pass_on(Exchange::pass_gradients_on, sum, arriving);
        if (!last) finish(c, Exchange::pass_keys_on, here);
        std::swap(here, coming);
    }
    finish(c, Exchange::pass_gradients_on, sum);
    const KeysAndValues gradients(arriving, t);
    c.k.cast(c.exec, t.q, dq);
    c.k.cast(c.exec, t.k, gradients.keys);
    c.k.cast(c.exec, t.v, gradients.values);
}

}  // namespace coeus
