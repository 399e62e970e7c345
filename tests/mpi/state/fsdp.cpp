// SPDX-License-Identifier: Apache-2.0
// The weights that layers get from gathered units, and the gradients that the optimizer gets from them, on
// several replicas of several ranks that divide the rows. Every number is exact. For one rank see
// tests/unit/state/fsdp.cpp, for a training step taking_turns.cpp.
#include "coeus/state/fsdp.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

#include <atomic>
#include <memory>

using namespace coeus;
using namespace coeus::test;
using Values = std::vector<double>;

namespace {

// Counts the operations of one communicator, whose calls come from one thread at a time.
class Counted : public CommunicationObserver {
public:
    std::atomic<int> calls = 0;
    int64_t begin(const std::string&, const char*, int64_t, const std::source_location&,
                  const Queue*) override {
        ++calls;
        return 0;
    }
    void end(int64_t) override {}
};

struct GatherCase {
    int replicas = 1;
    GatherOptions keep = {};
    Stream::Mode streams = Stream::Mode::eager;
    StateTypes types = {Dtype::f64, Dtype::f64};
    bool tied = false;
    bool mixed = false;  ///< some storages have one of two other shardings

    std::string name() const {
        constexpr const char *keeps[] = {"neighbours", "all"}, *modes[] = {"eager", "threaded", "deferred"};
        return fmt::format("{} replicas, weights of {}, gradients of {}, {}, {}{}{}", replicas,
                           keeps[int(keep.weights)], keeps[int(keep.gradients)], modes[int(streams)],
                           name_of(types.compute), tied ? ", tied" : "", mixed ? ", mixed" : "");
    }
};

// Five units. No number of ranks divides their rows, and some have fewer rows than ranks.
class Rig {
public:
    Rig(const Communicator& world, const GatherCase& c)
        : case_(c),
          rank_(world.rank()),
          ranks_(world.size()),
          fsdp_(ranks_ / c.replicas),
          gather_(world.split(rank_ / fsdp_, "gather")),
          reduce_(world.split(rank_ / fsdp_, "reduce")),
          replicas_(world.split(rank_ % fsdp_, "replicas")),
          far_gather_(world.split(rank_ % far_replicas(), "far gather")),
          far_reduce_(world.split(rank_ % far_replicas(), "far reduce")),
          far_replicas_(world.split(rank_ / far_replicas(), "far replicas")),
          self_(Communicator::self()),
          all_(world.split(0, "all")),
          parameters(c.types, ShardPlace{.fsdp = fsdp_, .fsdp_rank = rank_ % fsdp_}),
          far(parameters.add_sharding(
              {.fsdp = ranks_ / far_replicas(), .fsdp_rank = rank_ / far_replicas()})),
          own(parameters.add_sharding({})) {
        const auto matrix = [&](int64_t rows, int64_t cols) {
            return Param{.name = fmt::format("m{}", ++made_), .shape = {rows, cols}, .init = Init::ones()};
        };
        Param norm = {.name = "norm", .shape = {5}, .init = Init::ones(), .shard = {Split::partial}};
        Param frozen = matrix(3, 2);
        frozen.trainable = false;
        const auto add_mixed = [&](int64_t rows, size_t sharding) {
            Param param = matrix(rows, 2);
            param.shard.sharding = sharding;
            if (c.mixed) parameters.add(param);
        };
        parameters.begin_unit(c.tied ? 2 : 1);
        add_mixed(4, far);
        parameters.add(matrix(5, 3));
        add_mixed(3, own);
        parameters.begin_unit();
        parameters.add({matrix(4, 3), matrix(3, 3)});
        add_mixed(7, own);
        parameters.add(norm);
        add_mixed(5, far);
        parameters.add(frozen);
        if (c.mixed) parameters.begin_unit();
        add_mixed(6, own);
        parameters.begin_unit();
        parameters.add(matrix(2, 7));
        parameters.begin_unit();
        parameters.add(matrix(9, 2));
        parameters.add(matrix(1, 1));
        parameters.begin_unit();
        parameters.add(matrix(6, 5));
        if (c.tied) parameters.use_after(0, parameters.units().size() - 1);
        gathered = std::make_unique<Gathered>(parameters, c.keep);
        parameters.allocate(true);
        gathered->allocate(
            {{gather_, reduce_, replicas_}, {far_gather_, far_reduce_, far_replicas_}, {self_, self_, all_}},
            c.streams, exec, cpu_kernels());
        gather_.observe(&gathers);
        reduce_.observe(&reductions);
        replicas_.observe(&sums);
    }

    bool is_sharded() const { return fsdp_ > 1; }
    // the sharding `far`: two or four ranks divide the rows; on four ranks, the first and the third
    int far_replicas() const { return ranks_ > 2 ? ranks_ / 2 : 1; }
    bool is_gathered(size_t unit) {
        bool some = false;
        for_each_storage(unit, [&](size_t, const Storage& s) { some = some || s.is_gathered(); });
        return some;
    }
    size_t units() const { return parameters.units().size(); }
    template <class Each>
    void for_each_storage(size_t unit, const Each& each) {
        const Unit& u = parameters.units()[unit];
        for (size_t i = u.first; i < u.first + u.count; ++i) each(i, parameters.storages()[i]);
    }

    // Whole numbers that every type represents exactly.
    static double weight(size_t storage, int64_t i, int version) {
        return double((int64_t(storage) * 37 + i * 5 + version * 11) % 127 + 1);
    }
    // The first element that this rank owns. Rows are divided evenly; the last ranks have fewer.
    int64_t first_element(const Storage& storage) const {
        const int64_t rows = storage.shape().rows();
        const bool is_far = storage.sharding() == far, is_own = storage.sharding() == own;
        const int ranks = is_own ? 1 : is_far ? ranks_ / far_replicas() : fsdp_;
        const int number = is_own ? 0 : is_far ? rank_ / far_replicas() : rank_ % fsdp_;
        return std::min(rows, number * div_ceil(rows, ranks)) * storage.shape().cols();
    }
    // Sets only this rank's rows.
    void set_weights(int version) {
        for (size_t s = 0; s < parameters.storages().size(); ++s) {
            const Storage& storage = parameters.storages()[s];
            const int64_t first = first_element(storage);
            for (int64_t i = 0; i < storage.master.count(); ++i)
                set_element(storage.master, i, weight(s, first + i, version));
        }
        parameters.refresh_compute(exec, cpu_kernels());
        gathered->forget_weights();
    }
    bool has_weights(size_t unit, int version) {
        bool same = true;
        for_each_storage(unit, [&](size_t s, const Storage& storage) {
            for (int64_t i = 0; i < storage.w.count(); ++i)
                same = same && element(storage.w, i) == weight(s, i, version);
        });
        return same;
    }

    // What one use adds to a gradient, by micro-batch and rank.
    static double gradient(size_t storage, int64_t i, int micro_batch, int rank) {
        return double((rank + 1) * (micro_batch + 2) * (i % 9 + int64_t(storage) + 1));
    }
    void add_gradients(size_t unit, int micro_batch) {
        for_each_storage(unit, [&](size_t s, const Storage& storage) {
            if (!storage.trainable()) return;
            for (int64_t i = 0; i < storage.g.count(); ++i)
                set_element(storage.g, i, element(storage.g, i) + gradient(s, i, micro_batch, rank_));
        });
    }
    void use_gradients(size_t unit, int micro_batch) {
        Gathered::GradientLease lease(gathered.get(), unit);
        add_gradients(unit, micro_batch);
        lease.release();
    }
    // Whether this rank's rows hold the sum over all ranks and these micro-batches, with each unit's number
    // of uses.
    bool has_gradients(size_t unit, const std::vector<int>& micro_batches) {
        bool same = true;
        for_each_storage(unit, [&](size_t s, const Storage& storage) {
            if (!storage.trainable()) {
                same = same && !storage.gradient && !storage.g;
                return;
            }
            const int64_t first = first_element(storage);
            for (int64_t i = 0; i < storage.gradient.count(); ++i) {
                double expected = 0;
                for (const int m : micro_batches)
                    for (int r = 0; r < ranks_; ++r)
                        expected += parameters.units()[unit].uses * gradient(s, first + i, m, r);
                same = same && element(storage.gradient, i) == expected;
            }
        });
        return same;
    }
    // The number of parts of this rank's gradients, of one unit or of all. Each part is summed over the
    // replicas.
    int parts_of(size_t unit) const {
        int parts = 0;
        for (const Tensor& part : parameters.gradients_of(unit)) parts += part.count() > 0;
        return case_.replicas > 1 ? parts : 0;
    }
    int parts() const {
        int parts = 0;
        for (size_t unit = 0; unit < units(); ++unit) parts += parts_of(unit);
        return parts;
    }

    // A backward. The uses of a tied first unit are the first and the last of the backward.
    void backward(int micro_batch) {
        if (case_.tied) use_gradients(0, micro_batch);
        for (size_t unit = units(); unit-- > 0;) use_gradients(unit, micro_batch);
    }

private:
    GatherCase case_;
    int rank_, ranks_, fsdp_, made_ = 0;
    Communicator gather_, reduce_, replicas_, far_gather_, far_reduce_, far_replicas_, self_, all_;

public:
    Counted gathers, reductions, sums;
    Exec exec;
    Parameters parameters;
    size_t far, own;  // shardings
    std::unique_ptr<Gathered> gathered;
};

template <class Check>
void for_each_case(const Communicator& world, const Check& check) {
    for (int replicas = 1; replicas <= world.size(); ++replicas) {
        if (world.size() % replicas != 0) continue;
        for (const Keep weights : {Keep::neighbours, Keep::all})
            for (const Keep gradients : {Keep::neighbours, Keep::all})
                for (const auto streams :
                     {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred})
                    for (const bool tied : {false, true})
                        for (const StateTypes& types :
                             {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::bf16},
                              StateTypes{Dtype::f32, Dtype::bf16, true}}) {
                            // with conversions, places and waits are the same as without: a few cases are
                            // enough
                            if (types.compute == Dtype::bf16 &&
                                (weights != gradients || streams == Stream::Mode::threaded))
                                continue;
                            for (const bool mixed : {false, true}) {
                                if (mixed && weights != gradients) continue;
                                const GatherCase c = {replicas, {weights, gradients}, streams, types, tied,
                                                      mixed};
                                CAPTURE(c.name());
                                Rig rig(world, c);
                                check(c, rig);
                            }
                        }
    }
}

constexpr int of_all_storages = 8;

}  // namespace

TEST_CASE("gathered: every rank has the whole weights of a unit while it holds them") {
    const Communicator world = Communicator::world("world");
    for_each_case(world, [&](const GatherCase& c, Rig& rig) {
        const bool all = c.keep.weights == Keep::all;
        const size_t units = rig.units();
        for (int step = 0; step < 2; ++step) {
            rig.set_weights(step);
            rig.gathers.calls = 0;
            for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
                for (size_t unit = 0; unit < units; ++unit) {
                    const Gathered::WeightLease lease(rig.gathered.get(), unit);
                    if (unit + 1 < units) rig.gathered->prefetch(unit + 1);
                    CHECK(rig.has_weights(unit, step));
                    if (unit + 1 == units) continue;
                    const int before = rig.gathers.calls;
                    const Gathered::WeightLease next(rig.gathered.get(), unit + 1);
                    if (c.streams == Stream::Mode::eager) CHECK(rig.gathers.calls == before);
                    CHECK(rig.has_weights(unit + 1, step));
                    CHECK(rig.has_weights(unit, step));
                }
                for (size_t unit = units; unit-- > 0;) {
                    const Gathered::WeightLease lease(rig.gathered.get(), unit);
                    if (unit > 0) rig.gathered->prefetch(unit - 1);
                    CHECK(rig.has_weights(unit, step));
                }
                if (!c.tied) continue;
                const Gathered::WeightLease head(rig.gathered.get(), 0), last(rig.gathered.get(), units - 1);
                CHECK(rig.has_weights(0, step));
                CHECK(rig.has_weights(units - 1, step));
            }
            if (all) CHECK(rig.gathers.calls == (rig.is_sharded() ? of_all_storages : 0));
        }
    });
}

TEST_CASE("gathered: gradients are the sum over ranks, replicas and micro-batches, in their owner's rows") {
    const Communicator world = Communicator::world("world");
    for_each_case(world, [&](const GatherCase& c, Rig& rig) {
        const bool all = c.keep.gradients == Keep::all;
        for (int step = 0; step < 2; ++step) {
            cpu_kernels().zero(rig.exec, rig.parameters.gradients());
            rig.reductions.calls = rig.sums.calls = 0;
            rig.backward(step);
            rig.backward(step + 1);
            if (all) CHECK(rig.reductions.calls == 0);
            CHECK(rig.sums.calls == 0);
            rig.gathered->expect_last_uses(true);
            rig.backward(step + 2);
            rig.gathered->finish_gradients();
            for (size_t unit = 0; unit < rig.units(); ++unit)
                CHECK(rig.has_gradients(unit, {step, step + 1, step + 2}));
            const int of_a_batch = of_all_storages - 1 + (c.tied ? 1 : 0);  // one storage is not trained
            CHECK(rig.reductions.calls == (!rig.is_sharded() ? 0
                                           : all             ? of_all_storages - 1
                                                             : 3 * of_a_batch));
            CHECK(rig.sums.calls == rig.parts());
        }
    });
}

TEST_CASE("gathered: on an eager stream, a unit is summed over replicas immediately after its last use") {
    const Communicator world = Communicator::world("world");
    for_each_case(world, [&](const GatherCase& c, Rig& rig) {
        if (c.streams != Stream::Mode::eager) return;
        rig.backward(0);
        rig.gathered->expect_last_uses(true);
        int parts = 0;
        if (c.tied) rig.use_gradients(0, 1);
        CHECK(rig.sums.calls == 0);
        for (size_t unit = rig.units(); unit-- > 0;) {
            rig.use_gradients(unit, 1);
            CHECK(rig.has_gradients(unit, {0, 1}));
            parts += rig.parts_of(unit);
            CHECK(rig.sums.calls == parts);
        }
        rig.gathered->finish_gradients();
        CHECK(rig.sums.calls == parts);
        for (size_t unit = 0; unit < rig.units(); ++unit) CHECK(rig.has_gradients(unit, {0, 1}));
    });
}

TEST_CASE("gathered: units whose last use was not announced are summed when the step ends") {
    const Communicator world = Communicator::world("world");
    for_each_case(world, [&](const GatherCase& c, Rig& rig) {
        rig.backward(0);
        rig.gathered->expect_last_uses(true);
        rig.gathered->end_use(0);
        if (c.tied) {
            CHECK(rig.sums.calls == 0);
            rig.gathered->end_use(0);
        }
        if (c.streams == Stream::Mode::eager) {
            CHECK(rig.sums.calls == rig.parts_of(0));
            CHECK(rig.has_gradients(0, {0}));
        }
        rig.gathered->finish_gradients();
        for (size_t unit = 0; unit < rig.units(); ++unit) CHECK(rig.has_gradients(unit, {0}));
        CHECK(rig.sums.calls == rig.parts());
    });
}

TEST_CASE("gathered: weights and gradients at the same time, as in a backward") {
    const Communicator world = Communicator::world("world");
    for_each_case(world, [&](const GatherCase&, Rig& rig) {
        rig.set_weights(3);
        rig.gathered->expect_last_uses(true);
        const auto backward_of = [&](size_t unit) {
            const Gathered::WeightLease weights(rig.gathered.get(), unit);
            if (unit > 0) rig.gathered->prefetch(unit - 1);
            Gathered::GradientLease gradients(rig.gathered.get(), unit);
            if (rig.is_gathered(unit))  // otherwise each release is a use
                Gathered::GradientLease(rig.gathered.get(), unit).release();
            rig.add_gradients(unit, 4);
            CHECK(rig.has_weights(unit, 3));
            gradients.release();
        };
        if (rig.parameters.units()[0].uses == 2) backward_of(0);
        for (size_t unit = rig.units(); unit-- > 0;) backward_of(unit);
        rig.gathered->finish_gradients();
        for (size_t unit = 0; unit < rig.units(); ++unit) CHECK(rig.has_gradients(unit, {4}));
    });
}
