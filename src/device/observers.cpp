// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/observers.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

struct ExchangeEntry {
    Exchange exchange;
    ExchangeAxis axis;
    const char* name;
};

constexpr ExchangeEntry exchange_entries[] = {
    {Exchange::wait_for_stage, ExchangeAxis::pp, "wait_for_stage"},
    {Exchange::gather_tokens, ExchangeAxis::tp, "gather_tokens"},
    {Exchange::scatter_tokens, ExchangeAxis::tp, "scatter_tokens"},
    {Exchange::gather_log_sums, ExchangeAxis::tp, "gather_log_sums"},
    {Exchange::sum_label_logits, ExchangeAxis::tp, "sum_label_logits"},
    {Exchange::largest_logits, ExchangeAxis::tp, "largest_logits"},
    {Exchange::gather_logits, ExchangeAxis::tp, "gather_logits"},
    {Exchange::gather_keys, ExchangeAxis::cp, "gather_keys"},
    {Exchange::scatter_keys, ExchangeAxis::cp, "scatter_keys"},
    {Exchange::pass_keys_on, ExchangeAxis::cp, "pass_keys_on"},
    {Exchange::pass_gradients_on, ExchangeAxis::cp, "pass_gradients_on"},
    {Exchange::tokens_to_heads, ExchangeAxis::cp, "tokens_to_heads"},
    {Exchange::heads_to_tokens, ExchangeAxis::cp, "heads_to_tokens"},
    {Exchange::sum_over_heads, ExchangeAxis::tp, "sum_over_heads"},
    {Exchange::sum_token_choices, ExchangeAxis::tp, "sum_token_choices"},
    {Exchange::sum_part_choices, ExchangeAxis::cp, "sum_part_choices"},
    {Exchange::count_rows, ExchangeAxis::ep, "count_rows"},
    {Exchange::rows_to_experts, ExchangeAxis::ep, "rows_to_experts"},
    {Exchange::rows_from_experts, ExchangeAxis::ep, "rows_from_experts"},
    {Exchange::agree_on_scales, ExchangeAxis::tp, "agree_on_scales"},
    {Exchange::agree_on_context_scales, ExchangeAxis::cp, "agree_on_context_scales"},
    {Exchange::agree_on_weight_scales, ExchangeAxis::world, "agree_on_weight_scales"},
    {Exchange::gather_weights, ExchangeAxis::dp, "gather_weights"},
    {Exchange::gather_matrix_rows, ExchangeAxis::dp, "gather_matrix_rows"},
    {Exchange::gather_matrix_parts, ExchangeAxis::tp, "gather_matrix_parts"},
    {Exchange::reduce_gradients, ExchangeAxis::dp, "reduce_gradients"},
    {Exchange::count_labels, ExchangeAxis::world, "count_labels"},
    {Exchange::sum_squared_norm, ExchangeAxis::world, "sum_squared_norm"},
    {Exchange::compare_losses, ExchangeAxis::world, "compare_losses"},
    {Exchange::agree_to_stop, ExchangeAxis::world, "agree_to_stop"},
};

constexpr bool in_order() {
    for (size_t i = 0; i < std::size(exchange_entries); ++i)
        if (size_t(exchange_entries[i].exchange) != i) return false;
    return std::size(exchange_entries) == num_exchanges;
}
static_assert(in_order(), "each exchange has its entry, in the order of the enumerators");

}  // namespace

const char* name_of(Exchange exchange) {
    return exchange_entries[size_t(exchange)].name;
}

ExchangeAxis axis_of(Exchange exchange) {
    return exchange_entries[size_t(exchange)].axis;
}

Observation Observers::add(KernelObserver& observer) {
    require(count_ < observers_.size(), "more observers of an Exec than it has room for");
    observers_[count_++] = &observer;
    return {*this, observer};
}

void Observers::remove(const KernelObserver& observer) {
    const auto last = observers_.begin() + int64_t(count_);
    const auto at = std::find(observers_.begin(), last, &observer);
    if (at == last) return;
    std::move(at + 1, last, at);
    --count_;
}

void Observers::begin(const char* kernel, double flops, double bytes) const {
    for (size_t i = count_; i-- > 0;) observers_[i]->begin(kernel, flops, bytes);
}

void Observers::begin_exchange(Exchange exchange, double bytes) const {
    for (size_t i = count_; i-- > 0;) observers_[i]->begin_exchange(exchange, bytes);
}

void Observers::operands(std::span<const Tensor> tensors) const {
    for (size_t i = count_; i-- > 0;) observers_[i]->operands(tensors);
}

void Observers::planned(const PlannedKernel& kernel) const {
    for (size_t i = count_; i-- > 0;) observers_[i]->planned(kernel);
}

void Observers::launch(const char* kernel) const {
    for (size_t i = count_; i-- > 0;) observers_[i]->launch(kernel);
}

void Observers::end() const {
    for (size_t i = 0; i < count_; ++i) observers_[i]->end();
}

Observation::Observation(Observation&& other) noexcept
    : observers_(std::exchange(other.observers_, nullptr)), observer_(other.observer_) {}

Observation& Observation::operator=(Observation&& other) noexcept {
    if (this == &other) return *this;
    end();
    observers_ = std::exchange(other.observers_, nullptr);
    observer_ = other.observer_;
    return *this;
}

void Observation::end() {
    if (Observers* observers = std::exchange(observers_, nullptr)) observers->remove(*observer_);
}

}  // namespace coeus
