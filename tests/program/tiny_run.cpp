// SPDX-License-Identifier: Apache-2.0
#include "program/tiny_run.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/random.hpp"
#include "coeus/file/json.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "support/catch.hpp"

#include <cstddef>
#include <fstream>
#include <set>

namespace coeus::test {

namespace fs = std::filesystem;

void write_token_file(const fs::path& path, const TokenData& data) {
    hdf5::File file = hdf5::File::create(path.string());
    const auto write = [&]<class T>(const char* name, const std::vector<T>& values) {
        if (!values.empty())
            file.create_dataset(name, hdf5::type_of<T>(), {int64_t(values.size())})
                .write(std::span<const T>(values));
    };
    write("tokens", data.tokens);
    write("documents", data.documents);
    write("loss_mask", data.loss_mask);
    file.close();
}

std::vector<uint16_t> learnable_tokens(int64_t count, int vocab) {
    const RandomStream random(7, "tokens");
    std::vector<uint16_t> tokens = {0};
    while (int64_t(tokens.size()) < count) {
        const auto i = tokens.size();
        const bool follows = random.uniform(2 * i) < 0.7;
        tokens.push_back(follows ? uint16_t((3 * tokens.back() + 1) % vocab)
                                 : uint16_t(random.uniform(2 * i + 1) * vocab));
    }
    return tokens;
}

Arguments tiny_run(const fs::path& dump_folder, const fs::path& data, const Arguments& more) {
    Arguments all = {"train",
                     "--job.dump_folder=" + dump_folder.string(),
                     "--training.dataset_path=" + data.string(),
                     "--model.dim=32",
                     "--model.n_layers=2",
                     "--model.n_heads=4",
                     "--model.n_kv_heads=2",
                     "--model.ffn_hidden=48",
                     "--model.vocab_size=64",
                     "--training.seq_len=16",
                     "--training.local_batch_size=4",
                     "--training.steps=6",
                     "--training.threads=1",
                     "--training.shuffle=false",
                     "--training.mixed_precision_param=float32",
                     "--optimizer.lr=1e-2",
                     "--lr_scheduler.warmup_steps=2",
                     "--metrics.log_freq=1"};
    return all + more;
}

Arguments run_from_folder(const fs::path& dump_folder, const fs::path& data, const fs::path& from,
                          const std::string& family, const Arguments& more) {
    return Arguments{"train",
                     "--job.dump_folder=" + dump_folder.string(),
                     "--training.dataset_path=" + data.string(),
                     "--model.name=" + family,
                     "--model.flavor=hf",
                     "--model.hf_assets_path=" + from.string(),
                     "--checkpoint.initial_load_in_hf",
                     "--training.seq_len=16",
                     "--training.local_batch_size=2",
                     "--training.global_batch_size=4",
                     "--training.steps=3",
                     "--training.threads=1",
                     "--training.mixed_precision_param=float32",
                     "--training.shuffle=false",
                     "--metrics.log_freq=1"} +
           more;
}

const Arguments tiny_experts = {"--model.name=qwen3",  "--model.flavor=debugmodel_moe",
                                "--model.head_dim=8",  "--model.moe.num_experts=4",
                                "--model.moe.top_k=2", "--model.moe.hidden=24"};

Outcome train_tiny(const fs::path& dump_folder, const fs::path& data, const Arguments& more, int ranks) {
    Outcome outcome = run_coeus(tiny_run(dump_folder, data, more), ranks);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome;
}

Outcome convert_folder(const fs::path& source, const fs::path& target, const Arguments& more, int ranks) {
    return run_coeus(Arguments{"convert", source.string(), target.string()} + more, ranks);
}

TrainRecord train_record(const fs::path& dump_folder, int64_t step) {
    return read_checkpoint_header((dump_folder / checkpoint_of(step)).string()).train;
}

std::string processes_left(const fs::path& dump_folder, double seconds) {
    // the pattern does not match the shell that searches
    const std::string find = "pgrep -f '[j]ob.dump_folder=" + dump_folder.string() + "( |$)'";
    const Timer timer;
    while (true) {
        const std::string left = run_shell(find).output;
        std::vector<int64_t> processes;
        for (const std::string& line : lines_of(left)) processes.push_back(std::stoll(line));
        if (processes.empty() || !wait_for_ends(processes, seconds - timer.seconds())) return left;
    }
}

std::vector<double> MetricLines::losses() const {
    std::vector<double> all;
    for (const StepLine& line : steps) all.push_back(line.loss);
    return all;
}

MetricLines read_metrics(const fs::path& dump_folder) {
    MetricLines lines;
    std::ifstream in(dump_folder / "metrics.jsonl");
    for (std::string text; std::getline(in, text);) {
        const JsonDocument document = JsonDocument::parse(text, "metrics.jsonl");
        const JsonView line = document.root();
        if (line.contains("event"))
            lines.events.push_back({.step = line.integer("step"),
                                    .event = line.string("event"),
                                    .action = line.string("action"),
                                    .text = text.substr(0, text.find(",\"time\":"))});
        else if (line.contains("validation_loss")) {
            ValidationLine& validation =
                lines.validations.emplace_back(ValidationLine{.step = line.integer("step"),
                                                              .loss = line.number("validation_loss"),
                                                              .tokens = line.integer("validation_tokens")});
            constexpr std::string_view of_source = "validation_loss/";
            for (const auto& [field, value] : line.items())
                if (field.starts_with(of_source) && !value.is_null())
                    validation.losses[std::string(field.substr(of_source.size()))] = value.number();
        } else if (line.contains("checkpoint_step"))
            lines.checkpoints.push_back({.step = line.integer("checkpoint_step"),
                                         .at_step = line.integer("step"),
                                         .seconds = line.number("checkpoint_s"),
                                         .seconds_waited = line.number("checkpoint_stall_s")});
        else if (line.contains("loss"))
            lines.steps.push_back({.step = line.integer("step"),
                                   .loss = line.number("loss"),
                                   .loss_max = line.number("loss_max"),
                                   .grad_norm = line.number("grad_norm"),
                                   .lr = line.number("lr"),
                                   .tokens_seen = line.integer("tokens_seen"),
                                   .epoch = line.number("epoch"),
                                   .memory_gib = line.number("memory_gib"),
                                   .resident_gib = line.number("resident_gib"),
                                   .time = line.number("time", 0),
                                   .run_s = line.number("run_s", 0)});
    }
    return lines;
}

namespace {

std::vector<std::byte> bytes_of(const hdf5::Dataset& array) {
    std::vector<std::byte> bytes(size_t(array.shape().count() * hdf5::size_of(array.type())));
    array.read_elements(bytes.data(), array.type(), 0, array.shape().count());
    return bytes;
}

}  // namespace

std::vector<std::string> differing_arrays(const fs::path& path_a, const fs::path& path_b) {
    const hdf5::File a = hdf5::File::open(path_a.string()), b = hdf5::File::open(path_b.string());
    std::set<std::string> paths;
    for (const hdf5::File* file : {&a, &b})
        for (const std::string& path : file->dataset_paths()) paths.insert(path);
    std::vector<std::string> differing;
    for (const std::string& path : paths) {
        bool same = a.has(path) && b.has(path);
        if (same) {
            const hdf5::Dataset in_a = a.dataset(path), in_b = b.dataset(path);
            same = in_a.type() == in_b.type() && in_a.shape() == in_b.shape() &&
                   bytes_of(in_a) == bytes_of(in_b);
        }
        if (!same) differing.push_back(path);
    }
    return differing;
}

}  // namespace coeus::test
