// SPDX-License-Identifier: Apache-2.0
// mpirun -n RANKS gpu_collectives [AXIS=DEGREE ...] [from=BYTES] [to=BYTES] [nvls] [transport=NAME]: the
// rates of collectives and messages between GPUs, as levels of the network for a machine file
// (doc/machines.md). AXIS is pp, dp_replicate, dp_shard, cp, tp or ep, as in a deck; without one, all ranks
// are dp_shard. Each communicator of this mesh that has more than one rank is measured, those of an axis at
// the same time, with sizes from 1 MiB to 1 GiB in steps of four, by the library that a run would use. `nvls`
// lets NCCL sum in the switches (comm.deterministic = false); `transport` is that of the deck. On ranks that
// share a GPU it only tests. Each operation's result is checked first.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/session/rank_device.hpp"
#include "on_gpu.hpp"

#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <system_error>

using namespace coeus;
using namespace coeus::bench;

namespace {

struct Arguments {
    Config config;
    MeshShape mesh;
    double from = double(1 << 20), to = double(1 << 30);
};

double positive(const std::string& name, const std::string& value) {
    double number = 0;
    const char* const end = value.data() + value.size();
    const auto [read, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || read != end || !(number >= 1) || number > 1e12)
        throw ConfigError("{} = {}: it must be a number from 1 to 1e12", name, value);
    return number;
}

Arguments arguments_of(int argc, char** argv, int ranks) {
    Arguments all;
    all.config.device = "cuda";
    auto& p = all.config.parallelism;
    const std::map<std::string, int64_t*> degrees = {
        {"pp", &p.pipeline_parallel_degree},         {"dp_replicate", &p.data_parallel_replicate_degree},
        {"dp_shard", &p.data_parallel_shard_degree}, {"cp", &p.context_parallel_degree},
        {"tp", &p.tensor_parallel_degree},           {"ep", &p.expert_parallel_degree}};
    std::vector<std::string> known = {"from", "to", "nvls", "transport"};
    for (const auto& [name, degree] : degrees) known.push_back(name);
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i], name = word.substr(0, word.find('=')),
                          value = name.size() < word.size() ? word.substr(name.size() + 1) : "";
        if (const std::string error = unknown_name({name}, known, "argument"); !error.empty())
            throw ConfigError("{}", error);
        if (const auto axis = degrees.find(name); axis != degrees.end())
            *axis->second = int64_t(std::min(positive(name, value), 65536.0));
        else if (name == "from" || name == "to")
            (name == "from" ? all.from : all.to) = positive(name, value);
        else if (name == "nvls")
            all.config.comm.deterministic = false;
        else if (value == "auto" || value == "nccl" || value == "staged")
            all.config.comm.transport = value;
        else
            throw ConfigError("transport = {}: it must be auto, nccl or staged", value);
    }
    if (all.from > all.to) throw ConfigError("from = {}: it must be at most to = {}", all.from, all.to);
    all.mesh = mesh_shape(all.config, ranks);
    return all;
}

/// Points of a curve: bytes, and bytes per second of the bus as nccl-tests counts.
using Curve = std::vector<std::pair<double, double>>;

/// An operation of a communicator on the first `bytes` bytes of its buffers.
struct Operation {
    const char* name;
    double (*share)(int ranks);  ///< of its bytes that the bus moves
    std::function<void(Exec&, const Communicator&, Tensor a, Tensor b)> call;
};

// The part of a buffer that belongs to this rank.
Tensor own_part(const Communicator& ranks, Tensor all) {
    const int64_t count = all.count() / ranks.size();
    return all.slice_rows(ranks.rank() * count, count);
}

double most_of(int ranks) {
    return double(ranks - 1) / ranks;
}
const Operation operations[] = {
    {"all_gather", most_of,
     [](Exec& e, const Communicator& c, Tensor a, Tensor) { c.all_gather(e, a, own_part(c, a)); }},
    {"reduce_scatter", most_of,
     [](Exec& e, const Communicator& c, Tensor a, Tensor) { c.reduce_scatter(e, own_part(c, a), a); }},
    {"all_reduce", [](int ranks) { return 2 * most_of(ranks); },
     [](Exec& e, const Communicator& c, Tensor a, Tensor) { c.all_reduce(e, a); }},
    {"all_to_all", most_of,
     [](Exec& e, const Communicator& c, Tensor a, Tensor b) { c.all_to_all(e, b, a); }},
    {"message", [](int) { return 1.0; },
     [](Exec& e, const Communicator& c, Tensor a, Tensor b) {
         c.send_receive(e, a, (c.rank() + 1) % c.size(), b, (c.rank() + c.size() - 1) % c.size());
     }},
};

/// The element of part p of a buffer of this rank before an operation, and of its result.
double before(int rank, int part, int ranks) {
    return rank * ranks + part + 1;
}
double after(const std::string& operation, int rank, int part, int ranks) {
    const int previous = (rank + ranks - 1) % ranks;
    if (operation == "all_gather") return before(part, part, ranks);
    if (operation == "all_to_all") return before(part, rank, ranks);
    if (operation == "message") return before(previous, part, ranks);
    if (operation == "reduce_scatter" && part != rank) return before(rank, part, ranks);
    double sum = 0;
    for (int other = 0; other < ranks; ++other) sum += before(other, part, ranks);
    return sum;
}

class Bench {
public:
    Bench(const Arguments& arguments, Exec& exec, const Communicator& world, int64_t bytes)
        : from_(arguments.from),
          exec_(exec),
          world_(world),
          a_(Dtype::f32, {bytes / 4}, "buffer", exec.device->memory()),
          b_(Dtype::f32, {bytes / 4}, "buffer", exec.device->memory()) {
        repeat(*exec.device, a_, OwnedTensor(Dtype::f32, {1}));
        repeat(*exec.device, b_, OwnedTensor(Dtype::f32, {1}));
    }

    /// The rates of an operation by size, the same on all ranks. SystemError if a result is wrong.
    Curve curve(const Operation& operation, const Communicator& ranks) {
        check(operation, ranks);
        Curve points;
        for (double bytes = from_; int64_t(bytes) <= a_.view.bytes(); bytes *= 4) {
            // each rank has the same number of elements
            const int64_t count = std::max<int64_t>(1, int64_t(bytes) / 4 / ranks.size()) * ranks.size();
            if (count > a_.view.count()) break;
            const double seconds = seconds_of_call(operation, ranks, count);
            points.emplace_back(4.0 * double(count),
                                4.0 * double(count) * operation.share(ranks.size()) / seconds);
        }
        return points;
    }

private:
    void check(const Operation& operation, const Communicator& ranks) {
        const int size = ranks.size();
        constexpr int64_t each = 33;
        const Tensor a = a_.view.slice_rows(0, each * size), b = b_.view.slice_rows(0, each * size);
        const OwnedTensor host(Dtype::f32, {each * size});
        for (int64_t i = 0; i < each * size; ++i)
            set_element(host, i, before(ranks.rank(), int(i / each), size));
        const Device& device = *exec_.device;
        device.copy(a.data, host.view.data, a.bytes());
        operation.call(exec_, ranks, a, b);
        exec_.queue->finish();
        const bool by_b =
            operation.name == std::string("all_to_all") || operation.name == std::string("message");
        device.copy(host.view.data, (by_b ? b : a).data, a.bytes());
        together(world_, [&] {
            for (int64_t i = 0; i < each * size; ++i)
                if (const double expected = after(operation.name, ranks.rank(), int(i / each), size);
                    element(host, i) != expected)
                    throw SystemError(fmt::format("{} of {} on rank {}: element {} is {}, not {}",
                                                  operation.name, ranks.name(), world_.rank(), i,
                                                  element(host, i), expected));
        });
    }

    // The longest time of a rank: of one call, and then of as many as take a tenth of a second.
    double seconds_of_call(const Operation& operation, const Communicator& ranks, int64_t count) {
        const Tensor a = a_.view.slice_rows(0, count), b = b_.view.slice_rows(0, count);
        int calls = 1;
        double seconds = 0;
        for (const bool last : {false, false, true}) {  // the first call may connect the ranks
            if (last) calls = int(std::clamp(0.1 / seconds, 2.0, 50.0));
            world_.barrier();
            const Timer timer;
            for (int i = 0; i < calls; ++i) operation.call(exec_, ranks, a, b);
            exec_.queue->finish();
            seconds = world_.all_reduce(timer.seconds() / calls, Reduce::max);
        }
        return seconds;
    }

    double from_;
    Exec& exec_;
    const Communicator& world_;
    OwnedTensor a_, b_;
};

/// The communicators of a mesh that carry tensors.
std::vector<unsigned> axes_of(const MeshShape& mesh) {
    std::vector<unsigned> all;
    for (const unsigned axes : {unsigned(axis::pp), unsigned(axis::dp_replicate), axis::fsdp,
                                unsigned(axis::cp), unsigned(axis::tp)})
        if (mesh.size(axes) > 1) all.push_back(axes);
    if (mesh.ep > 1)
        for (const unsigned axes : {axis::efsdp, axis::ep})
            if (mesh.size(axes) > 1) all.push_back(axes);
    return all;
}

std::string text_of(const Curve& curve) {
    std::vector<std::string> points;
    for (const auto& [bytes, rate] : curve) points.push_back(fmt::format("[{:.4g}, {:.4g}]", bytes, rate));
    return "[" + join(points, ", ") + "]";
}

/// What was measured of the communicators over some axes.
struct Level {
    std::string name;
    int ranks, on_a_host;
    std::vector<std::pair<std::string, Curve>> curves;

    bool is_between_hosts() const { return on_a_host < ranks; }
    /// The level in a machine file. `per_node`: that of the ranks of a host; false: as comments.
    std::string text(int ranks_of_host, bool per_node, const std::string& from) const {
        std::string text = fmt::format("# {}: {} ranks, {} of them on a host\n", name, ranks, on_a_host);
        const char* comment = is_between_hosts() ? "# " : "";
        if (!is_between_hosts()) text += fmt::format("[[level]]\nname = \"{}\"\nranks = {}\n", name, ranks);
        double best = 0;
        for (const auto& [operation, curve] : curves) {
            text += fmt::format("{}{} = {}\n", comment, operation, text_of(curve));
            if (operation == "all_gather") best = curve.back().second;
        }
        if (is_between_hosts() && per_node && best > 0)
            text += fmt::format(
                "[[level]]\nname = \"{}\"\nper_node = {:.4g}\nfrom = \"{}, the largest all-gather\"\n", name,
                best * ranks_of_host / on_a_host, from);
        if (!is_between_hosts()) text += fmt::format("from = \"{}\"\n", from);
        return text;
    }
};

void run(const MpiRuntime& mpi, int argc, char** argv) {
    const Arguments arguments = arguments_of(argc, argv, mpi.world_size());
    const RankDevice chosen(arguments.config, Communicator::world("devices"), mpi.local_rank(),
                            mpi.local_size());
    const Device& device = chosen.device();
    Mesh mesh(Communicator::world("world"), arguments.mesh);
    const Communicator& world = mesh.world();
    const RankTransport& transport = chosen.transport();
    Exec exec(device);
    std::optional<NcclWorld> nccl;  // ends before the queue
    if (transport.nccl) mesh.connect(nccl.emplace(*transport.nccl, world, device), transport.ctas);
    if (nccl) nccl->end_connecting();

    // two buffers, in half of the memory that is free
    const double room = double(device.memory_bytes() / chosen.sharing() / 4);
    const auto bytes = int64_t(-world.all_reduce(-std::min(arguments.to, room), Reduce::max));
    const bool first = world.rank() == 0;
    const std::string from = fmt::format("gpu_collectives, {}, {} ranks by {}", device.name(), world.size(),
                                         transport.text.empty() ? "MPI" : transport.text);
    if (first) {
        fmt::print("# {}\n# mesh: {}\n", from, arguments.mesh.text());
        if (chosen.sharing() > 1)
            fmt::print("# {} ranks share a GPU: these are not rates of links\n", chosen.sharing());
        if (double(bytes) < arguments.to) fmt::print("# the free memory allows at most {} bytes\n", bytes);
        for (const std::string& warning : transport.warnings) fmt::print("# {}\n", warning);
    }
    Bench bench(arguments, exec, world, bytes / 4 * 4);
    const std::vector<std::string> hosts = gather_texts(world, mpi.host());
    std::vector<Level> levels;
    for (const unsigned axes : axes_of(arguments.mesh)) {
        const Communicator& ranks = mesh[axes];
        Level level = {ranks.name(), ranks.size(), 0, {}};
        for (const int other : arguments.mesh.ranks_of(world.rank(), axes))
            level.on_a_host += hosts[size_t(other)] == mpi.host();
        level.on_a_host = int(world.all_reduce(int64_t(level.on_a_host), Reduce::max));
        for (const Operation& operation : operations) {
            const std::string name = operation.name;
            if (axes == axis::pp && name != "message") continue;
            Curve curve = bench.curve(operation, ranks);
            if (!curve.empty())
                level.curves.emplace_back(name == "all_reduce" && transport.nvls ? "all_reduce_nvls" : name,
                                          std::move(curve));
        }
        levels.push_back(std::move(level));
    }
    if (!first) return;
    std::stable_sort(levels.begin(), levels.end(), [](const Level& a, const Level& b) {
        return std::pair(a.is_between_hosts(), a.ranks) < std::pair(b.is_between_hosts(), b.ranks);
    });
    bool per_node = true;  // a machine file has one such level
    for (const Level& level : levels) {
        fmt::print("\n{}", level.text(mpi.local_size(), per_node, from));
        per_node = per_node && !level.is_between_hosts();
    }
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const MpiRuntime mpi(&argc, &argv);
        run(mpi, argc, argv);
        return 0;
    } catch (const std::exception& error) {
        constexpr int code = 3;
        const bool same =
            dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const CollectiveError*>(&error);
        if (!same || world_rank() == 0) fmt::print(stderr, "gpu_collectives: {}\n", error.what());
        end_mpi_after_error(code, same);
        return code;
    }
}
