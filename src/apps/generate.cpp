// SPDX-License-Identifier: Apache-2.0
// coeus generate --checkpoint FILE-or-FOLDER --prompt TEXT | --prompts FILE: continues texts with a trained
// model. They are printed to stdout in the order of their prompts. The first text that is not complete yet is
// printed while it grows. The ranks of a mesh divide the work; rank 0 prints and writes files.
#include "generate.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/launcher.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/file/json.hpp"
#include "coeus/generate/prompts.hpp"
#include "coeus/generate/text_writer.hpp"
#include "coeus/models/model_config.hpp"
#include "coeus/observe/start_up.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/pretrained/tokenizer_of.hpp"
#include "coeus/session/rank.hpp"
#include "token_flags.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

namespace coeus::apps {

namespace {

// The flags that are options of a deck: how many ranks divide the work in which way.
struct Degree {
    const char* flag;
    int64_t Config::Parallelism::*value;
};
using Degrees = Config::Parallelism;
constexpr Degree degrees[] = {
    {"parallelism.tensor_parallel_degree", &Degrees::tensor_parallel_degree},
    {"parallelism.pipeline_parallel_degree", &Degrees::pipeline_parallel_degree},
    {"parallelism.expert_parallel_degree", &Degrees::expert_parallel_degree},
    {"parallelism.data_parallel_shard_degree", &Degrees::data_parallel_shard_degree},
    {"parallelism.data_parallel_replicate_degree", &Degrees::data_parallel_replicate_degree},
    {"parallelism.context_parallel_degree", &Degrees::context_parallel_degree}};

Flags generate_flags() {
    Flags flags(
        "generate", "--checkpoint FILE-or-FOLDER [--prompt TEXT | --prompts FILE]", "",
        "Writes text with a trained model, token by token. With several prompts, each text is printed under "
        "a line \"== N\". A text longer than --context continues from its most recent half.\n"
        "On several ranks: mpirun -n RANKS coeus generate ..., with the degrees of a deck. Ranks that srun "
        "starts divide the work if a degree is given; else each writes all texts, and --output is refused.");
    flags.add("checkpoint", "PATH", "", "a checkpoint, a run's folder, or a Hugging Face folder")
        .add("prompt", "TEXT", "", "text to continue; may be empty")
        .add("prompts", "FILE", "",
             "file with one prompt per line, which may end with .gz or .zst; in JSON Lines, the field "
             "\"prompt\" (or \"text\") of each object")
        .add("output", "FILE.jsonl", "",
             "also write one JSON object per text: prompt, text, number of tokens and why it ended")
        .add("tokenizer", "PATH", "",
             "tokenizer (folder or file); default: that of the checkpoint's deck, or of the folder")
        .add("length", "N", "128", "maximum number of tokens of each text")
        .add_list("stop", "TEXT", "end a text before this string; may be repeated")
        .add_switch("ignore_eos", "continue after EOS instead of stopping")
        .add("temperature", "T", "0.8", "sampling temperature; 0: always the most likely token")
        .add("top_k", "K", "0", "sample from the K most likely tokens; 0: from all")
        .add("top_p", "P", "1", "sample from the smallest set of tokens with at least this probability")
        .add("seed", "N", "0", "random seed; the same seed gives the same texts")
        .add("context", "N", "0", "context length in tokens; 0: the sequence length of training")
        .add("batch", "N", "8",
             "number of texts generated at the same time by each rank that has texts of its own, as many as "
             "have room for their keys and values in memory; 16 of them at a time get their next tokens. On "
             "one CPU rank, it does not change the texts")
        .add("dtype", "float32|bfloat16|float64", "float32",
             "type of the weights and of the cache of keys and values; float64: on CPUs only")
        .add("device", "auto|cuda|cpu", "auto", "auto: a GPU if there is one")
        .add("threads", "N", "0", "number of threads of each rank; 0: all cores")
        .add_switch("json", "print one JSON object per text, as --output writes it, and no text")
        .add_switch("stats", "print tokens per second and memory to stderr")
        .add("parallelism.tensor_parallel_degree", "N", "1",
             "number of ranks that split each layer, with its keys and values")
        .add("parallelism.pipeline_parallel_degree", "N", "1",
             "number of ranks that split the model into stages of consecutive layers")
        .add("parallelism.expert_parallel_degree", "N", "1", "number of ranks that divide the experts")
        .add("parallelism.data_parallel_shard_degree", "N", "-1",
             "number of ranks with texts of their own that shard the weights; -1: all that are left")
        .add("parallelism.data_parallel_replicate_degree", "N", "1",
             "number of ranks, or groups of them, with texts and weights of their own")
        .add("parallelism.context_parallel_degree", "N", "1",
             "number of ranks that divide the tokens of prompts, the heads of their keys and values, and the "
             "weights further")
        .add_force();
    return flags;
}

TextWriterOptions writer_options(const Flags& flags) {
    return {.sampling = {.temperature = flags.number("temperature", 0, 100),
                         .top_k = flags.integer("top_k", 0, INT32_MAX),
                         .top_p = flags.number("top_p", 1e-6, 1),
                         .seed = uint64_t(flags.integer("seed", 0, INT64_MAX))},
            .length = flags.integer("length", 1, INT32_MAX),
            .stops = flags.texts("stop"),
            .ignore_eos = flags.given("ignore_eos")};
}

std::vector<Prompt> prompts_of(const Flags& flags) {
    if (!flags.given("prompts")) return {{flags.text("prompt"), 0}};
    if (flags.given("prompt"))
        throw ConfigError(
            "coeus generate: --prompt and --prompts cannot be used together; put the text into the file");
    return read_prompts(flags.text("prompts"));
}

// Ids of the prompts, each after BOS. ConfigError for a prompt that does not fit into the context.
std::vector<std::vector<int32_t>> encode(const std::vector<Prompt>& prompts, const Tokenizer& tokenizer,
                                         int64_t context, int64_t most, const std::string& file) {
    std::vector<std::vector<int32_t>> all;
    for (const Prompt& prompt : prompts) {
        const std::string name =
            prompt.line ? fmt::format("{}, line {}: the prompt", file, prompt.line) : "--prompt";
        std::vector<int32_t> ids = prompt_ids(prompt, tokenizer, name);
        if (int64_t(ids.size()) > context)
            throw ConfigError(
                "{} has {} tokens, but the context has only {}: shorten it, or set --context={}{}", name,
                ids.size(), context, std::min(int64_t(ids.size()), most),
                int64_t(ids.size()) > most ? ", the maximum of this model" : "");
        all.push_back(std::move(ids));
    }
    return all;
}

// Prints and records texts in the order of their prompts.
class Output {
public:
    // `json`: prints what it records instead of text.
    Output(const std::vector<Prompt>& prompts, const std::vector<std::vector<int32_t>>& ids,
           const std::string& file, bool json)
        : prompts_(prompts),
          ids_(ids),
          json_(json),
          waiting_(prompts.size()),
          ends_(prompts.size()),
          file_name_(file) {
        if (file.empty()) return;
        if (const int error = error_of_writing(file); error != 0) refuse(error);
    }
    // Only now is the file made, or emptied: the texts can be written.
    void begin() {
        if (!file_name_.empty()) {
            file_.open(file_name_, std::ios::binary);
            if (!file_) refuse(errno);
        }
        heading();
    }
    void piece(size_t number, const std::string& text) {
        if (number == next_)
            print(text);
        else
            waiting_[number] += text;
    }
    void end(size_t number, const Written& written) {
        ends_[number] = written;
        while (next_ < ends_.size() && ends_[next_]) {
            print("\n");
            const std::string record = record_of(next_);
            if (json_) write(record);
            append(record);
            ends_[next_] = Written{};  // no longer needed
            if (++next_ == ends_.size()) break;
            heading();
            print(std::exchange(waiting_[next_], {}));
        }
    }

private:
    // 0 if a file can be written, as far as that can be seen without a change of it.
    static int error_of_writing(const std::string& file) {
        if (is_folder_patiently(file)) return EISDIR;
        const std::string place =
            exists_patiently(file) ? file : std::filesystem::absolute(file).parent_path().string();
        return access(place.c_str(), W_OK) == 0 ? 0 : errno;
    }
    [[noreturn]] void refuse(int error) const {
        throw ConfigError("--output {}: cannot write: {}", file_name_, errno_text(error));
    }
    void heading() {
        if (prompts_.size() > 1) print(fmt::format("== {}\n", next_ + 1));
        print(prompts_[next_].text);
    }
    std::string record_of(size_t number) const {
        const Written& written = *ends_[number];
        return Json::object()
                   .set("prompt", prompts_[number].text)
                   .set("text", written.text)
                   .set("finish", written.finish)
                   .set("prompt_tokens", ids_[number].size())
                   .set("tokens", written.ids.size())
                   .text() +
               '\n';
    }
    void append(const std::string& record) {
        if (!file_.is_open()) return;
        file_ << record;
        if (!file_.flush())
            throw SystemError(fmt::format("cannot write {}: {}", file_name_, errno_text(errno)));
    }
    void print(const std::string& text) {
        if (!json_) write(text);
    }
    // a model's text must not control a terminal
    static void write(const std::string& written) {
        static const bool on_terminal = log::is_terminal(STDOUT_FILENO);
        const std::string text = on_terminal ? printable_lines(written) : written;
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }
    const std::vector<Prompt>& prompts_;
    const std::vector<std::vector<int32_t>>& ids_;
    bool json_;
    std::vector<std::string> waiting_;
    std::vector<std::optional<Written>> ends_;
    size_t next_ = 0;
    std::string file_name_;
    std::ofstream file_;
};

// What is written, and with which model: the same on all ranks. Only rank 0 reads the prompts, which may come
// from a pipe.
struct Order {
    Order(const Flags& flags, const Communicator& ranks);

    Pretrained source;
    Tokenizer tokenizer;
    int64_t context;
    std::vector<Prompt> prompts;
    std::vector<std::vector<int32_t>> ids;
    std::optional<Output> output;  // of rank 0
};

// An error of one rank alone keeps its type.
void on_rank_0(const Communicator& ranks, const std::function<void()>& work) {
    ranks.size() == 1 ? work() : on_first_rank(ranks, work);
}

Pretrained weights_for(const Flags& flags, const Communicator& ranks) {
    const std::string& path = flags.required("checkpoint");
    return ranks.size() == 1 ? Pretrained(path) : Pretrained(path, ranks);
}

int64_t context_for(const Flags& flags, const Pretrained& source) {
    const int64_t chosen = flags.integer("context", 0, source.model().max_seq_len);
    return chosen > 0 ? chosen : source.trained_seq_len();
}

std::vector<Prompt> prompts_on_all(const Flags& flags, const Communicator& ranks) {
    std::vector<Prompt> prompts;
    on_rank_0(ranks, [&] { prompts = prompts_of(flags); });
    std::vector<std::string> texts;
    for (const Prompt& prompt : prompts) {
        texts.push_back(prompt.text);
        texts.push_back(std::to_string(prompt.line));
    }
    texts = broadcast_texts(ranks, texts);
    prompts.clear();
    for (size_t i = 0; i < texts.size(); i += 2) prompts.push_back({texts[i], std::stoll(texts[i + 1])});
    return prompts;
}

Order::Order(const Flags& flags, const Communicator& ranks)
    : source(weights_for(flags, ranks)),
      tokenizer(tokenizer_of(source, flags.text("tokenizer"))),
      context(context_for(flags, source)),
      prompts(prompts_on_all(flags, ranks)),
      ids(encode(prompts, tokenizer, context, source.model().max_seq_len, flags.text("prompts"))) {
    on_rank_0(ranks, [&] {
        const std::string& file = flags.text("output");
        flags.require_not_read("--output", file, {source.path()});  // the newest weights of a run's folder
        flags.require_not_read("--output", file, files_of_tokenizer(tokenizer.folder()));
        output.emplace(prompts, ids, file, flags.given("json"));
    });
}

Dtype generated_type(const Flags& flags) {
    const std::string& name = flags.choice("dtype", {"float32", "bfloat16", "float64"});
    if (name == "float64" && flags.text("device") == "cuda")
        throw ConfigError("--dtype=float64: works only on CPUs; set --device=cpu, or --dtype=float32");
    return name == "float64" ? Dtype::f64 : name == "bfloat16" ? Dtype::bf16 : Dtype::f32;
}

// The flags as options of a deck, for what chooses the device and the mesh of a rank.
Config config_of(const Flags& flags) {
    Config config;
    config.device = flags.choice("device", {"auto", "cuda", "cpu"});
    config.training.dtype = flags.text("dtype");
    config.training.threads = flags.integer("threads", 0, most_threads);
    for (const Degree& degree : degrees) {
        const bool may_be_open = config.parallelism.*degree.value < 0;
        config.parallelism.*degree.value = flags.integer(degree.flag, may_be_open ? -1 : 1, 65536);
    }
    return config;
}

void require_divides(const DecoderConfig& model, const MeshShape& mesh) {
    const std::string why = ModelConfig(model)->refusal(
        {.tensor = mesh.tp, .context = mesh.cp, .expert = mesh.ep, .context_by_heads = true});
    if (!why.empty()) throw ConfigError("{}", why);
}

// Before the queues that NCCL's operations wait in, also after an error.
struct NcclEnding {
    std::optional<NcclWorld>& nccl;
    ~NcclEnding() { nccl.reset(); }
};

void write(const Flags& flags, Order& order, const GeneratorPlace& place, std::optional<NcclWorld>& nccl) {
    const int64_t batch = flags.integer("batch", 1),
                  shared = div_ceil(int64_t(order.prompts.size()), place.mesh.size(axis::dp));
    Generator generator(order.source.model(), generated_type(flags), order.context, std::min(batch, shared),
                        place);
    const NcclEnding ending{nccl};
    if (nccl) nccl->end_connecting();
    TextWriter writer(generator, order.tokenizer, writer_options(flags));
    order.source.load(generator.decoder(), place.mesh.world());
    generator.weights_changed();

    const Timer timer;
    size_t tokens = 0;
    std::optional<Output>& output = order.output;
    on_rank_0(place.mesh.world(), [&] { output->begin(); });
    writer.write(
        order.ids,
        [&](size_t number, const std::string& text) {
            if (output) output->piece(number, text);
        },
        [&](size_t number, const Written& written) {
            tokens += written.ids.size();
            if (output) output->end(number, written);
        });
    if (output && flags.given("stats"))
        fmt::print(stderr, "{} tokens in {:.3f} s, {:.1f} tokens/s, on {}{}\n{}\n", tokens, timer.seconds(),
                   double(tokens) / timer.seconds(), place.device.name(),
                   place.mesh.world().size() > 1 ? ", " + place.mesh.shape().text() : "",
                   generator.plan().text(place.memory_bytes));
}

void write_alone(const Flags& flags, const Config& config) {
    Order order(flags, alone());
    const bool needs_cpu = generated_type(flags) == Dtype::f64;
    const LoneRank rank(needs_cpu ? "cpu" : config.device, int(config.training.threads));
    std::optional<NcclWorld> none;
    write(flags, order,
          {.threads = rank.threads(), .device = rank.device(), .memory_bytes = rank.device().memory_bytes()},
          none);
}

void write_on_ranks(const Flags& flags, const Config& config, const MpiRuntime& mpi) {
    StartUp start_up;
    mpi.require_all_tasks();
    Rank rank(config, mpi, start_up);
    if (rank.is_first())
        for (const std::vector<std::string>& warnings :
             {rank.choice().warnings(), rank.choice().transport().warnings})
            for (const std::string& line : warnings) log::warn("{}", line);
    Order order(flags, rank.world());
    require_divides(order.source.model(), rank.mesh().shape());
    apply(rank.cpu());
    const RankTransport& transport = rank.choice().transport();
    const int communicators = carrying_communicators(rank.mesh().shape());
    std::optional<NcclWorld> nccl;
    if (transport.nccl) connect_by_nccl(nccl, rank, nullptr);
    write(flags, order,
          {.threads = rank.cpu().threads,
           .device = rank.device(),
           .mesh = rank.mesh(),
           .memory_bytes = rank.memory_bytes(),
           .nccl_bytes = nccl ? nccl_bytes(communicators, transport.nvls) : 0},
          nccl);
}

bool has_degree(const Flags& flags) {
    return std::ranges::any_of(degrees, [&](const Degree& degree) { return flags.given(degree.flag); });
}

// Without a degree, each of srun's tasks writes all texts, and so would empty and fill the same file.
void require_one_writer(const Flags& flags) {
    const char* number = std::getenv("SLURM_STEP_NUM_TASKS");
    const int tasks = number ? std::atoi(number) : 1;
    if (tasks <= 1 || !flags.given("output")) return;
    throw ConfigError(
        "--output {}: srun started {} tasks, and each would write all texts into this file; let them divide "
        "the texts with --parallelism.data_parallel_shard_degree={}, or start one with srun -n 1",
        flags.text("output"), tasks, tasks);
}

}  // namespace

int generate(const Arguments& arguments) {
    std::optional<MpiRuntime> mpi;  // before the first error, which only rank 0 reports
    const auto start_mpi = [&] {
        mpi.emplace(nullptr, nullptr);
        log::init({.rank = mpi->world_rank()});
    };
    if (is_one_of_mpiruns()) start_mpi();
    Flags flags = generate_flags();
    flags.parse(arguments);
    writer_options(flags);
    generated_type(flags);
    const Config config = config_of(flags);
    flags.require_different_files("prompts", "output");
    if (flags.given("output")) {
        const std::string& output = flags.text("output");
        flags.require_not_read("--output", output, {flags.text("checkpoint")});
        flags.require_not_read("--output", output, files_of_tokenizer(flags.text("tokenizer")));
        flags.require_replaceable(output);
    }
    if (!mpi && !has_degree(flags)) require_one_writer(flags);
    if (!mpi && has_degree(flags)) start_mpi();
    if (mpi)
        write_on_ranks(flags, config, *mpi);
    else
        write_alone(flags, config);
    return 0;
}

Flags generate_help() {
    return generate_flags();
}

}  // namespace coeus::apps
