// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/wgmma.hpp"

#include "stand_ins/cuda/block.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace coeus::emulation {

namespace {

constexpr unsigned first_address = 1024 + 128;
constexpr size_t piece_bytes = 16, word_bytes = 4;

// The words of a piece that are among these bytes, as bits.
uint8_t words_of(size_t piece, size_t offset, size_t bytes) {
    const size_t first = piece * piece_bytes, begin = std::max(offset, first) - first,
                 end = std::min(offset + bytes, first + piece_bytes) - first;
    return uint8_t((1u << end / word_bytes) - (1u << begin / word_bytes));
}

// A lane's call. What is wrong with it is reported by the lane.
struct Call {
    size_t warp;
    float* sums = nullptr;
    int columns = 0;
    WarpOperands operands = {};
    int groups = 0;
    std::byte* shared;
    size_t shared_bytes;
    const char* failure = nullptr;
};

Call& first_of(void* const* lanes) {
    return *static_cast<Call*>(lanes[0]);
}

void fail_all(void* const* lanes, const char* failure) {
    for (int lane = 0; lane < 32; ++lane) static_cast<Call*>(lanes[lane])->failure = failure;
}

// Elements of an operand as its descriptor places them. `i` counts rows of a or columns of b.
class Operand {
public:
    Operand(uint64_t descriptor, bool deep)
        : first_(unsigned(descriptor & 0x3fff) * 16),
          leading_(unsigned(descriptor >> 16 & 0x3fff) * 16),
          stride_(unsigned(descriptor >> 32 & 0x3fff) * 16),
          other_bits_(descriptor & ~(uint64_t(0x3fff) | uint64_t(0x3fff) << 16 | uint64_t(0x3fff) << 32)),
          deep_(deep) {}

    const char* failure() const {
        if (other_bits_ != uint64_t(1) << 62) return "an operand of wgmma is not in the 128-byte swizzle";
        // bits 7 to 9 are the row of the atom, bits 4 to 6 a piece of a row, where the depth may begin
        if ((first_ & (deep_ ? 0x380u : 0x3ffu)) != 0)
            return "an operand of wgmma does not begin at a multiple of 1024 bytes";
        return nullptr;
    }
    unsigned address(unsigned i, unsigned k) const {
        const unsigned plain = deep_
                                   ? first_ + i / 8 * stride_ + i % 8 * 128 + k * 2
                                   : first_ + i / 64 * leading_ + k / 8 * stride_ + k % 8 * 128 + i % 64 * 2;
        return plain ^ (plain >> 7 & 7u) << 4;
    }
    // the offset in the block's memory; beyond it if it is outside
    size_t offset(unsigned i, unsigned k) const {
        const unsigned at = address(i, k);
        return at < first_address ? std::numeric_limits<size_t>::max() : at - first_address;
    }

private:
    unsigned first_, leading_, stride_;
    uint64_t other_bits_;
    bool deep_;
};

// Calls `visit` with the numbers of the pieces that a warp's share of a, or all of b, occupies.
template <class F>
const char* each_piece(const Operand& operand, bool deep, unsigned begin, unsigned end, size_t shared_bytes,
                       F&& visit) {
    if (const char* const failure = operand.failure()) return failure;
    for (unsigned i = begin; i < end; i += deep ? 1 : 8)
        for (unsigned k = 0; k < WarpProducts::depth; k += deep ? 8 : 1) {
            const size_t offset = operand.offset(i, k);
            if (offset > shared_bytes || shared_bytes - offset < piece_bytes)
                return "an operand of wgmma is outside of the block's shared memory";
            if (const char* const failure = visit(offset / piece_bytes)) return failure;
        }
    return nullptr;
}

template <class F>
const char* each_piece_of(const WarpOperands& p, int columns, size_t warp, size_t shared_bytes, F&& visit) {
    if (!p.registers) {
        const auto row = unsigned(warp % 4 * WarpProducts::rows);
        if (const char* const failure = each_piece(Operand(p.a, p.a_deep), p.a_deep, row,
                                                   row + WarpProducts::rows, shared_bytes, visit))
            return failure;
    }
    return each_piece(Operand(p.b, p.b_deep), p.b_deep, 0, unsigned(columns), shared_bytes, visit);
}

float value_at(const Call& call, const Operand& operand, unsigned i, unsigned k) {
    uint16_t bits = 0;
    std::memcpy(&bits, call.shared + operand.offset(i, k), sizeof(bits));
    return std::bit_cast<float>(uint32_t(bits) << 16);
}

// The place of a lane's sum among the warp's.
float& value_of_lane(WarpProducts::SumSet& set, int lane, int i) {
    return set.values[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

void begin_by_all(void* const* lanes) {
    warp_products(first_of(lanes).warp).has_begun = true;
}

// What the lanes have of the sums is NaN until all of these products are done.
WarpProducts::SumSet& take_sums(WarpProducts& w, void* const* lanes) {
    const Call& first = first_of(lanes);
    const auto [found, is_new] = w.sums.try_emplace(first.sums);
    WarpProducts::SumSet& set = found->second;
    if (is_new) {
        set.columns = first.columns;
        for (int lane = 0; lane < 32; ++lane) {
            float* const of_lane = static_cast<Call*>(lanes[lane])->sums;
            set.of_lanes[size_t(lane)] = of_lane;
            for (int i = 0; i < set.columns / 2; ++i) {
                if (first.operands.adds) value_of_lane(set, lane, i) = of_lane[i];
                of_lane[i] = std::numeric_limits<float>::quiet_NaN();
            }
        }
    }
    return set;
}

void start_by_all(void* const* lanes) {
    const Call& first = first_of(lanes);
    WarpProducts& w = warp_products(first.warp);
    for (int lane = 1; lane < 32; ++lane) {
        const WarpOperands& o = static_cast<Call*>(lanes[lane])->operands;
        if (o.a != first.operands.a || o.b != first.operands.b)
            return fail_all(lanes, "lanes of a wgmma have different operands");
    }
    if (!w.has_begun) return fail_all(lanes, "a wgmma without a wgmma.fence before its group");
    if (const char* const failure =
            each_piece_of(first.operands, first.columns, first.warp, first.shared_bytes,
                          [](size_t piece) { return shared_pieces().product_starts(piece); }))
        return fail_all(lanes, failure);
    WarpProducts::SumSet& set = take_sums(w, lanes);
    if (set.columns != first.columns)
        return fail_all(lanes, "a wgmma to sums of another width, which are under way");
    if (!first.operands.adds && set.products > 0)
        return fail_all(lanes, "a wgmma that does not add, to sums that are under way");
    ++set.products;
    WarpProducts::Product& product = w.under_way.emplace_back();
    product.operands = first.operands;
    product.sums = first.sums;
    product.group = w.groups;
    if (first.operands.registers)
        for (size_t lane = 0; lane < 32; ++lane)
            std::copy_n(static_cast<Call*>(lanes[lane])->operands.registers, 4,
                        product.registers[lane].begin());
    ++w.count;
}

void end_by_all(void* const* lanes) {
    WarpProducts& w = warp_products(first_of(lanes).warp);
    ++w.groups;
    w.has_begun = false;
}

// values += a b. Its loops stay inside these arrays, and checks by the sanitizers would take most of a test's
// time.
__attribute__((no_sanitize("address", "undefined"))) void multiply_add(
    WarpProducts::SumSet& set, const float (&a)[WarpProducts::rows][WarpProducts::depth],
    const float (&b)[WarpProducts::depth][WarpProducts::most_columns]) {
    for (int i = 0; i < WarpProducts::rows; ++i) {
        float sums[WarpProducts::most_columns] = {};
        for (int k = 0; k < WarpProducts::depth; ++k)
            for (int j = 0; j < set.columns; ++j) sums[j] += a[i][k] * b[k][j];
        for (int j = 0; j < set.columns; ++j) set.values[i][j] += sums[j];
    }
}

// An element of a in registers: "the layout of the fragment of matrix A" of wgmma's m64k16.
float value_in_registers(const WarpProducts::Product& p, int i, int k) {
    const uint32_t pair = p.registers[size_t(i % 8 * 4 + k % 8 / 2)][size_t(i / 8 + k / 8 * 2)];
    return std::bit_cast<float>((k % 2 ? pair >> 16 : pair & 0xffff) << 16);
}

void compute(WarpProducts::SumSet& set, const Call& call, const WarpProducts::Product& p) {
    constexpr int rows = WarpProducts::rows, depth = WarpProducts::depth;
    const WarpOperands& o = p.operands;
    const Operand left(o.a, o.a_deep), right(o.b, o.b_deep);
    float a[rows][depth], b[depth][WarpProducts::most_columns];
    for (int k = 0; k < depth; ++k) {
        for (int i = 0; i < rows; ++i)
            a[i][k] = o.registers
                          ? value_in_registers(p, i, k)
                          : value_at(call, left, unsigned(call.warp % 4 * rows) + unsigned(i), unsigned(k));
        for (int j = 0; j < set.columns; ++j) b[k][j] = value_at(call, right, unsigned(j), unsigned(k));
    }
    multiply_add(set, a, b);
    each_piece_of(o, set.columns, call.warp, call.shared_bytes, [](size_t piece) {
        shared_pieces().product_ends(piece);
        return static_cast<const char*>(nullptr);
    });
}

void give_sums(WarpProducts& w, WarpProducts::SumSet& set) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < set.columns / 2; ++i) set.of_lanes[size_t(lane)][i] = value_of_lane(set, lane, i);
    w.sums.erase(set.of_lanes[0]);
}

void wait_by_all(void* const* lanes) {
    const Call& first = first_of(lanes);
    WarpProducts& w = warp_products(first.warp);
    size_t done = 0;
    for (; done < w.under_way.size() && w.under_way[done].group < w.groups - first.groups; ++done) {
        const WarpProducts::Product& product = w.under_way[done];
        WarpProducts::SumSet& set = w.sums.at(product.sums);
        compute(set, first, product);
        if (--set.products == 0) give_sums(w, set);
    }
    w.under_way.erase(w.under_way.begin(), w.under_way.begin() + ptrdiff_t(done));
}

void call_together(Collective run, const char* what, Call call) {
    const Thread& t = thread();
    call.warp = t.thread.x / 32;
    call.shared = t.shared;
    call.shared_bytes = t.shared_bytes;
    if ((t.thread.x / 128 + 1) * 128 > t.block_size.x) fail("a warpgroup without all of its warps");
    warp_collective(run, &call, what);
    if (call.failure) fail(call.failure);
}

}  // namespace

unsigned shared_address(const void* memory) {
    return first_address + unsigned(static_cast<const std::byte*>(memory) - thread().shared);
}

void begin_products() {
    call_together(begin_by_all, "wgmma.fence", {});
}

void start_product(float* sums, int columns, const WarpOperands& operands) {
    Call call = {};
    call.sums = sums;
    call.columns = columns;
    call.operands = operands;
    call_together(start_by_all, "wgmma", call);
}

void end_products() {
    call_together(end_by_all, "wgmma.commit_group", {});
}

void wait_for_products(int groups) {
    Call call = {};
    call.groups = groups;
    call_together(wait_by_all, "wgmma.wait_group", call);
}

const char* SharedPieces::copy_starts(size_t offset, size_t bytes, unsigned thread) {
    if (offset + bytes > pieces_.size() * piece_bytes)
        return "a copy to outside of the block's shared memory";
    for (size_t i = offset / piece_bytes; i * piece_bytes < offset + bytes; ++i) {
        if (pieces_[i].products > 0) return "a copy overwrites an operand of a wgmma that is under way";
        const uint8_t words = words_of(i, offset, bytes);
        if ((pieces_[i].under_way & words) != 0) return "a copy overwrites another that is under way";
        pieces_[i].under_way |= words;
        pieces_[i].thread = thread;
    }
    return nullptr;
}

void SharedPieces::copy_arrives(size_t offset, size_t bytes) {
    for (size_t i = offset / piece_bytes; i * piece_bytes < offset + bytes; ++i) {
        pieces_[i].under_way &= uint8_t(~words_of(i, offset, bytes));
        pieces_[i].state = State::arrived;
        const size_t thread = pieces_[i].thread;
        if (thread >= arrived_.size()) arrived_.resize(thread + 1);
        arrived_[thread].push_back(i);
    }
}

void SharedPieces::box_arrives(size_t offset, size_t bytes) {
    for (size_t i = offset / piece_bytes; i * piece_bytes < offset + bytes; ++i) {
        pieces_[i].under_way = 0;
        pieces_[i].state = State::shown;
    }
}

void SharedPieces::show(unsigned thread) {
    if (thread >= arrived_.size()) return;
    for (const size_t i : arrived_[thread])
        if (pieces_[i].thread == thread && pieces_[i].state == State::arrived)
            pieces_[i].state = State::shown;
    arrived_[thread].clear();
}

const char* SharedPieces::product_starts(size_t piece) {
    Piece& of = pieces_[piece];
    if (of.under_way != 0) return "a wgmma reads shared memory whose copy is under way";
    if (of.state == State::unknown) return "a wgmma reads shared memory that no copy has written";
    if (of.state == State::arrived) return "a wgmma reads a copy without a fence.proxy.async after it";
    ++of.products;
    return nullptr;
}

void SharedPieces::product_ends(size_t piece) {
    --pieces_[piece].products;
}

}  // namespace coeus::emulation
