// SPDX-License-Identifier: Apache-2.0
// Causal attention by Hopper's wgmma, backward, with the formulas of attention_backward.cu. This file is
// compiled for sm_90a only. A block has 128 rows: of queries, to sum dq over the tiles of keys, or of keys,
// to sum dk and dv over the tiles of queries of all heads that share these keys, one head after the other. So
// each result is written once, and sums have a fixed order. One warp copies tiles by TMA into the places of
// shared memory, as soon as these are free. Each of two warpgroups multiplies 64 of the block's rows with
// them:
//   queries: S = q k^T,    dP = dout v^T,    dq += dS k
//   keys:    S^T = k q^T,  dP^T = v dout^T,  dv += P^T dout,  dk += dS^T q
// P and dS stay in registers, where the sums of one product have the layout of the next one's left operand.
// The warpgroups start their scores in turn. So while one turns scores into weights, the tensor cores have
// the products of the other.
//
// Whoever changes how fast these kernels are raises backward_wgmma_version (attention_wgmma.hpp).
#include "../ptx/tensor_map.hpp"
#include "../ptx/tma.hpp"
#include "attention_gradients.hpp"
#include "attention_wgmma.hpp"

#include <algorithm>

namespace coeus::cuda {

namespace {

constexpr int warpgroups = 2, multiplying_threads = warpgroups * warpgroup_threads,
              all_threads = multiplying_threads + warpgroup_threads, block_rows = warpgroups * warpgroup_rows;
/// Registers of a thread: of the warpgroup that copies, and of those that multiply. Together they are as many
/// as all threads begin with.
constexpr int copying_registers = 24, multiplying_registers = 240;
/// Most shared memory of a block on Hopper.
constexpr int64_t most_hopper_bytes = 227 << 10;

/// Rows of a head in shared memory: panels of 64 of its columns.
template <int tile_rows, int width>
struct PanelTile {
    static constexpr int panel = tile_rows * panel_side, elements = tile_rows * width;
    static_assert(width % panel_side == 0 && panel * sizeof(bf16) % swizzle_bytes == 0);

    /// One thread starts to copy the rows from `row` on, with zeros beyond the sequence.
    __device__ static void start(bf16* to, const CUtensorMap& heads, Barrier& barrier, int64_t head, int row,
                                 int64_t sequence) {
        COEUS_UNROLL
        for (int i = 0; i < width / panel_side; ++i)
            copy_box(to + i * panel, heads, barrier, head * width + i * panel_side, row, sequence);
    }
    /// 16 columns as the depth of an operand, from `column` on.
    __device__ static uint64_t columns(const bf16* tile, int column) {
        return moved(operand_of<true>(tile, 0), column / panel_side * panel + column % panel_side);
    }
    /// 16 rows as the depth of an operand, from `row` on.
    __device__ static uint64_t rows(const bf16* tile, int row) {
        return moved(operand_of<false, tile_rows>(tile, 0), row * panel_side);
    }
};

/// Starts scores = a warpgroup's own rows times the transposed rows of another tile.
template <int width, int passing_rows>
__device__ void start_scores(Sums (&scores)[passing_rows / 8], const bf16* own, const bf16* passing) {
    using Own = PanelTile<block_rows, width>;
    using Passing = PanelTile<passing_rows, width>;
    begin_products();
    start_product<true, true, false>(scores, Own::columns(own, 0), Passing::columns(passing, 0));
    COEUS_UNROLL
    for (int k = warpgroup_depth; k < width; k += warpgroup_depth)
        start_product<true, true>(scores, Own::columns(own, k), Passing::columns(passing, k));
    end_products();
}

/// Weights as left operands, 16 columns each.
template <int columns>
using Weights = Fragment[columns / warpgroup_depth];

template <int columns>
__device__ void round_weights(Weights<columns>& to, const Sums (&weights)[columns / 8]) {
    COEUS_UNROLL
    for (int k = 0; k < columns / warpgroup_depth; ++k) to[k] = rounded(weights[2 * k], weights[2 * k + 1]);
}

/// Starts sums += weights times the rows of a tile.
template <int width, int passing_rows>
__device__ void start_weighted(Sums (&sums)[width / 8], const Weights<passing_rows>& weights,
                               const bf16* passing) {
    using Passing = PanelTile<passing_rows, width>;
    pin(sums);
    begin_products();
    COEUS_UNROLL
    for (int k = 0; k < passing_rows; k += warpgroup_depth)
        start_product<false>(sums, weights[k / warpgroup_depth], Passing::rows(passing, k));
    end_products();
    pin(sums);
}

/// The shared memory of a block: its own rows, tiles of so many rows that pass in `stages` places, two
/// numbers for each of their rows, and barriers. Own and passing rows are pairs, of keys' and of values'
/// width: q and dout, or k and v.
template <class Widths, int tile_rows>
struct BlockMemory {
    using OwnFirst = PanelTile<block_rows, Widths::keys>;
    using OwnSecond = PanelTile<block_rows, Widths::values>;
    using First = PanelTile<tile_rows, Widths::keys>;
    using Second = PanelTile<tile_rows, Widths::values>;
    static constexpr int rows = tile_rows, own_elements = OwnFirst::elements + OwnSecond::elements,
                         elements = First::elements + Second::elements;
    /// Bytes of a place with its barriers, and of the block's own rows with theirs, and what first_panel()
    /// skips.
    static constexpr int64_t place_bytes = elements * int64_t(sizeof(bf16)) +
                                           2 * tile_rows * int64_t(sizeof(float)) +
                                           2 * int64_t(sizeof(Barrier)),
                             own_bytes = own_elements * int64_t(sizeof(bf16)) +
                                         (1 + warpgroups) * int64_t(sizeof(Barrier)) + swizzle_bytes;
    static constexpr int stages = int(std::min<int64_t>(4, (most_hopper_bytes - own_bytes) / place_bytes));
    static_assert(stages >= 2);
    static constexpr int64_t bytes = own_bytes + stages * place_bytes;
    /// `full`: a tile has arrived; `empty`: both warpgroups are done with it; `turn`: a warpgroup may start
    /// its scores.
    struct Barriers {
        Barrier own, full[stages], empty[stages], turn[warpgroups];
    };

    bf16* own = first_panel(shared_memory());
    bf16* tiles = own + own_elements;
    float* numbers = reinterpret_cast<float*>(tiles + stages * elements);
    Barriers& barriers = *reinterpret_cast<Barriers*>(numbers + stages * 2 * tile_rows);

    /// `arrivals`: of the warp that copies, for each tile.
    __device__ void begin(int arrivals) const {
        if (threadIdx.x == 0) {
            barriers.own.begin(1);
            for (int stage = 0; stage < stages; ++stage) {
                barriers.full[stage].begin(arrivals);
                barriers.empty[stage].begin(multiplying_threads / warp_size);
            }
            for (Barrier& turn : barriers.turn) turn.begin(warpgroup_threads / warp_size);
            show_barriers();
        }
        __syncthreads();
    }
};

/// The place of a tile, and the parity of its phases there.
template <int stages>
struct TilePlace {
    int stage = 0, parity = 0;
    bool is_first_round = true;
    __device__ void advance() {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
        is_first_round = false;
    }
};

__device__ inline bool is_first_lane() {
    return int(threadIdx.x) % warp_size == 0;
}

/// A number that is the same in all lanes of a warp. Products in branches and loops wait for each other
/// unless the compiler knows that these are.
__device__ inline int same_in_warp(int number) {
    return __shfl_sync(whole_warp, number, 0);
}

/// The tiles of a block: the rows from `begin` to `end`, as often as there are heads.
struct TileRows {
    int begin, end, heads;
    __device__ TileRows(const RowRange& range, int64_t heads_of_block)
        : begin(same_in_warp(range.begin)), end(same_in_warp(range.end)), heads(int(heads_of_block)) {}
    __device__ bool any() const { return begin < end; }
};

/// What one of the warpgroups that multiply does with each tile that it needs: `start(stage)` starts the
/// products for scores, and `finish(row, stage)` uses them.
template <class Memory, class Needs, class Start, class Finish>
__device__ void multiply_tiles(const Memory& memory, int warpgroup, const TileRows& tiles, Needs&& needs,
                               Start&& start, Finish&& finish) {
    auto& barriers = memory.barriers;
    const auto give_turn = [&] {
        __syncwarp();
        if (is_first_lane()) barriers.turn[1 - warpgroup].arrive();
    };
    if (tiles.any()) barriers.own.wait(0);
    TilePlace<Memory::stages> at;
    // the first warpgroup waits until the second has started the tile before
    int turn = 1 - warpgroup;
    for (int head = 0; head < tiles.heads; ++head)
        for (int row = tiles.begin; row < tiles.end; row += Memory::rows) {
            barriers.full[at.stage].wait(at.parity);
            barriers.turn[warpgroup].wait(turn);
            if (same_in_warp(needs(row)) != 0) {
                start(at.stage);
                give_turn();
                finish(row, at.stage);
            } else {
                give_turn();
            }
            __syncwarp();
            if (is_first_lane()) barriers.empty[at.stage].arrive();
            at.advance();
            turn ^= 1;
        }
}

/// Rows of the tiles of keys that pass queries, and of the tiles of queries that pass keys: as many as leave
/// registers for the sums.
template <class Widths>
constexpr int passing_keys = Widths::keys <= 128 ? 128 : 64;
template <class Widths>
constexpr int passing_queries = Widths::keys <= 128 ? 64 : 32;

/// The operands, each with boxes of the rows that a block copies at once.
struct Operands {
    CUtensorMap q, dout, k, v;
};

template <class O, class Widths>
__global__ void __launch_bounds__(all_threads, 1)
    query_gradients_wgmma_kernel(Heads<O> dq, const __grid_constant__ Operands operands,
                                 Statistics statistics, AttentionShape s, bool add_to_dq) {
    constexpr int rows = passing_keys<Widths>;
    using Memory = BlockMemory<Widths, rows>;
    const int64_t head = block_head(), sequence = block_sequence(), kv_head = head / (s.heads / s.kv_heads);
    const int32_t* const document_start = statistics.documents.of(sequence);
    const int first = part_from_last() * block_rows;
    const TileRows tiles(reach_of_queries(s, document_start, first, block_rows).some, 1);
    const Memory memory;
    memory.begin(1);
    if (int(threadIdx.x) >= multiplying_threads) {
        give_registers<copying_registers>();
        if (int(threadIdx.x) > multiplying_threads || !tiles.any()) return;
        Barrier& own = memory.barriers.own;
        own.arrive_and_expect(Memory::own_elements * int(sizeof(bf16)));
        Memory::OwnFirst::start(memory.own, operands.q, own, head, first, sequence);
        Memory::OwnSecond::start(memory.own + Memory::OwnFirst::elements, operands.dout, own, head, first,
                                 sequence);
        TilePlace<Memory::stages> at;
        for (int key = tiles.begin; key < tiles.end; key += rows, at.advance()) {
            if (!at.is_first_round) memory.barriers.empty[at.stage].wait(at.parity ^ 1);
            Barrier& full = memory.barriers.full[at.stage];
            bf16* const to = memory.tiles + at.stage * Memory::elements;
            full.arrive_and_expect(Memory::elements * int(sizeof(bf16)));
            Memory::First::start(to, operands.k, full, kv_head, key, sequence);
            Memory::Second::start(to + Memory::First::elements, operands.v, full, kv_head, key, sequence);
        }
        return;
    }

    take_registers<multiplying_registers>();
    const int warpgroup = same_in_warp(int(threadIdx.x) / warpgroup_threads);
    const int warp_query = first + int(threadIdx.x) / warp_size * mma_rows;
    const RowRange seen_by_some =
        reach_of_queries(s, document_start, first + warpgroup * warpgroup_rows, warpgroup_rows).some;
    const RowRange seen_by_warp = reach_of_queries(s, document_start, warp_query, mma_rows).all;
    QueryRow query[2];
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half)
        query[half] =
            query_row(statistics, s, document_start, sequence, head, warp_query + half * 8 + Lane().row);
    const bf16* const own = memory.own + warpgroup * panel_elements;
    const float factor = float(s.scale * log2_e);
    Sums sums[Widths::keys / 8] = {}, scores[rows / 8], products[rows / 8];
    multiply_tiles(
        memory, warpgroup, tiles, [&](int key) { return seen_by_some.meets(key, rows); },
        [&](int stage) {
            const bf16* const keys = memory.tiles + stage * Memory::elements;
            start_scores<Widths::keys, rows>(scores, own, keys);
            start_scores<Widths::values, rows>(products, own + Memory::OwnFirst::elements,
                                               keys + Memory::First::elements);
        },
        [&](int key, int stage) {
            wait_for_products<1>();
            pin(scores);
            COEUS_UNROLL
            for (int c = 0; c < rows / 8; ++c) {
                COEUS_UNROLL
                for (int i = 0; i < 4; ++i)
                    scores[c].values[i] = weight_of(scores[c].values[i], factor, query[i / 2].lse);
            }
            wait_for_products<0>();
            pin(products);
            COEUS_UNROLL
            for (int c = 0; c < rows / 8; ++c) {
                COEUS_UNROLL
                for (int i = 0; i < 4; ++i)
                    products[c].values[i] =
                        scores[c].values[i] * (products[c].values[i] - query[i / 2].delta);
            }
            if (!seen_by_warp.contains(key, rows)) {
                hide(products, 0, key, query[0].seen);
                hide(products, 1, key, query[1].seen);
            }
            Weights<rows> weights;
            round_weights<rows>(weights, products);
            start_weighted<Widths::keys, rows>(sums, weights, memory.tiles + stage * Memory::elements);
            wait_for_products<0>();
            pin(sums);
        });
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half)
        if (const int row = warp_query + half * 8 + Lane().row; row < s.sequence)
            put_sums(dq.of(sequence, head, Widths::keys).row(row), sums, half, float(s.scale), Widths::keys,
                     add_to_dq);
}

template <class O, class Widths>
__global__ void __launch_bounds__(all_threads, 1)
    key_gradients_wgmma_kernel(Heads<O> dk, Heads<O> dv, const __grid_constant__ Operands operands,
                               Statistics statistics, AttentionShape s) {
    constexpr int rows = passing_queries<Widths>;
    using Memory = BlockMemory<Widths, rows>;
    const int64_t kv_head = block_head(), sequence = block_sequence(), group = s.heads / s.kv_heads;
    const int queries = int(s.sequence), keys = int(s.keys().count);
    const int32_t* const document_start = statistics.documents.of(sequence);
    const int first = part_from_first() * block_rows;
    const TileRows tiles(reach_of_keys(s, document_start, first, block_rows).some, group);
    const Memory memory;
    memory.begin(warp_size);
    if (int(threadIdx.x) >= multiplying_threads) {
        give_registers<copying_registers>();
        if (int(threadIdx.x) >= multiplying_threads + warp_size || !tiles.any()) return;
        if (is_first_lane()) {
            Barrier& own = memory.barriers.own;
            own.arrive_and_expect(Memory::own_elements * int(sizeof(bf16)));
            Memory::OwnFirst::start(memory.own, operands.k, own, kv_head, first, sequence);
            Memory::OwnSecond::start(memory.own + Memory::OwnFirst::elements, operands.v, own, kv_head, first,
                                     sequence);
        }
        // a lane copies lse and delta of as many queries
        constexpr int numbers = rows / warp_size;
        const int lane = int(threadIdx.x) % warp_size;
        TilePlace<Memory::stages> at;
        for (int head = int(kv_head * group); head < int((kv_head + 1) * group); ++head) {
            const int64_t of_head = (head * s.batch + sequence) * s.sequence;
            const float* const lse = statistics.lse + of_head;
            const float* const delta = statistics.delta + of_head;
            for (int query = tiles.begin; query < tiles.end; query += rows, at.advance()) {
                // they are loaded while the place is not free yet
                float lses[numbers], deltas[numbers];
                COEUS_UNROLL
                for (int i = 0; i < numbers; ++i) {
                    const int row = query + i * warp_size + lane;
                    lses[i] = row < queries ? lse[row] : 0.0f;
                    deltas[i] = row < queries ? delta[row] : 0.0f;
                }
                if (!at.is_first_round) memory.barriers.empty[at.stage].wait(at.parity ^ 1);
                __syncwarp();  // a lane that falls back by two phases would wait for a later one
                float* const to_numbers = memory.numbers + at.stage * 2 * rows + lane;
                COEUS_UNROLL
                for (int i = 0; i < numbers; ++i) {
                    to_numbers[i * warp_size] = lses[i];
                    to_numbers[rows + i * warp_size] = deltas[i];
                }
                Barrier& full = memory.barriers.full[at.stage];
                if (lane > 0) {
                    full.arrive();
                    continue;
                }
                bf16* const to = memory.tiles + at.stage * Memory::elements;
                full.arrive_and_expect(Memory::elements * int(sizeof(bf16)));
                Memory::First::start(to, operands.q, full, head, query, sequence);
                Memory::Second::start(to + Memory::First::elements, operands.dout, full, head, query,
                                      sequence);
            }
        }
        return;
    }

    take_registers<multiplying_registers>();
    const int warpgroup = same_in_warp(int(threadIdx.x) / warpgroup_threads);
    const int warp_key = first + int(threadIdx.x) / warp_size * mma_rows;
    const RowRange seeing_some =
        reach_of_keys(s, document_start, first + warpgroup * warpgroup_rows, warpgroup_rows).some;
    const RowRange seeing_warp = reach_of_keys(s, document_start, warp_key, mma_rows).all;
    const bf16* const own = memory.own + warpgroup * panel_elements;
    const float factor = float(s.scale * log2_e);
    Sums dk_sums[Widths::keys / 8] = {}, dv_sums[Widths::values / 8] = {}, scores[rows / 8],
                                products[rows / 8];
    // a bit for each of the lane's scores, if a query of the tile does not see one of the warp's keys
    const auto hidden_scores = [&](int tile) {
        uint32_t hidden = 0;
        if (seeing_warp.contains(tile, rows)) return hidden;
        const int key = warp_key + Lane().row;
        const int64_t index[] = {s.keys().index(key), s.keys().index(key + 8)};
        COEUS_NO_UNROLL
        for (int i = 0; i < rows / 4; ++i) {
            const int query = tile + i / 2 * 8 + Lane().column + i % 2;
            const int64_t last = s.queries().index(query < queries ? query : queries - 1),
                          begin = first_key(s, document_start, last);
            COEUS_UNROLL
            for (int half = 0; half < 2; ++half)
                if (query >= queries || index[half] > last || index[half] < begin)
                    hidden |= 1u << (i / 2 * 4 + half * 2 + i % 2);
        }
        return hidden;
    };
    static_assert(rows / 2 <= 32);
    multiply_tiles(
        memory, warpgroup, tiles, [&](int query) { return seeing_some.meets(query, rows); },
        [&](int stage) {
            const bf16* const passing = memory.tiles + stage * Memory::elements;
            start_scores<Widths::keys, rows>(scores, own, passing);
            start_scores<Widths::values, rows>(products, own + Memory::OwnFirst::elements,
                                               passing + Memory::First::elements);
        },
        [&](int query, int stage) {
            const uint32_t hidden = hidden_scores(query);
            const float* const lse = memory.numbers + stage * 2 * rows + Lane().column;
            const float* const delta = lse + rows;
            const bf16* const passing = memory.tiles + stage * Memory::elements;
            wait_for_products<1>();
            pin(scores);
            COEUS_UNROLL
            for (int c = 0; c < rows / 8; ++c) {
                COEUS_UNROLL
                for (int i = 0; i < 4; ++i)
                    scores[c].values[i] = weight_of(scores[c].values[i], factor, lse[c * 8 + i % 2]);
            }
            if (hidden) hide(scores, hidden);
            Weights<rows> weights;
            round_weights<rows>(weights, scores);
            start_weighted<Widths::values, rows>(dv_sums, weights, passing + Memory::First::elements);
            wait_for_products<1>();  // those of dv may still be under way
            pin(products);
            COEUS_UNROLL
            for (int c = 0; c < rows / 8; ++c) {
                COEUS_UNROLL
                for (int i = 0; i < 4; ++i)
                    products[c].values[i] =
                        scores[c].values[i] * (products[c].values[i] - delta[c * 8 + i % 2]);
            }
            if (hidden) hide(products, hidden);
            Weights<rows> changes;
            round_weights<rows>(changes, products);
            start_weighted<Widths::keys, rows>(dk_sums, changes, passing);
            wait_for_products<0>();
            pin(dv_sums);
            pin(dk_sums);
        });
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half)
        if (const int key = warp_key + half * 8 + Lane().row; key < keys) {
            put_sums(dk.of(sequence, kv_head, Widths::keys).row(key), dk_sums, half, float(s.scale),
                     Widths::keys, false);
            put_sums(dv.of(sequence, kv_head, Widths::values).row(key), dv_sums, half, 1.0f, Widths::values,
                     false);
        }
}

/// Calls f with the widths of heads.
template <class F>
void dispatch_wgmma_width(const AttentionShape& s, F&& f) {
    if (s.head_dim == 64) return f(HeadWidths<64>());
    if (s.head_dim == 128) return f(HeadWidths<128>());
    f(HeadWidths<192, 128>());
}

}  // namespace

void attention_backward_wgmma(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout,
                              const Statistics& statistics, Tensor q, Tensor k, Tensor v,
                              const AttentionShape& s, bool add_to_dq) {
    const auto launch_for = [&]<class Q, class K, class Widths>(Q, K, Widths) {
        constexpr int key_rows = passing_keys<Widths>, query_rows = passing_queries<Widths>;
        const auto grid = [&](int64_t rows, int64_t heads, int64_t bytes) {
            return Grid{attention_blocks(rows, block_rows, heads, s), all_threads, size_t(bytes)};
        };
        const auto boxes = [&](int rows_of_queries, int rows_of_keys) {
            return Operands{boxes_of(q, s.batch, rows_of_queries), boxes_of(dout, s.batch, rows_of_queries),
                            boxes_of(k, s.batch, rows_of_keys), boxes_of(v, s.batch, rows_of_keys)};
        };
        launch(exec, "attention_query_gradients_wgmma",
               grid(s.sequence, s.heads, BlockMemory<Widths, key_rows>::bytes),
               query_gradients_wgmma_kernel<Q, Widths>, heads_of<Q>(dq, s), boxes(block_rows, key_rows),
               statistics, s, add_to_dq);
        launch(exec, "attention_key_gradients_wgmma",
               grid(s.keys().count, s.kv_heads, BlockMemory<Widths, query_rows>::bytes),
               key_gradients_wgmma_kernel<K, Widths>, heads_of<K>(dk, s), heads_of<K>(dv, s),
               boxes(query_rows, block_rows), statistics, s);
    };
    dispatch_out<bf16>(dq.dtype, [&](auto of_queries) {
        dispatch_out<bf16>(dk.dtype, [&](auto of_keys) {
            dispatch_wgmma_width(s, [&](auto width) { launch_for(of_queries, of_keys, width); });
        });
    });
}

}  // namespace coeus::cuda
