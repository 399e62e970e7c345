// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/context_parallel.hpp"

namespace coeus {

SequencePart part_of_sequence(int64_t length, int ranks, int rank, Balancing balancing) {
    if (balancing == Balancing::none || ranks == 1) {
        require(length % ranks == 0, "a sequence must divide evenly over the ranks");
        return {.count = length / ranks, .first = rank * (length / ranks)};
    }
    require(length % (2 * ranks) == 0, "a sequence must divide evenly into two runs for each rank");
    const int64_t run = length / (2 * ranks);
    return {.count = 2 * run, .first = rank * run, .gap = 2 * (ranks - 1 - rank) * run};
}

SequencePart DividedExchange::part_of(int rank, const AttentionTensors& t) const {
    return part_of_sequence(t.shape.sequence * cp_.size(), cp_.size(), rank, balancing_);
}

// Calls each(row in the order of ranks, row in the order of sequences, number of rows) for the runs of
// consecutive tokens.
template <class Each>
void DividedExchange::for_each_run(const AttentionTensors& t, const Each& each) const {
    const int64_t local = t.shape.sequence, whole = local * cp_.size();
    for (int rank = 0; rank < cp_.size(); ++rank) {
        const SequencePart part = part_of(rank, t);
        const int64_t first_run = part.gap == 0 ? part.count : part.half();
        for (int64_t sequence = 0; sequence < t.shape.batch; ++sequence) {
            const int64_t by_ranks = (rank * t.shape.batch + sequence) * local,
                          by_sequences = sequence * whole;
            each(by_ranks, by_sequences + part.first, first_run);
            if (first_run < part.count)
                each(by_ranks + first_run, by_sequences + part.index(first_run), part.count - first_run);
        }
    }
}

void DividedExchange::to_sequences(Ctx& c, Tensor sequences, Tensor ranks, const AttentionTensors& t) const {
    for_each_run(t, [&](int64_t by_ranks, int64_t by_sequences, int64_t rows) {
        c.k.cast(c.exec, sequences.slice_rows(by_sequences, rows), ranks.slice_rows(by_ranks, rows));
    });
}

void DividedExchange::to_ranks(Ctx& c, Tensor ranks, Tensor sequences, const AttentionTensors& t) const {
    for_each_run(t, [&](int64_t by_ranks, int64_t by_sequences, int64_t rows) {
        c.k.cast(c.exec, ranks.slice_rows(by_ranks, rows), sequences.slice_rows(by_sequences, rows));
    });
}

std::unique_ptr<KvExchange> make_kv_exchange(const ContextParallel& options, const Communicator& cp,
                                             Exec& exec) {
    if (cp.size() == 1) return std::make_unique<LocalExchange>();
    switch (options.exchange) {
        case ContextExchange::all_gather: return std::make_unique<AllGatherExchange>(cp, options.balancing);
        case ContextExchange::ring: return std::make_unique<RingExchange>(cp, options.balancing, exec);
        case ContextExchange::heads: return std::make_unique<HeadsExchange>(cp, options.balancing);
    }
    throw LogicError("unknown exchange of keys and values");
}

}  // namespace coeus
