// SPDX-License-Identifier: Apache-2.0
// The cases of attention: whole sequences, parts of sequences, with a cache.
#include "support/cases.hpp"

#include <algorithm>

namespace coeus::test {

namespace {

constexpr Role input = Role::input, output = Role::output, update = Role::update;
constexpr Kind acc = Kind::acc, compute = Kind::compute, index_kind = Kind::index;

// "64", "192 and 128", "64 window 9"
std::string widths_text(const AttentionShape& s) {
    return (s.value_width() == s.head_dim ? std::to_string(s.head_dim)
                                          : fmt::format("{} and {}", s.head_dim, s.value_width())) +
           (s.window ? fmt::format(" window {}", s.window) : "") +
           (s.chunk ? fmt::format(" chunk {}", s.chunk) : "") + (s.causal ? "" : " full");
}

}  // namespace

KernelCase attention_case(const AttentionShape& s, bool documents, bool backward, bool fused, bool partial) {
    const int64_t tokens = s.batch * s.sequence, keys = s.batch * s.keys().count;
    const int64_t q_width = s.heads * s.head_dim, out_width = s.heads * s.value_width(),
                  k_width = s.kv_heads * s.head_dim, v_width = s.kv_heads * s.value_width();
    const int64_t whole = 1 + std::max(s.queries().index(s.sequence - 1), s.keys().index(s.keys().count - 1));
    KernelCase c;
    c.name = fmt::format("{} {}x{} heads {}/{} of {}{}{}{}{}", backward ? "attention_backward" : "attention",
                         s.batch, s.sequence, s.heads, s.kv_heads, widths_text(s),
                         keys == tokens && whole == s.sequence
                             ? ""
                             : fmt::format(" over {} keys of {}", s.keys().count, whole),
                         documents ? " documents" : "", fused ? " fused" : "", partial ? " partial" : "");
    // in a fused matrix of [q k v], the columns of the other two lie between an operand's rows
    const int64_t q_padding = fused ? k_width + v_width : 0, k_padding = fused ? q_width + v_width : 0,
                  v_padding = fused ? q_width + k_width : 0;
    const Role forward_role = backward ? input : output;
    c.arguments = {
        {"out", forward_role, partial && !backward ? acc : compute, {tokens, out_width}},
        {"lse", forward_role, acc, {s.heads, tokens}},
        {"q", input, compute, {tokens, q_width}, 0, 1, q_padding},
        {"k", input, compute, {keys, k_width}, 0, 1, k_padding},
        {"v", input, compute, {keys, v_width}, 0, 1, v_padding},
        {"document_start", input, index_kind, {s.batch * whole}, 1},
    };
    if (backward) {
        const Kind kind = partial ? acc : compute;
        c.arguments.push_back({"dout", input, compute, {tokens, out_width}});
        c.arguments.push_back({"dq", partial ? update : output, kind, {tokens, q_width}, 0, 1, q_padding});
        c.arguments.push_back({"dk", output, kind, {keys, k_width}, 0, 1, k_padding});
        c.arguments.push_back({"dv", output, kind, {keys, v_width}, 0, 1, v_padding});
    }
    c.prepare = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
        if (documents) {  // a new document about every seventh token, at other places in each sequence
            auto* start = Tensor(o[5]).as<int32_t>();
            for (int64_t t = 0, first = 0; t < s.batch * whole; ++t) {
                if (t % whole == 0) first = 0;
                if ((t * 2654435761u >> 7) % 7 == 0) first = t % whole;
                start[t] = int32_t(first);
            }
        }
        if (backward) kernels.attention(exec, o[0], o[1], o[2], o[3], o[4], documents ? o[5] : Tensor(), s);
    };
    c.call = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
        const Tensor start = documents ? o[5] : Tensor();
        if (backward)
            kernels.attention_backward(exec, o[7], o[8], o[9], o[6], o[0], o[1], o[2], o[3], o[4], start, s,
                                       partial);
        else
            kernels.attention(exec, o[0], o[1], o[2], o[3], o[4], start, s);
    };
    c.bound_bf16 = backward ? 1.5e-2 : 8e-3;
    c.bound_f32 = 4e-6;
    return c;
}

KernelCase merge_attention_case(const AttentionShape& s, bool documents) {
    KernelCase c = attention_case(s, documents, false, false, true);
    c.name = "merge_" + c.name;
    c.arguments[0].role = c.arguments[1].role = update;
    c.arguments[1].mean = 3;
    c.arguments[1].deviation = 2;
    c.call = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
        kernels.merge_attention(exec, o[0], o[1], o[2], o[3], o[4], documents ? o[5] : Tensor(), s);
    };
    return c;
}

KernelCase attention_sink_case(int64_t tokens, int64_t heads, int64_t head_dim, bool backward,
                               bool acc_output) {
    const Shape out = {tokens, heads * head_dim}, lse = {heads, tokens};
    KernelCase c;
    c.name = fmt::format("attention_sink{} {} heads {} of {}{}", backward ? "_backward" : "", tokens, heads,
                         head_dim, acc_output ? " acc" : "");
    c.arguments = {{"out", backward ? input : update, acc_output ? acc : compute, out, 0, 1, 3},
                   {"lse", backward ? input : update, acc, lse, 1, 2},
                   {"sinks", input, compute, {heads}, 0.5}};
    if (backward) {
        c.arguments.push_back({"dout", input, compute, out, 0, 1, 5});
        c.arguments.push_back({"dsinks", update, acc, {heads}});
        c.prepare = [](const Kernels& k, Exec& e, const Operands& o) {
            k.attention_sink(e, o[0], o[1], o[2]);
        };
        c.call = [](const Kernels& k, Exec& e, const Operands& o) {
            k.attention_sink_backward(e, o[4], o[3], o[0], o[1], o[2]);
        };
        c.bound_f32 = 4e-6;
    } else {
        c.call = [](const Kernels& k, Exec& e, const Operands& o) { k.attention_sink(e, o[0], o[1], o[2]); };
    }
    return c;
}

KernelCase latent_keys_case(int64_t tokens, const LatentShape& s, bool backward) {
    const Role forward = backward ? input : output, gradient = backward ? output : input;
    KernelCase c;
    c.name = fmt::format("latent_keys{} {} heads {} of {} + {} and {}", backward ? "_backward" : "", tokens,
                         s.heads, s.nope, s.rope, s.value);
    c.arguments = {{"k", forward, compute, {tokens, s.heads * (s.nope + s.rope)}, 0, 1, 2},
                   {"v", forward, compute, {tokens, s.heads * s.value}},
                   {"kv", gradient, compute, {tokens, s.heads * (s.nope + s.value)}, 0, 1, 1},
                   {"pe", gradient, compute, {tokens, s.rope}, 0, 1, 4}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        if (backward)
            k.latent_keys_backward(e, o[2], o[3], o[0], o[1], s);
        else
            k.latent_keys(e, o[0], o[1], o[2], o[3], s);
    };
    return c;
}

KernelCase attention_cached_case(const AttentionShape& s, int64_t kept, int64_t padding) {
    const int64_t q_width = s.heads * s.head_dim, k_width = s.kv_heads * s.head_dim,
                  v_width = s.kv_heads * s.value_width();
    KernelCase c;
    c.name = fmt::format("attention_cached {} of {}x{} heads {}/{} of {}", s.batch, kept, s.sequence, s.heads,
                         s.kv_heads, widths_text(s));
    c.arguments = {
        {"out", output, compute, {s.batch, s.heads * s.value_width()}},
        {"keys", Role::update, compute, {kept * s.sequence, k_width}, 0, 1, padding},
        {"values", Role::update, compute, {kept * s.sequence, v_width}, 0, 1, padding},
        {"q", input, compute, {s.batch, q_width}, 0, 1, k_width + v_width},
        {"k", input, compute, {s.batch, k_width}, 0, 1, q_width + v_width},
        {"v", input, compute, {s.batch, v_width}, 0, 1, q_width + k_width},
        {"slots", input, index_kind, {s.batch}, 1},
        {"positions", input, index_kind, {s.batch}, double(s.sequence)},
        {"lse", output, acc, {s.heads, s.batch}},
    };
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) {
        for (int64_t b = 0; b < s.batch; ++b)
            Tensor(o[6]).as<int32_t>()[b] = int32_t(kept - 1 - b);  // all different
        Tensor(o[7]).as<int32_t>()[0] = int32_t(s.sequence - 1);    // a full sequence
    };
    c.call = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
        kernels.attention_cached(exec, o[0], o[8], o[1], o[2], o[3], o[4], o[5], o[6], o[7], s);
    };
    c.bound_f32 = 4e-6;
    return c;
}

namespace {

AttentionShape masked(AttentionShape shape, int64_t window, int64_t chunk) {
    shape.window = window;
    shape.chunk = chunk;
    return shape;
}

AttentionShape full(AttentionShape shape) {
    shape.causal = false;
    return shape;
}

}  // namespace

std::vector<KernelCase> attention_cases() {
    std::vector<KernelCase> list;
    for (bool backward : {false, true}) {
        list.push_back(attention_case({1, 1, 1, 1, 1, 1.0}, false, backward));
        list.push_back(attention_case({2, 5, 3, 1, 5, 0.4}, false, backward));
        list.push_back(attention_case({1, 48, 2, 2, 16, 0.25}, false, backward));
        list.push_back(attention_case({2, 49, 4, 2, 16, 0.25}, true, backward, true));
        list.push_back(attention_case({1, 97, 6, 3, 24, 0.2}, true, backward));
        list.push_back(attention_case({1, 211, 2, 1, 64, 0.125}, false, backward, true));
        list.push_back(attention_case({3, 130, 2, 2, 7, 0.3}, true, backward));
        list.push_back(attention_case({1, 100, 1, 1, 128, 0.09}, false, backward));
        list.push_back(attention_case({1, 35, 2, 1, 200, 0.07}, false, backward));
        list.push_back(attention_case({1, 40, 2, 1, 256, 0.06}, true, backward));
        list.push_back(attention_case({2, 70, 4, 1, 48, 0.15}, true, backward, true));
        list.push_back(attention_case({1, 140, 3, 3, 80, 0.11}, true, backward));
        list.push_back(attention_case({1, 133, 4, 2, 96, 0.1}, false, backward, true, true));
        list.push_back(attention_case({1, 300, 1, 1, 32, 0.18}, true, backward, false, true));
        list.push_back(attention_case({1, 75, 2, 1, 112, 0.1}, false, backward, true));
        // without tensor cores, since the width is not a multiple of 8; results in both types
        for (const bool partial : {false, true}) {
            list.push_back(attention_case({1, 35, 2, 1, 100, 0.1}, false, backward, false, partial));
            list.push_back(attention_case({1, 19, 2, 2, 250, 0.06}, true, backward, false, partial));
        }
        list.push_back(attention_case({1, 70, 2, 1, 64, 0.125}, false, backward, false, true));
        // values narrower and wider than keys
        list.push_back(attention_case({1, 1, 1, 1, 1, 1.0, {}, {}, 2}, false, backward));
        list.push_back(attention_case({2, 49, 4, 2, 24, 0.25, {}, {}, 16}, true, backward, true));
        list.push_back(attention_case({1, 131, 3, 1, 5, 0.4, {}, {}, 19}, false, backward, true, true));
        list.push_back(attention_case({1, 70, 2, 2, 192, 0.07, {}, {}, 128}, true, backward));
        list.push_back(attention_case({1, 150, 2, 1, 192, 0.07, {}, {}, 128}, false, backward, true, true));
        list.push_back(attention_case({1, 37, 3, 1, 136, 0.07, {}, {}, 72}, false, backward));
        list.push_back(attention_case({2, 81, 2, 1, 256, 0.06}, false, backward, true, true));
        list.push_back(attention_case({1, 33, 2, 2, 8, 0.3, {}, {}, 248}, true, backward));
        list.push_back(
            attention_case({1, 90, 2, 1, 192, 0.07, {90, 45, 90}, {200, 0, 35}, 128}, true, backward));
        list.push_back(attention_case({2, 54, 2, 1, 64, 0.25, {54, 27, 108}, {216}, 8}, true, backward));
        // windows and chunks, with documents and parts of sequences
        list.push_back(attention_case(masked({2, 49, 4, 2, 16, 0.25}, 2, 0), false, backward));
        list.push_back(attention_case(masked({1, 211, 2, 1, 64, 0.125}, 50, 0), false, backward, true));
        list.push_back(attention_case(masked({1, 300, 2, 2, 32, 0.18}, 9, 0), true, backward, false, true));
        list.push_back(attention_case(masked({2, 130, 2, 1, 24, 0.2}, 0, 16), true, backward, true));
        list.push_back(attention_case(masked({1, 140, 3, 3, 80, 0.11}, 0, 70), false, backward));
        list.push_back(attention_case(masked({2, 54, 2, 1, 16, 0.25, {54, 27, 108}, {216}}, 40, 0), true,
                                      backward, true));
        list.push_back(attention_case(masked({1, 98, 3, 1, 8, 0.4, {98, 3, 1}, {98, 3, 1}}, 0, 30), false,
                                      backward, true, true));
        // parts of sequences: the second half with all keys, two runs with all keys, runs with their own
        // keys, all keys visible
        list.push_back(attention_case({2, 30, 4, 2, 7, 0.3, {30, 30}, {60}}, false, backward));
        list.push_back(attention_case({2, 54, 2, 1, 16, 0.25, {54, 27, 108}, {216}}, true, backward, true));
        list.push_back(attention_case({1, 98, 3, 1, 5, 0.4, {98, 3, 1}, {98, 3, 1}}, true, backward, true));
        list.push_back(attention_case({1, 51, 2, 2, 12, 0.3, {51, 70}, {65}}, false, backward, false, true));
        list.push_back(
            attention_case({3, 7, 4, 2, 24, 0.2, {7, 50, 9}, {10, 0, 40}}, false, backward, true, true));
        list.push_back(
            attention_case({1, 160, 2, 1, 64, 0.125, {160, 80, 160}, {400}}, false, backward, true));
        list.push_back(attention_case({1, 90, 2, 1, 128, 0.09, {90, 45, 90}, {200, 0, 35}}, true, backward,
                                      false, true));
        // full attention: of whole sequences, and of parts, whose places do not matter
        list.push_back(attention_case(full({1, 1, 1, 1, 1, 1.0}), false, backward));
        list.push_back(attention_case(full({2, 53, 3, 1, 5, 0.4}), false, backward));
        list.push_back(attention_case(full({1, 150, 2, 2, 64, 0.125}), false, backward, true));
        list.push_back(attention_case(full({2, 70, 2, 1, 128, 0.09}), false, backward, true, true));
        list.push_back(attention_case(full({1, 45, 2, 1, 192, 0.07, {}, {}, 128}), false, backward));
        list.push_back(attention_case(full({2, 30, 4, 2, 16, 0.3, {30, 2, 20}, {77, 11}}), false, backward));
        list.push_back(
            attention_case(full({1, 100, 2, 1, 64, 0.125, {100}, {33, 40}}), false, backward, true, true));
    }
    // keys of which all queries, some and none see some
    list.push_back(merge_attention_case({1, 1, 1, 1, 1, 1.0}, false));
    list.push_back(merge_attention_case({1, 53, 3, 1, 7, 0.4, {53, 60}, {31}}, true));
    list.push_back(merge_attention_case({2, 48, 4, 2, 16, 0.25, {48, 0, 96}, {48, 24, 48}}, false));
    list.push_back(merge_attention_case({1, 20, 2, 2, 24, 0.2, {20}, {8, 40}, 16}, false));
    list.push_back(merge_attention_case(full({2, 48, 4, 2, 16, 0.25, {48}, {24, 48}}), false));
    list.push_back(attention_cached_case({1, 1, 1, 1, 1, 1.0}, 1));
    list.push_back(attention_cached_case({1, 211, 4, 4, 16, 0.25}, 1));
    list.push_back(attention_cached_case({2, 19, 6, 3, 7, 0.4}, 3, 5));
    list.push_back(attention_cached_case({5, 67, 8, 2, 64, 0.125}, 5));
    list.push_back(attention_cached_case({3, 50, 4, 1, 24, 0.2}, 7));
    list.push_back(attention_cached_case({1, 21, 2, 1, 100, 0.1}, 1));
    list.push_back(attention_cached_case({2, 9, 2, 2, 200, 0.07}, 2));
    list.push_back(attention_cached_case({3, 50, 4, 2, 24, 0.2, {}, {}, 16}, 4, 3));
    list.push_back(attention_cached_case({2, 19, 6, 3, 7, 0.4, {}, {}, 130}, 3));
    list.push_back(attention_cached_case(masked({5, 67, 8, 2, 64, 0.125}, 9, 0), 5));
    list.push_back(attention_cached_case(masked({3, 50, 4, 1, 24, 0.2}, 0, 8), 7));
    return list;
}

}  // namespace coeus::test
