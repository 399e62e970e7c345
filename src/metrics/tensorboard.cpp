// SPDX-License-Identifier: Apache-2.0
// Only four forms of protobuf's wire format are needed: varints (0), numbers of 8 and of 4 bytes (1, 5), and
// bytes with their length (2). A field begins with (number << 3) | form.
#include "coeus/metrics/tensorboard.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/host_name.hpp"
#include "coeus/base/patient_io.hpp"

#include <boost/crc.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <system_error>

namespace coeus {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_start = "events.out.tfevents.";

enum Form : uint8_t { varint = 0, eight_bytes = 1, with_length = 2, four_bytes = 5 };

template <class Number>
std::string little_endian(Number value) {
    std::string bytes;
    for (size_t i = 0; i < sizeof(Number); ++i) bytes += char((value >> (8 * i)) & 0xff);
    return bytes;
}

std::string varint_of(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += char((value & 0x7f) | 0x80);
    return bytes + char(value);
}

std::string start_of(int field, Form form) {
    return varint_of(uint64_t(field) << 3 | form);
}
std::string integer_field(int field, int64_t value) {
    return start_of(field, varint) + varint_of(uint64_t(value));
}
std::string double_field(int field, double value) {
    return start_of(field, eight_bytes) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(int field, float value) {
    return start_of(field, four_bytes) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes_field(int field, std::string_view bytes) {
    return start_of(field, with_length) + varint_of(bytes.size()) + std::string(bytes);
}

// A record with an event that has the present time.
std::string record_of(std::string event) {
    event = double_field(1, seconds_since_1970()) + event;
    const std::string length = little_endian(uint64_t(event.size()));
    return length + little_endian(masked_crc32c(length)) + event + little_endian(masked_crc32c(event));
}

// Seconds since 1970, but larger than the numbers in the names of existing files: names then sort in the
// order of the starts, even within one second or if a clock was wrong.
int64_t number_of_file(const fs::path& folder) {
    auto number = int64_t(seconds_since_1970());
    std::error_code failed;
    for (const fs::path& entry : entries_patiently(folder, failed)) {
        const std::string name = entry.filename().string();
        if (!name.starts_with(name_start)) continue;
        number = std::max(number, 1 + int64_t(std::atoll(name.c_str() + name_start.size())));
    }
    return number;
}

}  // namespace

std::vector<Scalar> tensorboard_scalars(const StepMetrics& m) {
    std::vector<Scalar> scalars = {
        {"loss_metrics/global_avg_loss", m.loss},
        {"loss_metrics/global_max_loss", m.loss_max},
        {"grad_norm", m.grad_norm},
        {"lr", m.lr},
        {"n_tokens_seen", double(m.tokens_seen)},
        {"throughput(tps)", m.tps},
        {"tflops", m.tflops},
        {"time_metrics/end_to_end(s)", m.step_s},
        {"time_metrics/data_loading(s)", m.data_s},
        {"time_metrics/data_loading(%)", m.data_percent()},
        {"memory/max_active(GiB)", m.memory_gib},
        {"memory/max_active(%)", m.memory_percent},
        // there is no caching allocator: all reserved memory is in use
        {"memory/max_reserved(GiB)", m.memory_gib},
        {"memory/max_reserved(%)", m.memory_percent},
    };
    if (m.experts) {
        scalars.push_back({"moe/load_max", m.experts->max});
        scalars.push_back({"moe/load_min", m.experts->min});
        scalars.push_back({"moe/idle_experts", double(m.experts->idle)});
        if (m.experts->rank_max) scalars.push_back({"moe/rank_load_max", *m.experts->rank_max});
    }
    if (m.extra_rounds) scalars.push_back({"moe/extra_rounds", double(*m.extra_rounds)});
    if (m.steps_computed_twice)
        scalars.push_back({"moe/steps_computed_twice", double(*m.steps_computed_twice)});
    for (const LossMetric& loss : m.losses)
        scalars.push_back(
            {fmt::format("{}/{}", loss.topic.empty() ? "loss_metrics" : loss.topic, loss.name), loss.value});
    if (m.mfu) scalars.push_back({"mfu(%)", *m.mfu});
    if (m.gpu_memory_gib) scalars.push_back({"gpu/memory(GiB)", *m.gpu_memory_gib});
    if (m.gpu_power_w) scalars.push_back({"gpu/power(W)", *m.gpu_power_w});
    if (m.gpu_clock_mhz) scalars.push_back({"gpu/clock(MHz)", *m.gpu_clock_mhz});
    if (m.gpu_temperature_c) scalars.push_back({"gpu/temperature(C)", *m.gpu_temperature_c});
    if (m.gpu_throttle) scalars.push_back({"gpu/throttled", m.gpu_throttle->empty() ? 0.0 : 1.0});
    return scalars;
}

std::vector<Scalar> tensorboard_scalars(const ValidationMetrics& m) {
    std::vector<Scalar> scalars = {
        {"validation_metrics/loss", m.loss},
        {"validation_metrics/throughput(tps)", m.tps},
        {"validation_metrics/memory/max_active(GiB)", m.memory_gib},
        {"validation_metrics/memory/max_active(%)", m.memory_percent},
        {"validation_metrics/memory/max_reserved(GiB)", m.memory_gib},
        {"validation_metrics/memory/max_reserved(%)", m.memory_percent},
    };
    for (const SourceLoss& source : m.sources)
        if (source.tokens > 0) scalars.push_back({"validation_metrics/loss/" + source.name, source.loss});
    for (const TaskMetrics& task : m.tasks)
        for (const auto& [metric, value] : task.values)
            if (std::isfinite(value))
                scalars.push_back({fmt::format("tasks/{}/{}", task.task, metric), value});
    return scalars;
}

uint32_t masked_crc32c(std::string_view bytes) {
    boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
    crc.process_bytes(bytes.data(), bytes.size());
    return std::rotr(uint32_t(crc.checksum()), 15) + 0xA282EAD8u;
}

TensorBoardFile::TensorBoardFile(const fs::path& folder, int64_t resumed_step) {
    std::error_code failed;
    make_folders_patiently(folder, failed);
    if (failed)
        throw SystemError(fmt::format("cannot create the folder {}: {}", folder.string(), failed.message()));
    constexpr int64_t start_of_session = 1;
    file_.emplace(
        folder / fmt::format("{}{:010}.{}.{}.0", name_start, number_of_file(folder), host_name(), getpid()),
        TelemetryFile::Form{.record = "record",
                            .lines = false,
                            .head = record_of(bytes_field(3, "brain.Event:2")) +
                                    record_of(integer_field(2, resumed_step + 1) +
                                              bytes_field(7, integer_field(1, start_of_session)))});
    file_->require_open();
    file_->append("");  // writes the head
}

void TensorBoardFile::write(int64_t step, const std::vector<Scalar>& scalars) {
    std::string summary;
    for (const Scalar& scalar : scalars)
        summary += bytes_field(1, bytes_field(1, scalar.key) + float_field(2, float(scalar.value)));
    file_->append(record_of(integer_field(2, step) + bytes_field(5, summary)));
}

}  // namespace coeus
