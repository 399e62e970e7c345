// SPDX-License-Identifier: Apache-2.0
// coeus convert SOURCE TARGET converts a checkpoint to a Hugging Face folder and back, a checkpoint to
// another type or without its optimizer, and torchtitan's checkpoint to either. Under mpirun, the arrays are
// divided among the ranks.
#include "convert.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/dcp.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "coeus/pretrained/titan_checkpoint.hpp"
#include "convert_tokens.hpp"
#include "token_flags.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

Flags convert_flags() {
    Flags flags(
        "convert", "SOURCE TARGET [--dtype TYPE]", "source and target",
        "Converts between checkpoints and Hugging Face folders, and between token files.\n"
        "SOURCE: a checkpoint, a run's folder (its newest weights), a Hugging Face folder, or, with "
        "--deck, the folder of one step of torchtitan (a distributed checkpoint of PyTorch).\n"
        "TARGET: a checkpoint (a name that ends with .h5), or a Hugging Face folder to be created.\n"
        "If SOURCE is a token file (of `coeus tokenize`, Megatron-LM, llm.c or NumPy), TARGET is one too: a "
        "name that ends with .h5, or with .idx for a pair of Megatron-LM.\n"
        "Arrays are converted a few rows at a time, so that little memory is needed. Under mpirun, "
        "they are divided among the ranks.");
    flags
        .add("dtype", "TYPE", "",
             "float32, bfloat16 or float16; default: the types of SOURCE. All arrays of a Hugging Face "
             "folder have one type. Biases that balance experts stay in float32")
        .add_switch("without_biases",
                    "to a Hugging Face folder that has no place for the biases that balance experts: leave "
                    "them out, though its routers will choose other experts")
        .add("only", "model", "", "from checkpoint to checkpoint: leave out the optimizer state")
        .add("deck", "FILE.toml", "", "deck of the torchtitan run; its checkpoints do not describe the model")
        .add("tokenizer", "PLACE", "",
             "tokenizer (folder or file) to copy into TARGET; default: the run's own; for a token file, the "
             "one that "
             "made it, whose hash TARGET gets")
        .add("max_shard_size", "SIZE", "5GB",
             "maximum size of each weights file in a Hugging Face folder, such as 500MB or 2GiB")
        .add_force();
    add_separator_flags(flags);
    return flags;
}

int64_t file_bytes_of(const Flags& flags) {
    const std::string& size = flags.text("max_shard_size");
    if (const std::optional<int64_t> bytes = parse_bytes(size)) return *bytes;
    throw ConfigError("--max_shard_size {}: must be a size of at least one byte, such as 5GB, 500MB or 2GiB",
                      size);
}

std::optional<Dtype> dtype_of(const Flags& flags) {
    if (!flags.given("dtype")) return std::nullopt;
    const std::string& name = flags.text("dtype");
    if (name == "float32") return Dtype::f32;
    if (name == "bfloat16") return Dtype::bf16;
    if (name == "float16") return Dtype::f16;
    throw ConfigError("--dtype {}: must be float32, bfloat16 or float16", name);
}

/// A type that represents all arrays exactly.
Dtype common_type(const ArraySource& source) {
    std::optional<Dtype> common;
    for (const ArraySource::Array& array : source.arrays) {
        if (array.is_exact && array.dtype == Dtype::f32) continue;  // these do not need a wider folder
        const Dtype before = common.value_or(array.dtype);
        common = array.dtype == before                               ? before
                 : array.dtype == Dtype::f64 || before == Dtype::f64 ? Dtype::f64
                                                                     : Dtype::f32;
    }
    return common.value_or(Dtype::f32);
}

/// The weights to be converted, from any kind of source.
struct Source {
    DecoderConfig model;
    TrainRecord record;
    ArraySource arrays;
    std::string path, tokenizer;
};

Source open_titan(const std::string& path, const Flags& flags, bool weights_only) {
    if (!flags.given("deck"))
        throw ConfigError(
            "{} is a distributed checkpoint of PyTorch, which does not describe its model: give the deck of "
            "its run with --deck FILE.toml",
            path);
    const Config deck = parse_command_line({flags.text("deck"), "--dry_run"}).config;
    TitanCheckpoint titan = read_titan_checkpoint(path, deck, weights_only);
    const std::set<std::string> exact = exact_paths(titan.model);
    for (ArraySource::Array& array : titan.arrays.arrays) array.is_exact = exact.contains(array.path);
    return {.model = titan.model,
            .record = std::move(titan.record),
            .arrays = std::move(titan.arrays),
            .path = path,
            .tokenizer = deck.model.tokenizer()};
}

// ConfigError for torchtitan's folder of all steps: one step must be chosen.
void expect_step_of_titan(const fs::path& path) {
    std::error_code status;
    for (const fs::path& entry : entries_patiently(path, status))
        if (DcpFolder::is_at(entry.string()))
            throw ConfigError(
                "{} contains several distributed checkpoints of PyTorch: give one of them, such as {}",
                path.string(), entry.string());
}

Source open_source(const std::string& path, const Flags& flags, bool weights_only,
                   const Communicator& ranks) {
    if (DcpFolder::is_at(path)) return open_titan(path, flags, weights_only);
    if (flags.given("deck")) throw ConfigError("--deck: {} describes its model itself; remove --deck", path);
    expect_step_of_titan(path);
    const Pretrained known(path, ranks);
    Source source{.model = known.model(),
                  .record = {},
                  .arrays = {},
                  .path = known.path(),
                  .tokenizer = known.tokenizer_folder()};
    if (known.is_hub()) {
        source.record = {.version = version(), .model = describe_model(known.model())};
    } else {
        source.record = read_checkpoint_header(known.path()).train;
    }
    source.arrays = known.arrays(!weights_only, ranks);
    return source;
}

// ConfigError if a folder has no place for an array that is not zero.
void require_place(const ArraySource& source, const std::vector<HubEntry>& entries) {
    for (size_t i = 0; i < entries.size(); ++i) {
        if (!entries[i].places.empty()) continue;
        const ArraySource::Array& array = source.arrays[i];
        std::vector<std::byte> memory(size_t(array.shape.count() * size_of(array.dtype)));
        const int64_t step = ArraySource::rows_at_a_time(array.shape), cols = array.shape.cols();
        for (int64_t row = 0; row < array.shape.rows(); row += step)
            source.read(i,
                        Tensor(memory.data() + row * cols * size_of(array.dtype), array.dtype,
                               {std::min(step, array.shape.rows() - row), cols}),
                        row);
        std::vector<double> values(size_t(array.shape.count()));
        convert_elements(values.data(), Dtype::f64, memory.data(), array.dtype, array.shape.count());
        if (std::ranges::any_of(values, [](double value) { return value != 0; }))
            throw ConfigError(
                "{}: this Hugging Face folder has no place for these biases, which balance the experts and "
                "are not zero: without them its routers would choose other experts. Train with "
                "model.moe.load_balance_coeff = 0, or add --without_biases to leave them out",
                array.path);
    }
}

void to_hub(const Source& source, const std::string& target, const Flags& flags, const Communicator& ranks,
            const ConversionProgress& progress) {
    std::vector<std::string> paths;
    std::vector<Shape> shapes;
    for (const ArraySource::Array& array : source.arrays.arrays) {
        paths.push_back(array.path);
        shapes.push_back(array.shape);
    }
    const std::string& place = flags.given("tokenizer") ? flags.text("tokenizer") : source.tokenizer;
    std::vector<HubEntry> entries = hub_entries(paths, shapes, source.model);
    if (!flags.given("without_biases")) on_first_rank(ranks, [&] { require_place(source.arrays, entries); });
    Json config = hub_config_of(source.model);
    if (flags.given("force")) on_first_rank(ranks, [&] { fs::remove_all(target); });
    HubWriter writer(target, std::move(config), std::move(entries),
                     dtype_of(flags).value_or(common_type(source.arrays)),
                     ranks.rank() == 0 ? hub_tokenizer(place) : HubTokenizer(), ranks, file_bytes_of(flags));
    write_hub(writer, source.arrays, ranks, progress);
}

// Refuses to make a folder whose name looks like a file of another program.
void check_ending(const std::string& target) {
    const std::string ending = fs::path(target).extension().string();
    std::string lower = ending;
    for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
    for (const char* foreign : {".bin", ".ckpt", ".ggml", ".gguf", ".hdf5", ".json", ".npy", ".npz", ".onnx",
                                ".pkl", ".pt", ".pth", ".safetensors", ".tar", ".toml", ".zip"})
        if (lower == foreign)
            throw ConfigError(
                "TARGET {}: coeus convert does not write {} files; it writes a checkpoint (a name that ends "
                "with .h5) or a Hugging Face folder (a name without such an ending)",
                target, ending);
}

// --force replaces a checkpoint by a checkpoint, and a Hugging Face folder by such a folder, but nothing
// else.
void check_replaceable(const Flags& flags, const std::string& target) {
    flags.require_replaceable(target);
    const bool is_file = fs::path(target).extension() == ".h5";
    const auto is_empty = [&] { return is_folder_patiently(target) && entries_patiently(target).empty(); };
    if (is_file ? is_folder_patiently(target)
                : exists_patiently(target) && !(is_hub_folder(target) || is_empty()))
        throw ConfigError(
            "{} already exists and is not a {}: --force does not replace it; choose another TARGET", target,
            is_file ? "file" : "Hugging Face folder");
}

void check(const Flags& flags, bool to_hub, bool from_hub) {
    if (flags.given("only") && flags.text("only") != "model")
        throw ConfigError("--only {}: must be model", flags.text("only"));
    if (flags.given("only") && (to_hub || from_hub))
        throw ConfigError("--only model: a Hugging Face folder contains only a model; remove --only");
    if (flags.given("without_biases") && !to_hub)
        throw ConfigError("--without_biases: a checkpoint has a place for biases; remove --without_biases");
    if (flags.given("tokenizer") && !to_hub)
        throw ConfigError("--tokenizer: a checkpoint does not contain a tokenizer; remove --tokenizer");
    if (flags.given("tokenizer") && !Tokenizer::is_at(flags.text("tokenizer")))
        throw ConfigError("--tokenizer {}: there is no tokenizer at this path", flags.text("tokenizer"));
    if (flags.given("max_shard_size") && !to_hub)
        throw ConfigError("--max_shard_size: a checkpoint is one file; remove --max_shard_size");
    dtype_of(flags);
    file_bytes_of(flags);
    if (to_hub && from_hub)
        throw ConfigError(
            "SOURCE and TARGET are both Hugging Face folders; choose a TARGET that ends with .h5");
}

// Adam's second moments are squares of gradients, far below the smallest number of float16.
void check_range(const Flags& flags, const ArraySource& arrays) {
    if (dtype_of(flags) != Dtype::f16) return;
    for (const ArraySource::Array& array : arrays.arrays)
        if (array.path.starts_with("optimizer/"))
            throw ConfigError(
                "--dtype float16: the optimizer's moments do not fit into its range, so that a run could not "
                "resume from them; add --only model, or use bfloat16");
}

}  // namespace

Flags convert_help() {
    return convert_flags();
}

int convert(const Arguments& arguments) {
    Flags flags = convert_flags();
    flags.parse(arguments);
    if (flags.words().size() != 2)
        throw ConfigError("coeus convert needs a source and a target; see coeus help convert");
    const MpiRuntime mpi(nullptr, nullptr);
    log::init({.rank = mpi.world_rank()});
    const Communicator world = Communicator::world("world");
    const std::string &path = flags.words()[0], &target = flags.words()[1];
    if (is_source_of_tokens(path)) return on_first_rank(world, [&] { convert_tokens(flags); }), 0;
    for (const char* name : {"bos_id", "eos_id"})
        if (flags.given(name)) throw ConfigError("--{}: is for token files, and {} is not one", name, path);
    const bool is_file = fs::path(target).extension() == ".h5";
    check_ending(target);
    check(flags, !is_file, is_hub_folder(path));
    on_first_rank(world, [&] {
        check_replaceable(flags, target);
        flags.require_not_read("TARGET", target, {path, flags.text("deck")});
        flags.require_not_read("TARGET", target, files_of_tokenizer(flags.text("tokenizer")));
    });
    const Source source = open_source(path, flags, !is_file || flags.given("only"), world);
    on_first_rank(world, [&] {
        flags.require_not_read("TARGET", target, {source.path});
        if (!is_file) flags.require_not_read("TARGET", target, files_of_tokenizer(source.tokenizer));
    });
    check_range(flags, source.arrays);
    const Timer timer;
    {
        std::optional<ProgressBar> bar;
        if (world.rank() == 0) bar.emplace("converting", source.arrays.bytes() / world.size(), true);
        const auto progress = [&](int64_t bytes) {
            if (bar) bar->update(bytes);
        };
        if (is_file)
            write_checkpoint(target, source.record, source.arrays, dtype_of(flags), world, progress);
        else
            to_hub(source, target, flags, world, progress);
    }
    const int64_t memory = world.all_reduce(peak_resident_bytes(), Reduce::max);
    if (world.rank() == 0)
        log::info("Wrote {}: {} arrays in {:.2f} s ({} read, peak memory {}{})", target,
                  source.arrays.arrays.size(), timer.seconds(), bytes_text(double(source.arrays.bytes())),
                  bytes_text(double(memory)), world.size() > 1 ? " per rank" : "");
    return 0;
}

}  // namespace coeus::apps
