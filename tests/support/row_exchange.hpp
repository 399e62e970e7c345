// SPDX-License-Identifier: Apache-2.0
// Cases of all-to-alls of rows, for every transport.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/stream.hpp"

namespace coeus::test {

inline constexpr Dtype exchanged_types[] = {Dtype::f64, Dtype::f32, Dtype::bf16,
                                            Dtype::i32, Dtype::i64, Dtype::u8};

/// Exchanges rows by all_to_all where `exec` runs: vectors and matrices; uneven counts, in multiples of about
/// `scale` rows; ranges without rows; all rows to one rank, or from one. Returns the cases whose result is
/// wrong on this rank; "" if none is. With `beside`, a stream next to `exec`, the exchanges are its work.
std::string wrong_row_exchanges(const Communicator& ranks, Exec& exec, Dtype dtype, int64_t scale = 1,
                                Stream* beside = nullptr);

}  // namespace coeus::test
