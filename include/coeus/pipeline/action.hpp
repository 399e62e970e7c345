// SPDX-License-Identifier: Apache-2.0
// What a rank does in a pipeline. An Action is one computation of a stage on a micro-batch, or one message. A
// Cell is an entry in a rank's row: an action, an overlapped pair, or nothing. Their text has the form of
// PyTorch's tables: 2F0 is stage 2, forward, micro-batch 0; (0F3;3B1)OVERLAP_F_B is a pair.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

enum class ActionKind : uint8_t {
    forward,           ///< F
    backward,          ///< B: the gradients of the stage's input and weights
    backward_input,    ///< I: the gradient of the stage's input
    backward_weight,   ///< W: the gradients of the stage's weights, at any time after I
    send_forward,      ///< SEND_F: the output, to the next stage
    receive_forward,   ///< RECV_F: the input, from the stage before
    send_backward,     ///< SEND_B: the gradient of the input, to the stage before
    receive_backward,  ///< RECV_B: the gradient of the output, from the next stage
};

/// "F", "RECV_B"
const char* name_of(ActionKind kind);

struct Action {
    ActionKind kind{};
    int stage = 0;
    int microbatch = 0;
    int peer = -1;  ///< for a message: the rank at its other end; else -1

    bool computes() const { return kind <= ActionKind::backward_weight; }
    bool sends() const { return kind == ActionKind::send_forward || kind == ActionKind::send_backward; }
    /// True for B and I, which the stage before waits for.
    bool gives_input_gradient() const {
        return kind == ActionKind::backward || kind == ActionKind::backward_input;
    }
    /// True for B and W, after which nothing of the forward is needed any more.
    bool ends_frame() const { return kind == ActionKind::backward || kind == ActionKind::backward_weight; }
    /// The channel of a message; -1 for a computation. Each pair of neighbouring stages has a channel for
    /// activations (even) and one for gradients (odd), each with its own order. Sender and receiver get the
    /// same number.
    int channel() const;

    bool operator==(const Action&) const = default;
};

/// "2F0"
std::string text_of(const Action& action);

/// Nothing (an idle entry of a file), one action, or two that may overlap: a forward and a backward, or those
/// of two halves of a local batch.
class Cell {
public:
    Cell() = default;
    Cell(const Action& action) : actions_{action}, size_(1) {}
    Cell(const Action& first, const Action& second) : actions_{first, second}, size_(2) {}

    int size() const { return size_; }
    bool empty() const { return size_ == 0; }
    bool is_pair() const { return size_ == 2; }
    /// True for a pair of the same kind, two halves of a local batch.
    bool is_halves() const { return is_pair() && actions_[0].kind == actions_[1].kind; }
    const Action& operator[](int i) const { return actions_[size_t(i)]; }
    const Action* begin() const { return actions_.data(); }
    const Action* end() const { return actions_.data() + size_; }

    bool operator==(const Cell&) const = default;

private:
    std::array<Action, 2> actions_;
    int size_ = 0;
};

/// The cells of one rank, in order.
using Row = std::vector<Cell>;

/// "2F0", "(0F3;3B1)OVERLAP_F_B", ""
std::string text_of(const Cell& cell);
/// The inverse of text_of; spaces around the text are ignored. Nothing if `text` is not a cell. Peers are not
/// part of the text.
std::optional<Cell> parse_cell(std::string_view text);

}  // namespace coeus
