// SPDX-License-Identifier: Apache-2.0
// What each kernel moves through global memory, and how often it passes through the banks of shared memory,
// against the limits in tests/gpu/traffic.txt. `test_traffic "[table]"` writes such a file, with what it
// measures, into the current folder.
#include "coeus/state/step_state.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/memory_counter.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"
#include "unit/cuda/pretended_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using coeus::emulation::MemoryCounter;
using coeus::emulation::MemoryCounts;

namespace {

struct TypedCase {
    KernelCase of;
    Dtype type = Dtype::bf16;
    int architecture = 90;
    std::optional<ExpertsKernel> experts = {};  ///< see ProductOptions
    bool library_scales = true;                 ///< cuBLASLt multiplies by vectors of scales
    std::string name() const {
        std::string text = of.name + ", " + name_of(type);
        if (experts) text += fmt::format(", by {}", coeus::name_of(*experts));
        if (architecture != 90) text += fmt::format(", sm_{}", architecture);
        if (!library_scales) text += ", cuBLASLt without vectors of scales";
        return text;
    }
};

constexpr Role input = Role::input, update = Role::update;
constexpr Kind compute = Kind::compute, acc = Kind::acc;

/// The case with rows that begin at multiples of 16 bytes.
KernelCase aligned(KernelCase c) {
    for (Argument& a : c.arguments) a.offset = a.padding = 0;
    return c;
}

KernelCase named(const std::string& name) {
    static const std::vector<KernelCase> all = test_cases();
    const auto found = std::ranges::find(all, name, &KernelCase::name);
    if (found == all.end()) throw std::runtime_error("there is no test case \"" + name + "\"");
    return *found;
}

/// Entries that no other list has: sums over all gradients, and what is done to scalars.
std::vector<KernelCase> cases_of_scalars() {
    const std::vector<Argument> arguments = {{"sum", update, Kind::count, {1}, 1},
                                             {"a", input, acc, {128, 256}}};
    const auto number = [](const Operands& o) { return reinterpret_cast<double*>(o[0].as<int64_t>()); };
    return {{"sum 128x256", arguments,
             [=](const Kernels& k, Exec& e, const Operands& o) { k.sum(e, number(o), o[1]); }},
            {"sum_of_squares 128x256", arguments,
             [=](const Kernels& k, Exec& e, const Operands& o) { k.sum_of_squares(e, number(o), o[1]); }},
            {"finish_norm", {}, [](const Kernels& k, Exec& e, const Operands&) {
                 StepState state(*e.device);
                 state.stage(StepScalars());
                 state.bring(e);
                 k.finish_norm(e, state.scalars(), 1);
                 e.queue->finish();
             }}};
}

/// One small shape for each kernel, in the sizes and layouts of training.
std::vector<TypedCase> traffic_cases() {
    std::vector<TypedCase> list;
    for (KernelCase& c : step_cases({.tokens = 128,
                         .sequence = 128,
                         .width = 256,
                         .heads = 4,
                         .kv_heads = 2,
                         .feed_forward = 512,
                         .vocabulary = 1024}))
        if (!c.name.starts_with("gemm")) list.push_back({std::move(c)});
    const AttentionShape f32 = {1, 64, 2, 1, 64, 0.125}, wide = {1, 64, 2, 1, 192, 0.07, {}, {}, 128};
    for (const bool backward : {false, true}) {
        list.push_back({attention_case(f32, false, backward), Dtype::f32});
        list.push_back({attention_case(wide, false, backward)});
        list.push_back({attention_sink_case(64, 4, 64, backward)});
        list.push_back({latent_keys_case(64, {4, 64, 32, 64}, backward)});
    }
    for (const int64_t rows : {5, 64})  // few rows, and many
        list.push_back({gemm_case(rows, 256, 512, false, true, Residual::none)});
    const AttentionShape not_by_wgmma = {1, 64, 2, 1, 96, 0.1};
    list.push_back({attention_case(not_by_wgmma, false, true)});
    list.push_back({merge_attention_case({1, 64, 4, 2, 64, 0.125}, false)});
    list.push_back({attention_cached_case({4, 64, 4, 2, 64, 0.125}, 4)});
    list.push_back({add_log_sum_exp_case(4, 128)});
    list.push_back({largest_of_rows_case(64, 512)});
    list.push_back({rms_norm_backward_case(2048, 64, Plus::none)});
    list.push_back({embedding_backward_case(512, 64, 32)});
    list.push_back({adam_case(32768, true, false)});
    list.push_back({adam_case(32768, true, true), Dtype::f32});
    list.push_back({momentum_case(32768, true)});
    list.push_back({descend_case(32768, true)});
    for (KernelCase& c : grouped_product_cases(2, 64, 128, 64)) list.push_back({std::move(c)});
    for (const ExpertsKernel kernel : experts_kernels)
        for (KernelCase& c : grouped_product_cases(2, 128, 128, 256))
            list.push_back({.of = std::move(c), .experts = kernel});
    list.push_back({scaled_gemm_case({.m = 64, .n = 64, .k = 64}, Residual::none, false)});
    const ScaledShape transposed = {64, 128, 128, true, false}, odd = {64, 128, 72},
                      outer = {64, 128, 128, false, true, Along::outer, Along::one},
                      blocks = {64, 128, 128, false, true, Along::blocks, Along::blocks};
    for (const ScaledShape& shape : {transposed, odd, outer})
        list.push_back({scaled_gemm_case(shape, Residual::none, false)});
    list.push_back({.of = scaled_gemm_case(outer, Residual::other, false), .library_scales = false});
    list.push_back({.of = scaled_gemm_case(blocks, Residual::none, false), .architecture = 100});
    for (const char* name : {"normalize 20000",
                             "scaled_sum 20000",
                             "scale_rows [64, 256]",
                             "add_bias [64, 256]",
                             "add_bias_backward [64, 256]",
                             "balance_experts 64",
                             "balance_sequences 24 x 40 softmax",
                             "count_by_sequence 1300 x 2 of 3, 700 from 0",
                             "route 37 x 8 of 64 softmax 3 of 8 groups biased",
                             "route_backward 37 x 8 of 64 softmax 3 of 8 groups",
                             "group_by_expert 130 x 2 of 3",
                             "gather_rows 130 x 2 of 3",
                             "sum_rows 130 x 2 of 3",
                             "add_group_bias scaled 130 x 2 of 3",
                             "add_group_bias_backward scaled 130 x 2 of 3",
                             "gate 130 x 2 of 3",
                             "gate clamped 130 x 2 of 3",
                             "gate_backward scaled 130 x 2 of 3",
                             "gate_backward scaled clamped 130 x 2 of 3",
                             "gather_rows 300 x 2 of 3",
                             "units_of_rows 700 x 6 of 64, 8 of each rank, 16 parts, counted",
                             "choices_of_rows 700 x 6 of 64, 8 of each rank, 16 parts",
                             "rows_in_blocks of 40, 40 x 2 of 3",
                             "largest_magnitudes one of [64, 512]",
                             "largest_magnitudes rows of [64, 512]",
                             "largest_magnitudes cols of [64, 512]",
                             "largest_magnitudes 40 x 3 of 4",
                             "quantize [64, 512] float8_e4m3 one power_of_two",
                             "quantize [64, 512] float8_e4m3 rows power_of_two",
                             "quantize [64, 512] float8_e4m3 cols power_of_two",
                             "quantize_transposed [128, 192] float8_e4m3 one exact",
                             "quantize_transposed [128, 192] float8_e4m3 one exact with codes",
                             "quantize_transposed [128, 192] float8_e4m3 cols power_of_two",
                             "quantize [96, 160] strided float8_e4m3 rows32 mx_floor",
                             "quantize [96, 160] strided float8_e4m3 cols32 mx_floor",
                             "quantize rows 40 x 3 of 4",
                             "quantize columns 40 x 3 of 4",
                             "dequantize [64, 512] float8_e4m3 rows",
                             "dequantize [64, 512] float8_e4m3 cols",
                             "scaled_grouped_gemm t 40 x 3 of 4",
                             "scaled_grouped_gemm n 40 x 3 of 4",
                             "scaled_grouped_gemm_weights 40 x 3 of 4",
                             "cast [64, 512] float8_e4m3",
                             "draw ones 4096 from 0 in runs of 0",
                             "draw truncated 4096 from 0 in runs of 0",
                             "draw uniform 1024 from 128 in runs of 64",
                             "zero"})
        list.push_back({aligned(named(name))});
    list.push_back({{"zero strided",
                     {{"out", Role::output, compute, {64, 256}, 0, 1, 8}},
                     [](const Kernels& k, Exec& e, const Operands& o) { k.zero(e, o[0]); }}});
    for (LargestCase& c : largest_cases())
        if (c.plain.name.ends_with("[64, 256] with 1") || c.plain.name.ends_with(" 20000 copy with 1"))
            list.push_back({std::move(c.with_largest)});
    for (RoundedCase& c : rounded_cases(false))
        if (c.fused.name.find("[64, 256] with 1,") != std::string::npos) list.push_back({std::move(c.fused)});
    for (KernelCase& c : cases_of_scalars()) list.push_back({std::move(c)});
    return list;
}

/// What a kernel may cost. Bytes are multiples of the least that the call can move: each operand once.
struct Limits {
    double read = 0, written = 0;
    double requests = 0;  ///< of warps, multiples of those that move the least with 16 bytes a lane
    double passes = 0;    ///< through the banks of shared memory, for each access
    int64_t worst = 0;    ///< passes of one access
};

/// What another compiler may change, since it may load an operand again or keep it.
constexpr double tolerance = 0.02;
/// So much may a limit lie above what is measured.
Limits loosened(const Limits& l) {
    constexpr double factor = 1.1;
    return {factor * l.read, factor * l.written, factor * l.requests, factor * l.passes, l.worst};
}

/// A call of an entry of the table, and the kernels that it launched.
struct Call {
    std::string entry;
    double bytes;
    std::vector<std::string> launches;
};

class Calls : public KernelObserver {
public:
    void begin(const char* kernel, double, double bytes) override { calls.push_back({kernel, bytes, {}}); }
    void launch(const char* kernel) override { calls.back().launches.push_back(kernel); }
    void end() override {}

    std::vector<Call> calls;
};

double rounded_up(double value) {
    return std::max(0.0, std::ceil(value * 1000 - 1e-6) / 1000);
}

Limits measured(const MemoryCounts& counts, double bytes) {
    constexpr double sector = emulation::sector_bytes, request = 512;
    const double least = std::max(bytes, sector);
    return {rounded_up(double(counts.read_sectors) * sector / least),
            rounded_up(double(counts.written_sectors) * sector / least),
            rounded_up(double(counts.requests) * request / least),
            counts.shared_accesses ? rounded_up(double(counts.shared_passes) / double(counts.shared_accesses))
                                   : 0,
            counts.worst_passes};
}

/// By case, and by "entry kernel".
using KernelLimits = std::vector<std::pair<std::string, Limits>>;
using Table = std::vector<std::pair<std::string, KernelLimits>>;

template <class Value>
std::vector<std::string> names(const std::vector<std::pair<std::string, Value>>& list) {
    std::vector<std::string> result;
    for (const auto& [name, value] : list) result.push_back(name);
    return result;
}

void add(MemoryCounts& sum, const MemoryCounts& more) {
    sum.read_sectors += more.read_sectors;
    sum.written_sectors += more.written_sectors;
    sum.requests += more.requests;
    sum.shared_accesses += more.shared_accesses;
    sum.shared_passes += more.shared_passes;
    sum.worst_passes = std::max(sum.worst_passes, more.worst_passes);
}

Table measured_table() {
    Table table;
    for (const TypedCase& c : traffic_cases()) {
        INFO(c.name());
        const PretendedGpu gpu(c.architecture);
        emulation::set_vector_products(c.library_scales);
        MemoryCounter counter;
        Calls calls;
        // in 8 bits: otherwise Hopper, which is emulated, would decode 8-bit floats of experts
        const KernelCase of = experts_in_8_bits(with_options(c.of, {.experts = c.experts}), true);
        run_case_on(gpu.get(), of, c.type, c.type, 1, &calls);
        const std::vector<MemoryCounts> grids = counter.take();
        size_t next = 0;
        auto& lines = table.emplace_back(c.name(), KernelLimits()).second;
        for (const Call& call : calls.calls) {
            std::map<std::string, MemoryCounts> kernels;
            for (const std::string& kernel : call.launches) {
                REQUIRE(next < grids.size());
                CHECK(grids[next].written_sectors > 0);  // otherwise accesses have not been seen
                add(kernels[kernel], grids[next++]);
            }
            if (kernels.empty()) lines.emplace_back(call.entry + " none", Limits());
            for (const auto& [kernel, counts] : kernels)
                lines.emplace_back(call.entry + " " + kernel, measured(counts, call.bytes));
        }
        CHECK(next == grids.size());
    }
    return table;
}

std::string text_of(const std::string& kernel, const Limits& l) {
    if (kernel.ends_with(" none")) return "    " + kernel;
    return fmt::format("    {:<52}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>6}", kernel, l.read, l.written,
                       l.requests, l.passes, l.worst);
}

std::filesystem::path file_of_limits() {
    return std::filesystem::path(paths::source()) / "tests/gpu/traffic.txt";
}

/// Lines that begin without spaces name a case; those after it its kernels. Comments begin with #.
Table read_table() {
    std::ifstream file(file_of_limits());
    REQUIRE(file);
    Table table;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with('#')) continue;
        if (!line.starts_with(' ')) {
            table.push_back({line, {}});
            continue;
        }
        std::istringstream words(line);
        std::string entry, kernel;
        Limits l;
        words >> entry >> kernel;
        if (kernel != "none") words >> l.read >> l.written >> l.requests >> l.passes >> l.worst;
        INFO(line);
        REQUIRE(words);
        REQUIRE(!table.empty());
        table.back().second.emplace_back(entry + " " + kernel, l);
    }
    return table;
}

std::string header() {
    std::ifstream file(file_of_limits());
    std::string text;
    for (std::string line; std::getline(file, line) && (line.starts_with('#') || line.empty());)
        text += line + "\n";
    return text;
}

/// What exceeds its limit, and by how much; empty if nothing does.
std::string excess(const Limits& measured, const Limits& limit) {
    std::string text;
    const auto compare = [&](const char* what, double value, double most) {
        if (value > most * (1 + tolerance))
            text += fmt::format("{}: {:.3f}, the limit is {:.3f} ({:+.1f} %). ", what, value, most,
                                most > 0 ? 100 * (value / most - 1) : 100.0);
    };
    compare("bytes read", measured.read, limit.read);
    compare("bytes written", measured.written, limit.written);
    compare("requests", measured.requests, limit.requests);
    compare("passes through the banks", measured.passes, limit.passes);
    compare("worst passes", double(measured.worst), double(limit.worst));
    return text;
}

const Table& measured_once() {
    static const Table table = measured_table();
    return table;
}

}  // namespace

TEST_CASE("write the table of traffic", "[.][table]") {
    std::string text = header();
    for (const auto& [name, kernels] : measured_once()) {
        text += name + "\n";
        for (const auto& [kernel, limits] : kernels) text += text_of(kernel, limits) + "\n";
    }
    std::ofstream("traffic.txt") << text;
}

TEST_CASE("no kernel moves more, or has more bank conflicts, than tests/gpu/traffic.txt allows") {
    const Table limits = read_table(), &measured = measured_once();
    REQUIRE(names(limits) == names(measured));
    for (size_t i = 0; i < limits.size(); ++i) {
        const KernelLimits &allowed = limits[i].second, &found = measured[i].second;
        INFO(limits[i].first);
        REQUIRE(names(allowed) == names(found));
        for (size_t k = 0; k < allowed.size(); ++k) {
            INFO("measured: " << text_of(found[k].first, found[k].second));
            CHECK(excess(found[k].second, allowed[k].second) == "");
            INFO("The limit is far above what is measured; `test_traffic \"[table]\"` writes the new ones");
            CHECK(excess(allowed[k].second, loosened(found[k].second)) == "");
        }
    }
}

TEST_CASE("the table of traffic has every entry of the table of kernels") {
    std::set<std::string> missing;
#define COEUS_NAME(name) missing.insert(#name);
    COEUS_EACH_KERNEL(COEUS_NAME)
#undef COEUS_NAME
    missing.erase("quantize_values");  // not on GPUs
    for (const auto& [name, kernels] : read_table())
        for (const auto& [kernel, limits] : kernels) missing.erase(kernel.substr(0, kernel.find(' ')));
    CHECK(missing == std::set<std::string>());
}

TEST_CASE("the table of traffic has every kernel that is launched") {
    std::set<std::string> missing;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(paths::source()) / "src/kernels/cuda")) {
        if (entry.path().extension() != ".cu") continue;
        const std::string text = read_file(entry.path().string()), call = "launch(exec, ";
        for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
            // the name comes before a grid in braces, or the end of the call
            const std::string argument = text.substr(at, text.find_first_of("{;", at) - at);
            for (size_t quote = argument.find('"'); quote != std::string::npos;) {
                const size_t end = argument.find('"', quote + 1);
                missing.insert(argument.substr(quote + 1, end - quote - 1));
                quote = argument.find('"', end + 1);
            }
        }
    }
    CHECK(missing.size() > 50);
    for (const auto& [name, kernels] : read_table())
        for (const auto& [kernel, limits] : kernels) missing.erase(kernel.substr(kernel.find(' ') + 1));
    // these follow kernels of cuDNN, which this program does not have
    CHECK(missing == std::set<std::string>{"merge_blocks", "sum_blocks"});
}

TEST_CASE("an excess of traffic is told with the limit") {
    const Limits limit = {1, 0.5, 2, 1, 1};
    CHECK(excess(limit, limit) == "");
    CHECK(excess({1.5, 0.5, 2, 1, 1}, limit) == "bytes read: 1.500, the limit is 1.000 (+50.0 %). ");
    CHECK(excess({1, 0.6, 2.5, 1, 1}, limit) ==
          "bytes written: 0.600, the limit is 0.500 (+20.0 %). requests: 2.500, the limit is 2.000 (+25.0 "
          "%). ");
    CHECK(excess({1, 0.5, 2, 2, 8}, limit) ==
          "passes through the banks: 2.000, the limit is 1.000 (+100.0 %). worst passes: 8.000, the limit is "
          "1.000 "
          "(+700.0 %). ");
    CHECK(excess({1, 0.5, 2, 1, 1}, {1, 0.5, 2, 0, 0}) ==
          "passes through the banks: 1.000, the limit is 0.000 (+100.0 %). worst passes: 1.000, the limit is "
          "0.000 "
          "(+100.0 %). ");
}
