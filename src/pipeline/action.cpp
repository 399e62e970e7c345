// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/action.hpp"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

namespace coeus {

namespace {

constexpr std::array<const char*, 8> names = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
constexpr std::string_view overlap = "OVERLAP_F_B";

std::string_view trimmed(std::string_view text) {
    constexpr const char* space = " \t\r";
    const size_t first = text.find_first_not_of(space);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(space) - first + 1);
}

// Takes the digits at the front of `text`. Nothing if there are none, or too many for an int.
std::optional<int> take_number(std::string_view& text) {
    int value = 0;
    if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(size_t(end - text.data()));
    return value;
}

std::optional<Action> parse_action(std::string_view text) {
    const std::optional<int> stage = take_number(text);
    const std::string_view kind = text.substr(0, text.find_first_of("0123456789"));
    text.remove_prefix(kind.size());
    const std::optional<int> microbatch = take_number(text);
    if (!stage || !microbatch || !text.empty()) return std::nullopt;
    for (size_t i = 0; i < names.size(); ++i)
        if (kind == names[i]) return Action{ActionKind(i), *stage, *microbatch};
    return std::nullopt;
}

std::optional<Cell> parse_pair(std::string_view text) {
    const size_t middle = text.find(';'), close = text.find(')');
    if (close == std::string_view::npos || middle > close || trimmed(text.substr(close + 1)) != overlap)
        return std::nullopt;
    const auto forward = parse_action(trimmed(text.substr(1, middle - 1)));
    const auto backward = parse_action(trimmed(text.substr(middle + 1, close - middle - 1)));
    if (!forward || !backward) return std::nullopt;
    if (forward->kind != ActionKind::forward || !backward->gives_input_gradient()) return std::nullopt;
    return Cell(*forward, *backward);
}

}  // namespace

const char* name_of(ActionKind kind) {
    return names[size_t(kind)];
}

int Action::channel() const {
    switch (kind) {
        case ActionKind::send_forward: return 2 * stage;
        case ActionKind::receive_forward: return 2 * (stage - 1);
        case ActionKind::send_backward: return 2 * (stage - 1) + 1;
        case ActionKind::receive_backward: return 2 * stage + 1;
        default: return -1;
    }
}

std::string text_of(const Action& action) {
    return fmt::format("{}{}{}", action.stage, name_of(action.kind), action.microbatch);
}

std::string text_of(const Cell& cell) {
    if (cell.empty()) return "";
    if (!cell.is_pair()) return text_of(cell[0]);
    return fmt::format("({};{}){}", text_of(cell[0]), text_of(cell[1]), overlap);
}

std::optional<Cell> parse_cell(std::string_view text) {
    text = trimmed(text);
    if (text.empty()) return Cell();
    if (text[0] == '(') return parse_pair(text);
    const std::optional<Action> action = parse_action(text);
    if (!action) return std::nullopt;
    return Cell(*action);
}

}  // namespace coeus
