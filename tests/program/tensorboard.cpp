// SPDX-License-Identifier: Apache-2.0
// Event files of real runs, read by the tests' own parser and, if a Python has it, by TensorBoard itself: an
// interrupted run shows each step once.
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/event_file.hpp"
#include "support/paths.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

using Shown = std::map<std::string, std::map<int64_t, float>>;

Shown shown_by_tensorboard(const std::string& python, const fs::path& folder) {
    const Outcome read = run_shell(python + " " + paths::source() + "/tests/tools/read_events.py '" +
                                   folder.string() + "' 2>/dev/null");
    CHECK(read.exit_code == 0);
    Shown shown;
    std::istringstream lines(read.output);
    std::string key;
    int64_t step = 0;
    for (double value = 0; lines >> key >> step >> value;)
        CHECK(shown[key].emplace(step, float(value)).second);
    return shown;
}

// The folder of a run of 8 steps, of which 4 and 5 are trained twice.
fs::path interrupted_run(const TemporaryFolder& folder) {
    const fs::path out = folder / "out", data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 17)});
    const Arguments more = {"--metrics.enable_tensorboard", "--checkpoint.enable",
                            "--checkpoint.interval=3",      "--checkpoint.last_save_model_only=false",
                            "--validation.enable",          "--validation.freq=2",
                            "--validation.steps=1"};
    train_tiny(out, data, more + Arguments{steps(5)});
    // its end is lost: the run resumes at step 4
    REQUIRE(fs::remove(out / checkpoint_of(5)));
    train_tiny(out, data, more + Arguments{steps(8)});
    CHECK(event_files(out / "tb").size() == 2);
    return out;
}

// A step has no MFU if it would be more than 100 %: on a busy machine, a peak that is measured is too small.
Shown without_mfu(Shown shown) {
    shown.erase("mfu(%)");
    return shown;
}

}  // namespace

TEST_CASE("event files have the metrics of an interrupted run, each step once") {
    const TemporaryFolder folder;
    const fs::path out = interrupted_run(folder);
    const Shown shown = without_mfu(shown_scalars(out / "tb"));
    const MetricLines lines = read_metrics(out);
    REQUIRE(lines.steps.size() == 8);
    CHECK(shown.size() == 14 + 6);
    for (const auto& [key, values] : shown)
        CHECK(values.size() == (key.starts_with("validation_metrics/") ? 5 : 8));
    for (const StepLine& line : lines.steps) {
        CHECK(shown.at("loss_metrics/global_avg_loss").at(line.step) == float(line.loss));
        CHECK(shown.at("loss_metrics/global_max_loss").at(line.step) == float(line.loss_max));
        CHECK(shown.at("grad_norm").at(line.step) == float(line.grad_norm));
        CHECK(shown.at("lr").at(line.step) == float(line.lr));
        CHECK(shown.at("n_tokens_seen").at(line.step) == float(line.tokens_seen));
        CHECK(shown.at("memory/max_active(GiB)").at(line.step) == float(line.memory_gib));
    }
    for (const ValidationLine& line : lines.validations)
        CHECK(shown.at("validation_metrics/loss").at(line.step) == float(line.loss));
}

TEST_CASE("TensorBoard shows the metrics of an interrupted run, each step once") {
    const std::string python = python_with("tensorboard");
    if (python.empty())
        return skip("there is no Python with TensorBoard (doc/metrics.md says how to make one)");
    const TemporaryFolder folder;
    const fs::path out = interrupted_run(folder);
    const Shown shown = shown_by_tensorboard(python, out / "tb");
    CHECK(without_mfu(shown).size() == 14 + 6);
    CHECK(shown == shown_scalars(out / "tb"));
}

TEST_CASE("event files: of no rank, of rank 0, of every rank") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto run = [&](const std::string& name, const Arguments& more) {
        train_tiny(folder / name, folder / "tokens.h5", Arguments{steps(2)} + more, 2);
        return folder / name;
    };
    CHECK_FALSE(fs::exists(run("none", {"--metrics.save_for_all_ranks"}) / "tb"));
    const Arguments on = {"--metrics.enable_tensorboard", "--metrics.save_tb_folder=events"};
    CHECK(event_files(run("one", on) / "events").size() == 1);
    const fs::path all = run("all", on + Arguments{"--metrics.save_for_all_ranks"});
    CHECK(event_files(all / "events").empty());
    for (const char* rank : {"rank_0", "rank_1"}) {
        CHECK(event_files(all / "events" / rank).size() == 1);
        CHECK(shown_scalars(all / "events" / rank).at("loss_metrics/global_avg_loss").size() == 2);
    }
}
