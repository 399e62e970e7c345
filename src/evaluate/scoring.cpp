// SPDX-License-Identifier: Apache-2.0
#include "coeus/evaluate/scoring.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/comm/together.hpp"

#include <algorithm>
#include <bit>
#include <variant>

namespace coeus {

namespace {

constexpr size_t kinds_of_positions = 32;

}  // namespace

bool needs_row_for_each(const DecoderConfig& model) {
    return std::ranges::any_of(model.layer_kinds(), [](const LayerKind& kind) {
        const auto* attention = std::get_if<GroupedAttentionConfig>(&kind.config.attention);
        return attention != nullptr && (attention->chunk > 0 || attention->temperature);
    });
}

int64_t row_length_for(const DecoderConfig& model, int64_t context, int64_t tensor_ranks,
                       int64_t context_ranks) {
    const int64_t parts = tensor_ranks * (context_ranks > 1 ? 2 * context_ranks : 1),
                  length = round_up(context, parts);
    const bool by_length = std::ranges::any_of(model.ropes(), [](const RopeConfig& rope) {
        return std::holds_alternative<DynamicScaling>(rope.scaling) ||
               std::holds_alternative<LongRopeScaling>(rope.scaling);
    });
    if (length != context && by_length)
        throw ConfigError(
            "--context {}: this model's RoPE depends on the length of a row, which tensor and context "
            "parallel "
            "ranks divide into {} parts; the nearest context that they can divide is {}",
            context, parts, std::max(parts, context / parts * parts));
    return length;
}

Scoring::Scoring(const std::vector<Task>& tasks, const ScoringOptions& options, const Communicator& world)
    : options_(options) {
    if (world.rank() == 0) {
        for (size_t task = 0; task < tasks.size(); ++task) {
            const bool are_documents = tasks[task].kind == TaskKind::document;
            for (const TaskLine& line : tasks[task].lines)
                for (const Request& request : line.requests) {
                    const Of of = {int32_t(requests_++), are_documents ? int32_t(task) : not_document};
                    if (!are_documents) {
                        windows_.push_back(window_of(request, options.context));
                        of_.push_back(of);
                        continue;
                    }
                    for (Window& window : windows_of_document(request, options.context, options.stride)) {
                        windows_.push_back(std::move(window));
                        of_.push_back(of);
                    }
                }
        }
    }
    broadcast(world);
    std::vector<int64_t> lengths;
    for (const Window& window : windows_) lengths.push_back(int64_t(window.inputs.size()));
    rows_ = pack(lengths, options.context, options.one_in_a_row);
    const auto places = size_t(options.sequences * options.row_length);
    tokens_.resize(places);
    labels_.resize(places);
    document_start_.resize(places);
}

void Scoring::broadcast(const Communicator& world) {
    std::vector<int32_t> lengths, inputs, labels, of;
    for (const Window& window : windows_) {
        lengths.push_back(int32_t(window.inputs.size()));
        inputs.insert(inputs.end(), window.inputs.begin(), window.inputs.end());
        labels.insert(labels.end(), window.labels.begin(), window.labels.end());
    }
    for (const Of& each : of_) of.insert(of.end(), {each.request, each.task});
    for (auto* values : {&lengths, &inputs, &labels, &of}) broadcast_numbers(world, *values);
    requests_ = world.all_reduce(requests_, Reduce::max);
    if (world.rank() == 0) return;
    for (size_t i = 0, at = 0; i < lengths.size(); at += size_t(lengths[i++])) {
        const auto part = [&](const std::vector<int32_t>& all) {
            return std::vector<int32_t>(all.begin() + int64_t(at), all.begin() + int64_t(at) + lengths[i]);
        };
        windows_.push_back({part(inputs), part(labels)});
        of_.push_back({of[2 * i], of[2 * i + 1]});
    }
}

int64_t Scoring::tokens() const {
    int64_t count = 0;
    for (const Window& window : windows_) count += int64_t(window.inputs.size());
    return count;
}

// Writes a row as number `number` of the batch. Places after its windows are a document of their own, which
// has no labels.
void Scoring::fill(const PackedRow& row, size_t number) {
    const size_t length = size_t(options_.row_length), begin = number * length;
    const auto part = [&](std::vector<int32_t>& all) { return std::span(all).subspan(begin, length); };
    const std::span<int32_t> tokens = part(tokens_), labels = part(labels_), starts = part(document_start_);
    size_t end = 0;
    for (const Placed& placed : row) {
        const Window& window = windows_[placed.window];
        std::ranges::copy(window.inputs, tokens.begin() + placed.first);
        std::ranges::copy(window.labels, labels.begin() + placed.first);
        std::fill_n(starts.begin() + placed.first, window.inputs.size(), int32_t(placed.first));
        end = std::max(end, size_t(placed.first) + window.inputs.size());
    }
    std::fill(tokens.begin() + int64_t(end), tokens.end(), 0);
    std::fill(labels.begin() + int64_t(end), labels.end(), ignored_label);
    std::fill(starts.begin() + int64_t(end), starts.end(), int32_t(end));
}

// Adds the scores of a window whose first place in the batch is `first`.
void Scoring::add(size_t window, const TokenScores& scores, size_t first) {
    const std::vector<int32_t>& labels = windows_[window].labels;
    const int32_t task = of_[window].task;
    for (size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] == ignored_label) continue;
        const double loss = scores.losses[first + i];
        sums_[2 * window] -= loss;
        sums_[2 * window + 1] += scores.label_is_largest[first + i] != 0 ? 0 : 1;
        if (task == not_document) continue;
        const size_t k = size_t(std::bit_width(i + 1)) - 1;
        double* const sum = &by_position_[2 * (size_t(task) * kinds_of_positions + k)];
        sum[0] += loss;
        sum[1] += 1;
    }
}

// The same number of calls on every rank, and of rows in each, since the layers communicate and the room for
// experts' rows is a multiple of a rank's own; a rank that has fewer left adds rows without labels.
bool Scoring::run(Engine& engine, FunctionRef<bool()> goes_on) {
    const Communicator& data_ranks = engine.mesh()[axis::dp];
    const int64_t ranks = data_ranks.size(), length = options_.row_length;
    int32_t tasks = 0;
    for (const Of& of : of_) tasks = std::max(tasks, of.task + 1);
    sums_.assign(2 * windows_.size(), 0);
    by_position_.assign(2 * size_t(tasks) * kinds_of_positions, 0);
    const int64_t calls = div_ceil(div_ceil(rows(), ranks), options_.sequences);
    TokenScores scores;
    size_t next = size_t(data_ranks.rank());
    for (int64_t call = 0; call < calls; ++call) {
        if (!goes_on()) return false;
        const int64_t left = rows() - call * options_.sequences * ranks,
                      count = std::min(options_.sequences, div_ceil(left, ranks));
        std::vector<const PackedRow*> filled;
        for (; int64_t(filled.size()) < count && next < rows_.size(); next += size_t(ranks)) {
            fill(rows_[next], filled.size());
            filled.push_back(&rows_[next]);
        }
        for (int64_t number = int64_t(filled.size()); number < count; ++number) fill({}, size_t(number));
        SampleRows batch = {
            .sequences = options_.sequences, .seq_len = length, .tokens = tokens_, .labels = labels_};
        if (!options_.one_in_a_row) batch.document_start = document_start_;
        engine.evaluate(batch.slice(0, count), scores);
        for (size_t number = 0; number < filled.size(); ++number)
            for (const Placed& placed : *filled[number])
                add(placed.window, scores, number * size_t(length) + size_t(placed.first));
    }
    for (std::vector<double>* sums : {&sums_, &by_position_})
        if (!sums->empty()) data_ranks.all_reduce(Tensor(sums->data(), Dtype::f64, {int64_t(sums->size())}));

    scores_.assign(size_t(requests_), {});
    for (size_t window = 0; window < windows_.size(); ++window) {
        Score& score = scores_[size_t(of_[window].request)];
        score.log_probability += sums_[2 * window];
        score.greedy = score.greedy && sums_[2 * window + 1] == 0;
        score.tokens += std::ranges::count_if(windows_[window].labels,
                                              [](int32_t label) { return label != ignored_label; });
    }
    positions_.clear();
    for (size_t i = 0; i < by_position_.size(); i += 2)
        if (by_position_[i + 1] > 0)
            positions_[int32_t(i / 2 / kinds_of_positions)][int(i / 2 % kinds_of_positions)] = {
                by_position_[i], int64_t(by_position_[i + 1])};
    return true;
}

}  // namespace coeus
