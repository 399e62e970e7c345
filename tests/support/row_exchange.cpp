// SPDX-License-Identifier: Apache-2.0
#include "support/row_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace coeus::test {

namespace {

struct Case {
    const char* name;
    int64_t (*rows)(int from, int to);  // how many times `scale`
};

constexpr Case cases[] = {
    {"uneven", [](int from, int to) { return int64_t(1 + (3 * from + 5 * to) % 7); }},
    {"some ranges without rows", [](int from, int to) { return int64_t((from + 2 * to) % 3); }},
    {"all to one rank", [](int from, int to) { return int64_t(to == 0 ? 1 + from : 0); }},
    {"all from one rank", [](int from, int to) { return int64_t(from == 0 ? 1 + to : 0); }},
    {"each rank to itself", [](int from, int to) { return int64_t(from == to ? 1 + from : 0); }},
    {"nothing", [](int, int) { return int64_t(0); }},
};

constexpr double not_sent = 251, not_received = 252;

// Exact in every type, and below `not_sent`. The rows are those of one message.
double value(int from, int to, int64_t row, int64_t col) {
    return double((17 * from + 29 * to + 5 * row + 3 * col) % 251);
}

void fill(Tensor rows, int from, int to) {
    for (int64_t i = 0; i < rows.count(); ++i)
        set_element(rows, i, value(from, to, i / rows.cols(), i % rows.cols()));
}

// A tensor of the host, and one where the exchange runs.
struct Twin {
    OwnedTensor host, there;
    const Device& device;

    Twin(Dtype dtype, const Shape& shape, double filled, const Device& d)
        : host(dtype, shape), there(dtype, shape, "rows", d.memory()), device(d) {
        for (int64_t i = 0; i < shape.count(); ++i) set_element(host, i, filled);
        upload();
    }
    void upload() const { device.copy(there.view.data, host.view.data, host.view.bytes()); }
    bool same() const {
        const OwnedTensor copy(host.view.dtype, host.view.shape);
        device.copy(copy.view.data, there.view.data, copy.view.bytes());
        return std::memcmp(copy.view.data, host.view.data, size_t(copy.view.bytes())) == 0;
    }
};

// Ranges are apart from each other. Those of the received rows are in the reverse order of the ranks.
bool is_right(const Case& c, const Communicator& ranks, Exec& exec, Dtype dtype, bool is_vector,
              int64_t scale, Stream* beside) {
    const int size = ranks.size(), rank = ranks.rank();
    std::vector<RowRange> from, to;
    int64_t sent = 1, received = 1;
    for (int peer = 0; peer < size; ++peer) {
        const RowRange &gone = from.emplace_back(RowRange{sent, c.rows(rank, peer) * scale}),
                       &come = to.emplace_back(RowRange{received, c.rows(size - 1 - peer, rank) * scale});
        sent += gone.count + 1;
        received += come.count + 1;
    }
    std::ranges::reverse(to);
    const auto shape = [&](int64_t rows) { return is_vector ? Shape{rows} : Shape{rows, 3}; };
    const Twin in(dtype, shape(sent), not_sent, *exec.device),
        out(dtype, shape(received), not_received, *exec.device);
    for (int peer = 0; peer < size; ++peer) {
        const RowRange gone = from[size_t(peer)], come = to[size_t(peer)];
        fill(in.host.view.slice_rows(gone.first, gone.count), rank, peer);
        fill(out.host.view.slice_rows(come.first, come.count), peer, rank);
    }
    in.upload();
    const auto exchange = [&](Exec& where) {
        ranks.all_to_all(where, out.there, to, in.there, from);
        to.assign(to.size(), {-1, -1});  // nothing reads them any more
        from.assign(from.size(), {-1, -1});
    };
    if (beside)
        beside->run([&] { exchange(beside->exec()); }).join();
    else
        exchange(exec);
    exec.queue->finish();
    return out.same() && in.same();
}

}  // namespace

std::string wrong_row_exchanges(const Communicator& ranks, Exec& exec, Dtype dtype, int64_t scale,
                                Stream* beside) {
    std::string wrong;
    for (const Case& c : cases)
        for (const bool is_vector : {true, false})
            if (!is_right(c, ranks, exec, dtype, is_vector, scale, beside))
                wrong += fmt::format("{}: {} of {}; ", c.name, is_vector ? "a vector" : "a matrix",
                                     name_of(dtype));
    return wrong;
}

}  // namespace coeus::test
