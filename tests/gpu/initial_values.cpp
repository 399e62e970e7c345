// SPDX-License-Identifier: Apache-2.0
// A GPU draws the initial weights that the host draws, in every shard, and the host those that are offloaded.
#include "coeus/device/observers.hpp"
#include "coeus/state/parameters.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/sharded_weights.hpp"
#include "support/support.hpp"

#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

struct CountLaunches : KernelObserver {
    void begin(const char* /*kernel*/, double /*flops*/, double /*bytes*/) override {}
    void launch(const char* /*kernel*/) override { ++count; }
    void end() override {}
    int count = 0;
};

std::vector<double> drawn_on(const Device& device, const StateTypes& types, const ShardPlace& place) {
    Parameters parameters(types, place);
    declare_every_kind(parameters);
    // never offloaded
    parameters.add({.name = "exact",
                    .shape = {4, 10},
                    .init = Init::normal(1),
                    .shard = {.sharding = parameters.whole_sharding()},
                    .trainable = false,
                    .is_exact = true,
                    .groups = 4});
    parameters.allocate(false, device);
    Exec exec(device);
    exec.threads = 2;
    CountLaunches launches;
    const Observation observation = exec.observers.add(launches);
    parameters.initialise(exec, kernels_of(device.backend()), 11);
    int on_gpu = 0;
    for (const Storage& storage : parameters.storages())
        if (!parameters.master_device(storage).is_host()) on_gpu += int(storage.runs().size());
    CHECK(launches.count == on_gpu);  // the others are drawn by the host
    std::vector<double> all;
    for (const Storage& storage : parameters.storages()) {
        const OwnedTensor host(storage.master.dtype, storage.master.shape);
        if (storage.master.count() == 0) continue;
        parameters.master_device(storage).copy(host.view.data, storage.master.data, host.view.bytes());
        for (const double x : values_of(host)) all.push_back(x);
    }
    return all;
}

}  // namespace

TEST_CASE("GPU: initial weights have the host's bits, in every shard, and if masters are offloaded") {
    for (const StateTypes& types : {StateTypes{Dtype::f32, Dtype::f32}, StateTypes{Dtype::f32, Dtype::bf16},
                                    StateTypes{Dtype::bf16, Dtype::bf16}})
        for (const ShardPlace& place : places_of_shards())
            for (const bool offload : {false, true}) {
                CAPTURE(name_of(types.master), name_of(types.compute), place.tp_rank, place.fsdp_rank,
                        offload);
                StateTypes on_gpu = types;
                on_gpu.offload = offload;
                const std::vector<double> expected = drawn_on(host_device(), types, place);
                CHECK(drawn_on(the_gpu(), on_gpu, place) == expected);
                CHECK(expected.size() > 300);
            }
}
