// SPDX-License-Identifier: Apache-2.0
// A checkpoint is on disk before it gets its final name, and the name is on disk before the save is complete.
#include "coeus/io/checkpoint.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/support.hpp"
#include "support/system_calls.hpp"

#include <algorithm>

using namespace coeus;

namespace {

using Calls = std::vector<std::string>;

// The index of the last such call, or -1 if there is none. `file` is the begin of the file's name.
int64_t last_of(const Calls& calls, const std::string& call, const std::string& file) {
    const auto is_such = [&](const std::string& noted) { return noted.starts_with(call + " " + file); };
    const auto found = std::find_if(calls.rbegin(), calls.rend(), is_such);
    return calls.rend() - found - 1;
}

int64_t syncs_of(const Calls& calls, const std::string& file) {
    return std::ranges::count_if(
        calls, [&](const std::string& noted) { return noted.starts_with("fsync " + file); });
}

}  // namespace

TEST_CASE("checkpoint: it is written, synchronised, renamed, and its folder synchronised", "[checkpoint]") {
    const test::TemporaryFolder folder;
    const Communicator self = Communicator::self();
    const CheckpointStore checkpoint(folder / "checkpoint", 0, self);
    const test::CheckpointState saved(Dtype::f32);
    Calls calls;
    {
        const test::SystemCalls noting;
        checkpoint.save(test::record_of(100), saved.tensors);
        calls = noting.noted();
    }
    const std::string name = "step-00000100.h5";
    CAPTURE(calls);
    const int64_t written = last_of(calls, "pwrite", name), synchronised = last_of(calls, "fsync", name),
                  renamed = last_of(calls, "rename", name),
                  folder_synchronised = last_of(calls, "fsync", "checkpoint");
    CHECK(written >= 0);
    CHECK(written < synchronised);
    CHECK(synchronised < renamed);
    CHECK(renamed < folder_synchronised);
    // once by each rank that wrote elements (it may be on another host), and once by the rank that renames
    // the file
    CHECK(syncs_of(calls, name) >= 2);
}
