// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files with the metrics of a run, under torchtitan's keys.
//   file    records, each: length u64 | masked CRC-32C of the length | data | masked CRC-32C of the data
//   data    a protobuf message tensorflow.Event: wall_time, step, and a file_version, session_log or summary
// (tensorflow/core/lib/io/record_writer.cc, core/util/event.proto, core/framework/summary.proto)
#pragma once

#include "coeus/base/telemetry_file.hpp"
#include "coeus/metrics/metrics.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// One value under its key: {"loss_metrics/global_avg_loss", 3.5}.
struct Scalar {
    std::string key;
    double value;
};

/// The scalars of a logged step; mfu(%) only if the peak is known.
std::vector<Scalar> tensorboard_scalars(const StepMetrics& m);
std::vector<Scalar> tensorboard_scalars(const ValidationMetrics& m);

/// A new event file in a folder that may have files of earlier starts. TensorBoard reads them in the order of
/// their names as one run. The new file begins with a session record that discards the values of earlier
/// files for steps after `resumed_step`, so that every step is shown once.
class TensorBoardFile {
public:
    /// Makes the folder. Throws SystemError, with folder or file, if it cannot be made.
    TensorBoardFile(const std::filesystem::path& folder, int64_t resumed_step);
    /// Appends to the file at once, without buffering. Values are stored as 32-bit floats, like every
    /// TensorBoard scalar.
    void write(int64_t step, const std::vector<Scalar>& scalars);
    const std::filesystem::path& path() const { return file_->path(); }

private:
    std::optional<TelemetryFile> file_;
};

/// CRC-32C of the bytes, rotated and shifted as TFRecord stores it.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace coeus
