// SPDX-License-Identifier: Apache-2.0
// model.frozen as a user meets it: what a run says and saves, and resumes with more or fewer frozen
// parameters.
#include "coeus/io/checkpoint.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const Arguments saving = {"--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0",
                          "--training.dtype=float64"},
                frozen = {R"(--model.frozen=tok_embeddings,layers\.0\.,w2)"};

// The paths of the arrays of a kind whose parameter is frozen, or is not.
int64_t arrays(const fs::path& checkpoint, const std::string& kind, bool of_frozen) {
    const CheckpointHeader header = read_checkpoint_header(checkpoint.string());
    return std::ranges::count_if(header.arrays, [&](const CheckpointHeader::Array& array) {
        const std::string& path = array.path;
        const bool is_frozen = path.find("tok_embeddings") != std::string::npos ||
                               path.find("layers.0.") != std::string::npos ||
                               path.find("w2") != std::string::npos;
        return path.starts_with(kind) && is_frozen == of_frozen;
    });
}

// The paths of weights that differ between two checkpoints.
std::vector<std::string> changed_weights(const fs::path& a, const fs::path& b) {
    std::vector<std::string> paths = differing_arrays(a, b);
    std::erase_if(paths, [](const std::string& path) { return path.find("model/") != 0; });
    return paths;
}

}  // namespace

TEST_CASE("program: frozen parameters keep their weights, have no moments, and resume on other ranks") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", run = folder / "run", many = folder / "many";
    write_token_file(data, {.tokens = learnable_tokens(160 * 17)});
    train_tiny(run, data, saving + Arguments{steps(2)});
    const Outcome some = train_tiny(run, data, saving + frozen + Arguments{steps(4)});
    // 9 parameters of a layer, the embedding, and w2 of the other layer; a checkpoint of all resumes
    CHECK_THAT(some.output, Contains("Frozen (model.frozen): 11 of 21 parameters"));
    CHECK_THAT(some.output, Contains("model.frozen was [], is "));
    const fs::path before = run / checkpoint_of(2), after = run / checkpoint_of(4);
    CHECK(arrays(before, "optimizer/", true) == 22);
    CHECK(arrays(after, "optimizer/", true) == 0);
    CHECK(arrays(after, "optimizer/", false) == 20);
    CHECK(arrays(after, "model/", true) == 11);
    const std::vector<std::string> changed = changed_weights(before, after);
    CHECK(changed.size() == 10);
    for (const std::string& path : changed) {
        INFO(path);
        CHECK(path.find("tok_embeddings") == std::string::npos);
        CHECK(path.find("layers.0.") == std::string::npos);
        CHECK(path.find("w2") == std::string::npos);
    }
    // the same on two ranks
    fs::copy(run, many, fs::copy_options::recursive);
    train_tiny(run, data, saving + frozen + Arguments{steps(6)});
    train_tiny(many, data, saving + frozen + Arguments{steps(6), "--training.local_batch_size=2"}, 2);
    const std::vector<double> one = read_metrics(run).losses(), two = read_metrics(many).losses();
    REQUIRE(one.size() == 6);
    REQUIRE(two.size() == 6);
    for (size_t i = 4; i < 6; ++i) CHECK(relatively_close(two[i], one[i], 1e-12));
}

TEST_CASE("program: a run that trains again what was frozen needs its optimizer to begin again") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", run = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(160 * 17)});
    train_tiny(run, data, saving + frozen + Arguments{steps(2)});
    const Outcome refused = run_coeus(tiny_run(run, data, saving + Arguments{steps(4)}));
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.output, Contains("other frozen parameters (model.frozen): it has no "
                                        "optimizer/exp_avg/tok_embeddings.weight, which this run's"));
    const std::string again = "--checkpoint.exclude_from_loading=optimizer,lr_scheduler";
    CHECK_THAT(refused.output, Contains("checkpoint.exclude_from_loading = \"optimizer,lr_scheduler\""));
    train_tiny(run, data, saving + Arguments{steps(4), again});
    CHECK(arrays(run / checkpoint_of(4), "optimizer/", true) == 22);
}

TEST_CASE(
    "program: whether moments are reset is decided by the checkpoint that is loaded, if the newest is "
    "damaged") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", run = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(160 * 17)});
    const std::string again = "--checkpoint.exclude_from_loading=optimizer,lr_scheduler";
    const auto damage_newest = [&] {
        std::fstream file(run / checkpoint_of(4), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(int64_t(fs::file_size(run / checkpoint_of(4))) / 2);
        file.write("damage, damage, damage", 22);
    };
    SECTION("the older one has been reset already") {
        train_tiny(run, data, saving + Arguments{steps(2), again});
        train_tiny(run, data, saving + Arguments{steps(4)});
        const std::vector<double> losses = read_metrics(run).losses();
        damage_newest();
        const Outcome resumed = train_tiny(run, data, saving + Arguments{steps(4), again});
        CHECK_THAT(resumed.output, Contains("checkpoint skipped: "));
        CHECK(read_metrics(run).losses() == losses);  // with the moments of step 2
    }
    SECTION("the newest one has been reset already") {
        train_tiny(run, data, saving + frozen + Arguments{steps(2)});
        train_tiny(run, data, saving + Arguments{steps(4), again});
        const std::vector<double> losses = read_metrics(run).losses();
        damage_newest();
        const Outcome resumed = train_tiny(run, data, saving + Arguments{steps(4), again});
        CHECK_THAT(resumed.output, Contains("checkpoint skipped: "));
        CHECK(read_metrics(run).losses() == losses);
    }
}

TEST_CASE("program: a pattern that freezes nothing is refused, by a dry run too") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(160 * 17)});
    for (const Arguments& more : {Arguments{}, Arguments{"--dry_run"}}) {
        const Outcome refused =
            run_coeus(tiny_run(folder / "run", data, more + Arguments{"--model.frozen=tok_embedings"}));
        CHECK(refused.exit_code == 2);
        CHECK_THAT(refused.output, Contains("model.frozen: \"tok_embedings\" matches no parameter"));
    }
}
