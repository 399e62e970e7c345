// SPDX-License-Identifier: Apache-2.0
// coeus convert SOURCE TARGET: a checkpoint to a Hugging Face folder, such a folder to a checkpoint, a
// checkpoint to one of another type or without its optimizer. Under mpirun the ranks share the arrays.
#include "convert.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/train/flags.hpp"
#include "coeus/train/model_setup.hpp"
#include "coeus/train/pretrained.hpp"

#include <filesystem>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

Flags convert_flags() {
    Flags flags(
        "convert", "SOURCE TARGET [--dtype TYPE]", "source and target",
        "SOURCE: a checkpoint, a run's folder (its newest weights) or a Hugging Face folder. TARGET: a "
        "checkpoint\n"
        "(a name that ends with .h5) or the Hugging Face folder that is to be made. Arrays pass by a "
        "few rows at a\n"
        "time; under mpirun the ranks share them.");
    flags.add("dtype", "TYPE", "", "float32, bfloat16 or float16; default: as in SOURCE")
        .add("only", "model", "", "from checkpoint to checkpoint: leave the optimizer out")
        .add("tokenizer", "PLACE", "", "folder or file: it goes into the folder; default: the run's own")
        .add("max_shard_size", "SIZE", "5GB", "of a folder's files of weights, as 500MB or 2GiB");
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

struct Conversion {
    const Pretrained& source;
    std::string target;
    std::optional<Dtype> dtype;
    bool to_hub, moments;
    std::string tokenizer;
    int64_t file_bytes;
};

ArraySource arrays_of(const Conversion& c) {
    return c.source.is_hub() ? arrays_of_hub(c.source.path(), checkpoint_paths(c.source.model()),
                                             hub_tensors(c.source.model()))
                             : arrays_of_checkpoint(c.source.path(), c.moments);
}

TrainRecord record_of(const Conversion& c) {
    if (!c.source.is_hub()) return read_checkpoint_header(c.source.path()).train;
    return {.version = version(), .model = describe_model(c.source.model())};
}

void to_hub(const Conversion& c, const ArraySource& source, const Communicator& ranks,
            const ConversionProgress& progress) {
    std::vector<std::string> paths;
    std::vector<Shape> shapes;
    for (const ArraySource::Array& array : source.arrays) {
        paths.push_back(array.path);
        shapes.push_back(array.shape);
    }
    const HubTokenizer tokenizer = ranks.rank() == 0 ? hub_tokenizer(c.tokenizer) : HubTokenizer();
    HubWriter writer(c.target, hub_config_of(c.source.model()), hub_entries(paths, shapes, c.source.model()),
                     c.dtype.value_or(source.arrays.front().dtype), tokenizer, ranks, c.file_bytes);
    write_hub(writer, source, ranks, progress);
}

void check(const Flags& flags, bool to_hub, bool from_hub) {
    if (flags.given("only") && flags.text("only") != "model")
        throw ConfigError("--only {}: must be model", flags.text("only"));
    if (flags.given("only") && (to_hub || from_hub))
        throw ConfigError("--only model: a Hugging Face folder holds nothing else; leave it out");
    if (flags.given("tokenizer") && !to_hub)
        throw ConfigError("--tokenizer: a checkpoint holds no tokenizer; leave it out");
    if (flags.given("tokenizer") && !Tokenizer::is_at(flags.text("tokenizer")))
        throw ConfigError("--tokenizer {}: there is no tokenizer", flags.text("tokenizer"));
    if (flags.given("max_shard_size") && !to_hub)
        throw ConfigError("--max_shard_size: a checkpoint is one file; leave it out");
    if (to_hub && from_hub)
        throw ConfigError(
            "SOURCE and TARGET are both Hugging Face folders; name a TARGET that ends with .h5");
}

}  // namespace

void convert_help() {
    convert_flags().print_help();
}

int convert(const Arguments& arguments) {
    Flags flags = convert_flags();
    flags.parse(arguments);
    if (flags.words().size() != 2)
        throw ConfigError("coeus convert needs a source and a target; see coeus help convert");
    const MpiRuntime mpi(nullptr, nullptr);
    log::init({.rank = mpi.world_rank()});
    const Communicator world = Communicator::world("world");
    const Pretrained source(flags.words()[0]);
    const std::string& target = flags.words()[1];
    const bool is_file = fs::path(target).extension() == ".h5";
    check(flags, !is_file, source.is_hub());
    std::error_code status;
    on_first_rank(world, [&] {
        if (fs::exists(target, status))
            throw ConfigError("{} is there already; name another target, or move it away", target);
    });
    const Conversion conversion = {
        .source = source,
        .target = target,
        .dtype = dtype_of(flags),
        .to_hub = !is_file,
        .moments = is_file && !flags.given("only"),
        .tokenizer = flags.given("tokenizer") ? flags.text("tokenizer") : source.tokenizer_folder(),
        .file_bytes = file_bytes_of(flags)};
    const ArraySource arrays = arrays_of(conversion);
    const Timer timer;
    {
        std::optional<Progress> bar;
        if (world.rank() == 0) bar.emplace("converting", arrays.bytes() / world.size(), true);
        const auto progress = [&](int64_t bytes) {
            if (bar) bar->update(bytes);
        };
        if (conversion.to_hub)
            to_hub(conversion, arrays, world, progress);
        else
            write_checkpoint(target, record_of(conversion), arrays, conversion.dtype, world, progress);
    }
    const int64_t memory = world.all_reduce(peak_resident_bytes(), Reduce::max);
    if (world.rank() == 0)
        log::info("{}: {} arrays, {} read, in {:.2f} s, with {} of memory at most{}", target,
                  arrays.arrays.size(), bytes_text(double(arrays.bytes())), timer.seconds(),
                  bytes_text(double(memory)), world.size() > 1 ? " on each rank" : "");
    return 0;
}

}  // namespace coeus::apps
