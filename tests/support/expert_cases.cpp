// SPDX-License-Identifier: Apache-2.0
// The cases of mixtures of experts: routing, and rows that are grouped by expert.
#include "support/cases.hpp"

#include <algorithm>

namespace coeus::test {

namespace {

constexpr Role input = Role::input, output = Role::output, update = Role::update;
constexpr Kind acc = Kind::acc, compute = Kind::compute, index_kind = Kind::index;

/// Tokens and experts of a case, and how the assignments are spread: by chance; all to the last expert, so
/// that the others have none; to two experts, with none between them; the same number to each.
enum class Spread { random, one, two, even };
struct Assignments {
    int64_t tokens, experts, top_k;
    Spread spread = Spread::random;

    int64_t count() const { return tokens * top_k; }
    int64_t rows() const { return grouped_rows(count(), experts); }
    std::string text() const {
        return fmt::format("{} x {} of {}{}", tokens, top_k, experts,
                           spread == Spread::one    ? " all to one"
                           : spread == Spread::two  ? " to two"
                           : spread == Spread::even ? " evenly"
                                                    : "");
    }
    int64_t expert(int64_t drawn, int64_t a) const {
        if (spread == Spread::one) return experts - 1;
        if (spread == Spread::even) return a % experts;
        return spread == Spread::two && experts > 1 ? (a % 3 == 0 ? 0 : experts - 1) : drawn;
    }
};

std::string options_text(const RouteOptions& o) {
    return fmt::format("{}{}{}{}", o.sigmoid ? " sigmoid" : " softmax", o.normalise ? " normalised" : "",
                       o.groups > 1 ? fmt::format(" {} of {} groups", o.kept_groups, o.groups) : "",
                       o.round_robin ? " round robin" : "");
}

/// `tied`: every logit is 0 or 1, so that experts and groups of experts are equally good.
KernelCase route_case(int64_t tokens, int64_t experts, const RouteOptions& o, bool biased,
                      bool tied = false) {
    KernelCase c = {fmt::format("route {} x {} of {}{}{}{}", tokens, o.top_k, experts, options_text(o),
                                biased ? " biased" : "", tied ? " tied" : ""),
                    {{"experts", output, index_kind, {tokens, o.top_k}},
                     {"weights", output, acc, {tokens, o.top_k}},
                     {"loads", update, Kind::count, {experts}, 9},
                     {"logits", input, acc, {tokens, experts}, 0, 1.5, 1},
                     {"bias", input, acc, {experts}, 0, 0.3}},
                    [=](const Kernels& k, Exec& e, const Operands& v) {
                        k.route(e, v[0], v[1], biased ? v[2] : Tensor(), v[3], biased ? v[4] : Tensor(), o);
                    }};
    if (tied)
        c.prepare = [](const Kernels&, Exec&, const Operands& v) {
            // the first token comes from a router of zeros
            for (int64_t i = 0; i < v[3].count(); ++i)
                set_element(v[3], i, i >= v[3].cols() && element(v[3], i) > 1 ? 1 : 0);
        };
    return c;
}

KernelCase route_backward_case(int64_t tokens, int64_t experts, const RouteOptions& o) {
    KernelCase c;
    c.name = fmt::format("route_backward {} x {} of {}{}", tokens, o.top_k, experts, options_text(o));
    c.arguments = {{"dlogits", output, acc, {tokens, experts}, 0, 1, 2},
                   {"dweights", input, acc, {tokens, o.top_k}},
                   {"logits", input, acc, {tokens, experts}, 0, 1.5, 1},
                   {"experts", input, index_kind, {tokens, o.top_k}, 1},
                   {"weights", input, acc, {tokens, o.top_k}}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& v) {
        k.route(e, v[3], v[4], {}, v[2], {}, o);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& v) {
        k.route_backward(e, v[0], v[1], v[2], v[3], o);
    };
    return c;
}

KernelCase count_by_sequence_case(int64_t tokens, int64_t experts, int64_t top_k, int64_t sequences,
                                  const SequenceRows& rows) {
    return {fmt::format("count_by_sequence {} x {} of {}, {} from {}", tokens, top_k, experts, rows.length,
                        rows.first),
            {{"counts", output, Kind::count, {sequences, experts}},
             {"experts", input, index_kind, {tokens, top_k}, double(experts)}},
            [=](const Kernels& k, Exec& e, const Operands& v) { k.count_by_sequence(e, v[0], v[1], rows); }};
}

/// The arguments of every case with groups: experts, slots, sources, begins, counts.
constexpr size_t grouping = 5;
std::vector<Argument> grouping_arguments(const Assignments& s, Role role) {
    return {{"experts", input, index_kind, {s.tokens, s.top_k}, double(s.experts)},
            {"slots", role, index_kind, {s.tokens, s.top_k}, 1},
            {"sources", role, index_kind, {s.rows()}, 1},
            {"begins", role, index_kind, {s.experts}, 1},
            {"counts", role, index_kind, {s.experts}, 1}};
}
Groups groups_of(const Assignments& s, const Operands& o) {
    return {.begins = o[3], .counts = o[4], .assignments = s.count()};
}
void spread(const Assignments& s, const Operands& o) {
    for (int64_t a = 0; a < s.count(); ++a)
        set_element(o[0], a, double(s.expert(int64_t(element(o[0], a)), a)));
}

using Call = std::function<void(const Kernels&, Exec&, const Operands&, const Groups&)>;
/// A case with groups, and the padding of some arguments set to zero, as kernels leave it.
KernelCase grouped_case(const std::string& name, const Assignments& s, std::vector<Argument> arguments,
                        const Call& call, const std::vector<size_t>& zero_padded = {}) {
    KernelCase c;
    c.name = name + " " + s.text();
    c.arguments = grouping_arguments(s, input);
    c.arguments.insert(c.arguments.end(), arguments.begin(), arguments.end());
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        spread(s, o);
        k.group_by_expert(e, o[1], o[2], groups_of(s, o), o[0], nullptr);
        for (const size_t i : zero_padded)
            for (int64_t row = 0; row < o[i].rows(); ++row)
                for (int64_t j = 0; element(o[2], row) < 0 && j < o[i].cols(); ++j)
                    set_element(o[i], row * o[i].cols() + j, 0);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) { call(k, e, o, groups_of(s, o)); };
    return c;
}

KernelCase group_by_expert_case(const Assignments& s) {
    KernelCase c;
    c.name = "group_by_expert " + s.text();
    c.arguments = grouping_arguments(s, output);
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) { spread(s, o); };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.group_by_expert(e, o[1], o[2], groups_of(s, o), o[0], nullptr);
    };
    return c;
}

/// Assignments of which some have no expert: each third one, or all.
void spread_some(const Assignments& s, const Operands& o, bool none) {
    spread(s, o);
    for (int64_t a = 0; a < s.count(); a += none ? 1 : 3) set_element(o[0], a, -1);
}
void group_without_padding(const Kernels& k, Exec& e, const Assignments& s, const Operands& o) {
    Groups groups = groups_of(s, o);
    groups.multiple = 1;
    k.group_by_expert(e, o[1], o[2].slice_rows(0, s.count()), groups, o[0], nullptr);
}

KernelCase group_without_padding_case(const Assignments& s, bool none) {
    KernelCase c = group_by_expert_case(s);
    c.name += none ? " without any" : " without padding";
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) { spread_some(s, o, none); };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) { group_without_padding(k, e, s, o); };
    return c;
}

/// With room for fewer rows than an assignment could need.
KernelCase group_in_room_case(const Assignments& s, int64_t room) {
    KernelCase c = group_by_expert_case(s);
    c.name += fmt::format(" in room for {}", room);
    c.arguments[2].shape = {room};
    c.arguments.push_back({"overflow", update, Kind::count, {1}, 1});
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.group_by_expert(e, o[1], o[2], groups_of(s, o), o[0], o[grouping].as<int64_t>());
    };
    return c;
}

/// Sums for tokens of which some have fewer rows than others, or none.
KernelCase sum_some_rows_case(const Assignments& s, int64_t width, int64_t pad, bool none) {
    KernelCase c = grouped_case(none ? "sum_rows without any" : "sum_rows of some", s,
                                {{"y", output, compute, {s.tokens, width}, 0, 1, pad},
                                 {"rows", input, compute, {s.rows(), width}, 0, 1, pad}},
                                [=](const Kernels& k, Exec& e, const Operands& o, const Groups&) {
                                    k.sum_rows(e, o[grouping], {}, o[grouping + 1], o[1]);
                                });
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        spread_some(s, o, none);
        k.group_by_expert(e, o[1], o[2], groups_of(s, o), o[0], nullptr);
    };
    return c;
}

/// `room`: rows of a block. The groups are those of ranks.
KernelCase rows_in_blocks_case(const Assignments& s, int64_t room) {
    KernelCase c;
    c.name = fmt::format("rows_in_blocks of {}, {}", room, s.text());
    c.arguments = grouping_arguments(s, input);
    c.arguments.push_back({"places", output, index_kind, {s.tokens, s.top_k}, 1});
    c.arguments.push_back({"blocks", output, index_kind, {s.experts * room}, 1});
    c.arguments.push_back({"overflow", update, Kind::count, {1}, 1});
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        spread_some(s, o, false);
        group_without_padding(k, e, s, o);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.rows_in_blocks(e, o[grouping], o[grouping + 1], o[1], o[4], o[grouping + 2].as<int64_t>());
    };
    return c;
}

std::string ranks_text(const Assignments& s, const RankRows& ranks) {
    return fmt::format("{}, {} of each rank, {} parts", s.text(), ranks.experts, ranks.parts);
}

/// Experts in ascending order and their weights, from logits: operands 0 to 2.
std::vector<Argument> choice_arguments(const Assignments& s) {
    return {{"logits", input, acc, {s.tokens, s.experts}},
            {"experts", input, index_kind, {s.tokens, s.top_k}, 1},
            {"weights", input, acc, {s.tokens, s.top_k}}};
}
void choose(const Kernels& k, Exec& e, const Assignments& s, const Operands& o) {
    k.route(e, o[1], o[2], {}, o[0], {}, {.top_k = s.top_k});
}

KernelCase units_of_rows_case(const Assignments& s, const RankRows& ranks, bool counted) {
    KernelCase c;
    c.name = fmt::format("units_of_rows {}{}", ranks_text(s, ranks), counted ? ", counted" : "");
    c.arguments = choice_arguments(s);
    c.arguments.push_back({"units", output, index_kind, {s.tokens, s.top_k}});
    if (counted)
        c.arguments.push_back({"assignments", output, index_kind, {s.experts / ranks.experts * ranks.parts}});
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) { choose(k, e, s, o); };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.units_of_rows(e, o[3], counted ? o[4] : Tensor(), o[1], ranks);
    };
    return c;
}

/// With as many rows as there can be, so that some have no source.
KernelCase choices_of_rows_case(const Assignments& s, const RankRows& ranks) {
    const int64_t number = s.experts / ranks.experts, rows = s.tokens * std::min(s.top_k, number),
                  most = std::min(s.top_k, ranks.experts), units = number * ranks.parts;
    KernelCase c;
    c.name = "choices_of_rows " + ranks_text(s, ranks);
    c.arguments = choice_arguments(s);
    for (const Argument& argument :
         {Argument{"units", input, index_kind, {s.tokens, s.top_k}, 1},
          Argument{"slots", input, index_kind, {s.tokens, s.top_k}, 1},
          Argument{"sources", input, index_kind, {rows}, 1},
          Argument{"begins", input, index_kind, {units}, 1},
          Argument{"counts", input, index_kind, {units}, 1}, Argument{"overflow", input, Kind::count, {1}, 1},
          Argument{"choices", output, index_kind, {rows, most}},
          Argument{"numbers", output, acc, {rows, most}},
          Argument{"places", output, index_kind, {s.tokens, s.top_k}}})
        c.arguments.push_back(argument);
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        choose(k, e, s, o);
        k.units_of_rows(e, o[3], {}, o[1], ranks);
        k.group_by_expert(e, o[4], o[5],
                          {.begins = o[6], .counts = o[7], .assignments = s.count(), .multiple = 1}, o[3],
                          o[8].as<int64_t>());
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.choices_of_rows(e, o[9], o[10], o[11], o[4], o[5], o[1], o[2], ranks);
    };
    return c;
}

/// `pad` elements lie between rows.
KernelCase gather_rows_case(const Assignments& s, int64_t width, int64_t pad) {
    return grouped_case("gather_rows", s,
                        {{"out", output, compute, {s.rows(), width}, 0, 1, 2 * pad},
                         {"in", input, compute, {s.tokens, width}, 0, 1, pad}},
                        [=](const Kernels& k, Exec& e, const Operands& o, const Groups&) {
                            k.gather_rows(e, o[grouping], o[grouping + 1], o[2], s.top_k);
                        });
}

/// `pad` elements lie between rows.
void add_products(std::vector<KernelCase>& list, const Assignments& s, int64_t width, int64_t other,
                  int64_t pad) {
    const int64_t rows = s.rows();
    const size_t g = grouping;
    for (const bool transposed_b : {true, false})
        list.push_back(
            grouped_case(transposed_b ? "grouped_gemm t" : "grouped_gemm n", s,
                         {{"d", update, compute, {rows, other}, 0, 1, pad},
                          {"a", input, compute, {rows, width}, 0, 0.3, 2 * pad},
                          {"b", input, compute,
                           transposed_b ? Shape{s.experts * other, width} : Shape{s.experts * width, other}}},
                         [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                             k.grouped_gemm(e, o[g], o[g + 1], {o[g + 2], transposed_b}, groups);
                         },
                         {g + 1}));
    for (const bool first : {false, true})
        for (const Kind kind : {acc, compute})
            list.push_back(grouped_case(
                fmt::format("grouped_gemm_weights{}{}", first ? " first" : "", kind == acc ? "" : " narrow"),
                s,
                {{"d", first ? output : update, kind, {s.experts * width, other}},
                 {"a", input, compute, {rows, width}, 0, 0.3, 2 * pad},
                 {"b", input, compute, {rows, other}, 0, 1, pad}},
                [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                    k.grouped_gemm_weights(e, o[g], o[g + 1], o[g + 2], first ? Tensor() : o[g], groups);
                },
                {g + 1, g + 2}));
}

/// Rows with their columns' scales for each group, and products of 8-bit floats. `along`: rows or blocks.
void add_quantized(std::vector<KernelCase>& list, const Assignments& s, int64_t width, int64_t other,
                   Along along) {
    using G = ScaleGroups;
    constexpr Dtype type = Dtype::fp8_e4m3;
    const int64_t rows = s.rows();
    const size_t g = grouping;
    const auto scales = [&](const std::string& name, Role role, G groups, const Shape& shape) {
        const Kind kind = scale_type(groups) == Dtype::u8 ? Kind::code : Kind::scale;
        return Argument{name, role, kind, scale_shape(groups, shape, s.experts), 1};
    };
    const auto values = [](const std::string& name, const Shape& shape) {
        return Argument{name, input, compute, shape};
    };
    const auto codes = [](const std::string& name, Role role, const Shape& shape) {
        return Argument{name, role, Kind::code, shape, 200};
    };
    const auto maxima = [&](const std::string& name, G groups, const Shape& shape) {
        return Argument{
            name, input, index_kind, {count_of_maxima(groups, shape.rows(), shape.cols(), s.experts)}, 1};
    };
    /// Quantizes before the call. The rows of `zero_padded`, if it is given, are those of groups.
    const auto with_quantized = [&](KernelCase c, std::initializer_list<std::array<size_t, 4>> operands,
                                    G groups, bool of_rows) {
        c.prepare = [=, list = std::vector(operands), before = c.prepare](const Kernels& k, Exec& e,
                                                                          const Operands& o) {
            before(k, e, o);
            for (const auto& [q, scale, x, bits] : list) {
                Tensor matrices = o[x];
                if (!of_rows)
                    matrices = matrices.reshape({s.experts, matrices.rows() / s.experts, matrices.cols()});
                Tensor of_x = quantized(o[q], type, groups, o[scale]);
                of_x.shape = matrices.shape;
                quantize_whole(k, e, of_x, matrices, o[bits], of_rows ? groups_of(s, o) : Groups());
            }
        };
        return c;
    };
    for (const G groups : {groups_along(along, true), groups_along(along, false)}) {
        const Shape shape = {rows, width};
        const bool has_bits = groups == G::cols;
        if (has_bits)
            list.push_back(
                grouped_case("largest_magnitudes", s,
                             {{"bits", update, index_kind, {s.experts, width}, 1}, values("x", shape)},
                             [=](const Kernels& k, Exec& e, const Operands& o, const Groups& at) {
                                 k.largest_magnitudes(e, o[g], o[g + 1], groups, at);
                             },
                             {g + 1}));
        else
            list.push_back(grouped_case(
                "quantize rows", s,
                {codes("q", update, shape), scales("scale", update, groups, shape), values("x", shape)},
                [=](const Kernels& k, Exec& e, const Operands& o, const Groups& at) {
                    k.quantize(e, quantized(o[g], type, groups, o[g + 1]), o[g + 2], {}, rule_of(groups), at);
                },
                {g + 2}));
        if (has_bits || groups == G::cols32)
            list.push_back(grouped_case("quantize columns", s,
                                        {codes("q", update, shape),
                                         scales("scale", update, groups, shape),
                                         values("x", shape),
                                         {"bits", input, index_kind, {s.experts, width}, 0x7f000000}},
                                        [=](const Kernels& k, Exec& e, const Operands& o, const Groups& at) {
                                            k.quantize(e, quantized(o[g], type, groups, o[g + 1]), o[g + 2],
                                                       has_bits ? o[g + 3] : Tensor(), rule_of(groups), at);
                                        },
                                        {g + 2}));
    }
    for (KernelCase& c : list)
        if (c.name.starts_with("quantize") || c.name.starts_with("largest")) c.bound_f32 = c.bound_bf16 = 0;
    for (const bool transposed_b : {true, false})
        for (const bool acc_output : {false, true}) {
            const Shape a = {rows, width},
                        b = transposed_b ? Shape{s.experts * other, width} : Shape{s.experts * width, other};
            const G of_a = groups_along(along, true), of_b = groups_along(along, transposed_b);
            KernelCase c = grouped_case(
                fmt::format("scaled_grouped_gemm {}{}", transposed_b ? 't' : 'n', acc_output ? " acc" : ""),
                s,
                {{"d", update, acc_output ? acc : compute, {rows, other}},
                 codes("a", input, a),
                 scales("scales of a", input, of_a, a),
                 codes("b", input, b),
                 scales("scales of b", input, of_b, b),
                 values("values of a", a),
                 values("values of b", b),
                 maxima("bits of a", of_a, a),
                 maxima("bits of b", of_b, b)},
                [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                    k.scaled_grouped_gemm(e, o[g], quantized(o[g + 1], type, of_a, o[g + 2]),
                                          {quantized(o[g + 3], type, of_b, o[g + 4]), transposed_b}, groups,
                                          true);
                },
                {g + 5});
            c = with_quantized(c, {{g + 1, g + 2, g + 5, g + 7}}, of_a, true);
            list.push_back(with_quantized(c, {{g + 3, g + 4, g + 6, g + 8}}, of_b, false));
            list.back().bound_bf16 = 4e-3;
        }
    const G columns = groups_along(along, false);
    const Shape a = {rows, width}, b = {rows, other};
    for (const bool first : {false, true}) {
        KernelCase c = grouped_case(
            first ? "scaled_grouped_gemm_weights first" : "scaled_grouped_gemm_weights", s,
            {{"d", first ? output : update, acc, {s.experts * width, other}},
             codes("a", input, a),
             scales("scales of a", input, columns, a),
             codes("b", input, b),
             scales("scales of b", input, columns, b),
             values("values of a", a),
             values("values of b", b),
             maxima("bits of a", columns, a),
             maxima("bits of b", columns, b)},
            [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                k.scaled_grouped_gemm_weights(e, o[g], quantized(o[g + 1], type, columns, o[g + 2]),
                                              quantized(o[g + 3], type, columns, o[g + 4]),
                                              first ? Tensor() : o[g], groups);
            },
            {g + 5, g + 6});
        list.push_back(
            with_quantized(c, {{g + 1, g + 2, g + 5, g + 7}, {g + 3, g + 4, g + 6, g + 8}}, columns, true));
    }
}

void add_cases(std::vector<KernelCase>& list, const Assignments& s, int64_t width, int64_t other) {
    // rows of whole pieces of 16 bytes keep to them
    const int64_t rows = s.rows(), pad = width % 8 == 0 && other % 8 == 0 ? 8 : 1;
    const size_t g = grouping;
    list.push_back(group_by_expert_case(s));
    list.push_back(gather_rows_case(s, width, pad));
    for (const bool in_place : {false, true})
        list.push_back(
            grouped_case(in_place ? "sum_rows in place" : "sum_rows", s,
                         {{"y", in_place ? update : output, compute, {s.tokens, width}, 0, 1, 2 * pad},
                          {"rows", input, compute, {rows, width}, 0, 1, pad}},
                         [=](const Kernels& k, Exec& e, const Operands& o, const Groups&) {
                             k.sum_rows(e, o[g], in_place ? o[g] : Tensor(), o[g + 1], o[1]);
                         }));
    add_products(list, s, width, other, pad);
    for (const bool scaled : {false, true}) {
        const std::string with = scaled ? " scaled" : "";
        list.push_back(grouped_case("add_group_bias" + with, s,
                                    {{"y", update, compute, {rows, width}, 0, 1, 2 * pad},
                                     {"bias", input, compute, {s.experts, width}},
                                     {"scale", input, acc, {rows}}},
                                    [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                                        k.add_group_bias(e, o[g], o[g + 1], scaled ? o[g + 2] : Tensor(),
                                                         groups);
                                    }));
        list.push_back(grouped_case("add_group_bias_backward" + with, s,
                                    {{"dbias", update, acc, {s.experts, width}},
                                     {"dscale", update, acc, {rows}},
                                     {"dy", input, compute, {rows, width}, 0, 1, 2 * pad},
                                     {"bias", input, compute, {s.experts, width}},
                                     {"scale", input, acc, {rows}}},
                                    [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                                        k.add_group_bias_backward(e, o[g], scaled ? o[g + 1] : Tensor(),
                                                                  o[g + 2], o[g + 3],
                                                                  scaled ? o[g + 4] : Tensor(), groups);
                                    }));
        for (const Gate& gate :
             {Gate{}, Gate{.limit = 0.9, .alpha = 1.702, .shift = 1, .interleaved = true},
              Gate{.limit = 0.9, .scales_input = true}, Gate{.activation = Activation::gelu_tanh}}) {
            const std::string kind = with + (gate.interleaved ? " clamped" : "") +
                                     (gate.scales_input ? " at the input" : "") +
                                     (gate.activation == Activation::gelu_tanh ? " gelu" : "");
            list.push_back(
                grouped_case("gate" + kind, s,
                             {{"y", update, compute, {rows, width}, 0, 1, 2 * pad},
                              {"gate_up", input, compute, {rows, 2 * width}, 0, 1, pad},
                              {"scale", input, acc, {rows}}},
                             [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                                 k.gate(e, o[g], o[g + 1], scaled ? o[g + 2] : Tensor(), groups, gate);
                             },
                             {g + 1}));
            for (const bool in_place : {false, true})
                list.push_back(grouped_case(
                    "gate_backward" + kind + (in_place ? " in place" : ""), s,
                    {{"dgate_up", update, compute, {rows, 2 * width}, 0, 1, pad},
                     {"dscale", update, acc, {rows}},
                     {"y", update, compute, {rows, width}},
                     {"dy", input, compute, {rows, width}, 0, 1, 2 * pad},
                     {"gate_up", input, compute, {rows, 2 * width}},
                     {"scale", input, acc, {rows}}},
                    [=](const Kernels& k, Exec& e, const Operands& o, const Groups& groups) {
                        k.gate_backward(e, o[g], scaled ? o[g + 1] : Tensor(), in_place ? Tensor() : o[g + 2],
                                        o[g + 3], in_place ? o[g] : o[g + 4], scaled ? o[g + 5] : Tensor(),
                                        groups, gate);
                    },
                    {g, g + 3, g + 4}));
        }
    }
}

}  // namespace

std::vector<KernelCase> grouped_product_cases(int64_t groups, int64_t rows, int64_t width, int64_t other) {
    std::vector<KernelCase> list;
    add_products(list, {groups * rows, groups, 1, Spread::even}, width, other, 0);
    return list;
}

std::vector<KernelCase> scaled_grouped_cases() {
    std::vector<KernelCase> list;
    add_quantized(list, {70, 6, 2, Spread::two}, 48, 80, Along::outer);
    add_quantized(list, {560, 2, 1}, 48, 208, Along::outer);
    add_quantized(list, {600, 2, 1, Spread::one}, 272, 16, Along::outer);
    std::erase_if(list, [](const KernelCase& c) { return !c.name.starts_with("scaled_grouped"); });
    return list;
}

std::vector<KernelCase> expert_cases() {
    std::vector<KernelCase> list;
    const std::vector<std::pair<int64_t, RouteOptions>> routers = {
        {1, {.top_k = 1}},
        {5, {.top_k = 5, .normalise = true}},
        {6, {.top_k = 2, .normalise = true, .scale = 2.5}},
        {7, {.top_k = 1, .sigmoid = true}},
        {12, {.top_k = 3, .groups = 4, .kept_groups = 2, .sigmoid = true, .normalise = true, .scale = 1.5}},
        {64, {.top_k = 8, .groups = 8, .kept_groups = 3}},
        {33, {.top_k = 4, .round_robin = true}},
    };
    for (const auto& [experts, options] : routers)
        for (const int64_t tokens : {1, 37}) {
            for (const bool biased : {false, true})
                list.push_back(route_case(tokens, experts, options, biased));
            list.push_back(route_case(tokens, experts, options, false, true));
            list.push_back(route_backward_case(tokens, experts, options));
        }
    list.push_back(count_by_sequence_case(1, 1, 1, 1, {}));
    list.push_back(count_by_sequence_case(37, 6, 2, 5, {.first = 5, .length = 12}));  // the last has none
    list.push_back(count_by_sequence_case(24, 40, 3, 3, {.first = 24, .length = 16}));
    list.push_back(count_by_sequence_case(1300, 3, 2, 2, {.first = 0, .length = 700}));
    add_cases(list, {1, 1, 1}, 1, 4);
    add_cases(list, {5, 3, 2}, 17, 20);
    add_cases(list, {40, 4, 3}, 24, 27);
    add_cases(list, {40, 5, 2, Spread::one}, 24, 27);
    add_cases(list, {70, 6, 2, Spread::two}, 17, 20);
    // whole pieces of 16 bytes: products on a GPU's tensor cores, with more than one tile in each direction
    add_cases(list, {130, 3, 2}, 64, 96);
    add_cases(list, {300, 1, 1}, 72, 264);
    add_cases(list, {70, 2, 1, Spread::one}, 264, 136);
    // more of the depth than a processor sums at a time, with an odd rest; more rows than a job has
    add_products(list, {40, 1, 1}, 801, 36, 1);
    add_products(list, {1601, 2, 1, Spread::two}, 24, 8, 8);
    add_products(list, {34, 2, 1, Spread::even}, 600, 8, 8);
    // groups of one row or none, and more columns than the widest tile has
    add_products(list, {3, 4, 1}, 200, 328, 8);
    for (const Along along : {Along::outer, Along::blocks}) {
        add_quantized(list, {40, 4, 3}, 64, 96, along);
        add_quantized(list, {70, 6, 2, Spread::two}, 32, 64, along);
    }
    add_quantized(list, {5, 3, 2}, 17, 20, Along::outer);
    add_quantized(list, {1, 1, 1}, 1, 4, Along::outer);
    for (KernelCase& c : scaled_grouped_cases()) list.push_back(std::move(c));
    // more experts than a warp has lanes, and more assignments than a block has threads
    add_cases(list, {30, 40, 2}, 8, 16);
    list.push_back(group_by_expert_case({1100, 3, 2}));
    for (const bool none : {true, false}) list.push_back(group_without_padding_case({40, 5, 2}, none));
    list.push_back(group_by_expert_case({0, 3, 2}));
    for (const int64_t room : {127, 128}) list.push_back(group_in_room_case({40, 4, 2, Spread::even}, room));
    list.push_back(group_in_room_case({1100, 40, 2}, 2000));
    list.push_back(gather_rows_case({300, 3, 2}, 1, 1));  // numbers
    for (const bool none : {false, true}) {
        list.push_back(sum_some_rows_case({40, 5, 3}, 17, 1, none));
        list.push_back(sum_some_rows_case({40, 5, 3}, 24, 8, none));
    }
    // all 53 rows fit exactly, or one of them has no room
    for (const int64_t room : {52, 53}) list.push_back(rows_in_blocks_case({40, 1, 2}, room));
    for (const int64_t room : {1, 7, 40, 2000}) {
        list.push_back(rows_in_blocks_case({40, 3, 2}, room));
        list.push_back(rows_in_blocks_case({700, 64, 3}, room));
    }
    // a rank has fewer experts than a token, as many or more; there are as many parts as tokens, or more
    for (const auto& [s, ranks] : std::vector<std::pair<Assignments, RankRows>>{{{1, 1, 1}, {1, 1}},
                                                                                {{37, 12, 5}, {3, 16}},
                                                                                {{37, 8, 4}, {8, 16}},
                                                                                {{5, 6, 2}, {3, 16}},
                                                                                {{37, 6, 6}, {2, 1}},
                                                                                {{700, 64, 6}, {8, 16}},
                                                                                {{40, 40, 3}, {1, 3}}}) {
        for (const bool counted : {true, false}) list.push_back(units_of_rows_case(s, ranks, counted));
        list.push_back(choices_of_rows_case(s, ranks));
    }
    return list;
}

}  // namespace coeus::test
