// SPDX-License-Identifier: Apache-2.0
// Operands of the kernel cases, and the functions that run the cases.
#include "coeus/base/random.hpp"
#include "support/cases.hpp"
#include "support/copy_converting.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <malloc.h>
#include <map>
#include <utility>

namespace coeus::test {

namespace {

// Cases make and drop many operands. If glibc returned their memory each time, half of the time would go to
// new pages.
void keep_freed_memory() {
    constexpr int bytes = 1 << 30;
    [[maybe_unused]] static const bool is_kept =
        mallopt(M_MMAP_THRESHOLD, bytes) != 0 && mallopt(M_TRIM_THRESHOLD, bytes) != 0;
}

double poison_of(Dtype type) {
    switch (type) {
        case Dtype::i32:
        case Dtype::i64: return -7;
        case Dtype::u8: return 205;
        default: return std::numeric_limits<double>::quiet_NaN();
    }
}

}  // namespace

void poison(const Tensor& t) {
    if (t.count() == 0) return;
    set_element(t, 0, poison_of(t.dtype));
    auto* const first = static_cast<std::byte*>(t.data);
    const auto size = size_t(size_of(t.dtype)), row = size * size_t(t.cols());
    for (size_t done = size; done < row; done *= 2)
        std::memcpy(first + done, first, std::min(done, row - done));
    for (int64_t r = 1; r < t.rows(); ++r) std::memcpy(first + size * size_t(r * t.ld), first, row);
}

std::vector<Dtype> types_of(const KernelCase& c, std::vector<Dtype> types) {
    if (const char* seed = std::getenv("COEUS_CASES_SEED"))
        types = {types[RandomStream(std::strtoull(seed, nullptr, 10), c.name).u64(0) % types.size()]};
    return types;
}

bool nothing_beside(const KernelCase& c, const Operands& operands, size_t i) {
    const Argument& a = c.arguments[i];
    const Tensor whole = operands.storage[i].view;
    const double poison = poison_of(whole.dtype);
    const auto is_poison = [&](int64_t first, int64_t columns) {
        return columns == 0 || whole.rows() == 0 ||
               std::ranges::all_of(values_of(whole.slice_cols(first, columns)), [&](double value) {
                   return value == poison || (std::isnan(value) && std::isnan(poison));
               });
    };
    return is_poison(0, a.offset) && is_poison(whole.cols() - a.padding, a.padding);
}

bool same_bits(const Operands& a, const Operands& b) {
    for (size_t i = 0; i < a.storage.size(); ++i)
        if (a.storage[i].view.count() > 0 && std::memcmp(a.storage[i].view.data, b.storage[i].view.data,
                                                         size_t(a.storage[i].view.bytes())) != 0)
            return false;
    return true;
}

namespace {

struct Drawn {
    std::vector<double> uniform, normal;
};

// The first elements of a stream, at least `count`. They are kept, since a test draws the same elements for
// each type and each number of threads, which would take most of its time.
const Drawn& drawn(uint64_t seed, const std::string& name, int64_t count) {
    static std::map<std::pair<uint64_t, std::string>, Drawn> streams;
    Drawn& stream = streams[{seed, name}];
    const RandomStream random(seed, name);
    for (int64_t i = int64_t(stream.uniform.size()); i < count; ++i) {
        stream.uniform.push_back(random.uniform(uint64_t(i)));
        stream.normal.push_back(normal_quantile(stream.uniform.back()));
    }
    return stream;
}

// Values in double, rounded to `type`.
std::vector<double> rounded_values(const Argument& a, Dtype type, uint64_t seed) {
    const Drawn& random = drawn(seed, a.name, a.shape.count());
    std::vector<double> values(size_t(a.shape.count()));
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = a.kind == Kind::index || a.kind == Kind::count || a.kind == Kind::code
                        ? std::floor(random.uniform[i] * a.mean)
                        : a.mean + a.deviation * random.normal[i];
    const Tensor exact(values.data(), Dtype::f64, a.shape);
    const OwnedTensor rounded(type, a.shape, a.name);
    test::copy_converting(rounded.view, exact);
    test::copy_converting(exact, rounded.view);
    return values;
}

}  // namespace

Operands make_operands(const KernelCase& c, Dtype type, Dtype values, uint64_t seed) {
    keep_freed_memory();
    Operands result;
    for (const Argument& a : c.arguments) {
        const auto type_in = [&](Dtype t) {
            return a.kind == Kind::compute ? t
                   : a.kind == Kind::acc   ? (t == Dtype::f64 ? Dtype::f64 : Dtype::f32)
                   : a.kind == Kind::index ? Dtype::i32
                   : a.kind == Kind::count ? Dtype::i64
                   : a.kind == Kind::code  ? Dtype::u8
                                           : Dtype::f32;
        };
        const int64_t beside = a.offset + a.padding;
        const Shape whole = beside > 0 ? Shape{a.shape.rows(), a.shape.cols() + beside} : a.shape;
        OwnedTensor owned(type_in(type), whole, a.name);
        Tensor view = beside > 0 ? owned.view.slice_cols(a.offset, a.shape.cols()) : owned.view;
        poison(owned.view);
        if (a.role != Role::output) {
            std::vector<double> exact = rounded_values(a, type_in(values), seed);
            test::copy_converting(view, Tensor(exact.data(), Dtype::f64, a.shape));
        }
        result.tensors.push_back(view);
        result.storage.push_back(std::move(owned));
    }
    return result;
}

int64_t planned_bytes(const KernelCase& c, const Operands& operands, int threads, const Kernels& dry,
                      int architecture) {
    Exec planning;
    planning.threads = threads;
    planning.architecture = architecture;
    c.call(dry, planning, operands);
    return planning.workspace.peak();
}

PlannedExec::PlannedExec(const KernelCase& c, const Operands& operands, int num_threads, const Kernels& dry) {
    threads = num_threads;
    workspace = Arena(planned_bytes(c, operands, threads, dry), "the workspace of " + c.name);
}

Operands prepared_operands(const KernelCase& c, Dtype type, Dtype values, uint64_t seed) {
    Operands operands = make_operands(c, type, values, seed);
    if (c.prepare) {
        // computed in double from the rounded values, so that all types get the same inputs
        Operands exact = make_operands(c, Dtype::f64, values, seed);
        Exec planning, exec;
        c.prepare(dry_kernels(), planning, exact);
        exec.workspace = Arena(planning.workspace.peak(), "preparation");
        c.prepare(cpu_kernels(), exec, exact);
        for (size_t i = 0; i < c.arguments.size(); ++i)
            if (c.arguments[i].role != Role::output) test::copy_converting(operands[i], exact[i]);
    }
    return operands;
}

namespace {

// A kernel must not rely on the content of its workspace.
void fill_with_nan(Arena& workspace, const Device& device, int64_t bytes) {
    if (bytes == 0) return;
    const Scope scope(workspace);
    const std::vector<std::byte> nan(size_t(bytes), std::byte(0xff));
    device.copy(workspace.alloc(Dtype::u8, {bytes}).data, nan.data(), bytes);
}

}  // namespace

Operands run_case_on(const Device& gpu, const KernelCase& c, Dtype type, Dtype values, uint64_t seed,
                     KernelObserver* observer) {
    Operands host = prepared_operands(c, type, values, seed), there;
    for (size_t i = 0; i < host.storage.size(); ++i) {
        const Tensor from = host.storage[i].view, seen = host.tensors[i];
        OwnedTensor to(from.dtype, from.shape, c.name, gpu.memory());
        if (from.bytes() > 0) gpu.copy(to.view.data, from.data, from.bytes());
        Tensor view = seen;
        const auto offset = static_cast<std::byte*>(seen.data) - static_cast<std::byte*>(from.data);
        view.data = static_cast<std::byte*>(to.view.data) + offset;
        there.tensors.push_back(view);
        there.storage.push_back(std::move(to));
    }
    const int64_t bytes = planned_bytes(c, host, 1, dry_kernels_of(gpu.backend()), gpu.architecture());
    Exec exec(gpu);
    exec.workspace = Arena(bytes, "the workspace of " + c.name, gpu.memory());
    fill_with_nan(exec.workspace, gpu, bytes);
    const Observation observation = observer ? exec.observers.add(*observer) : Observation();
    c.call(kernels_of(gpu.backend()), exec, there);
    exec.queue->finish();
    for (size_t i = 0; i < host.storage.size(); ++i) {
        const Tensor to = host.storage[i].view;
        if (to.bytes() > 0) gpu.copy(to.data, there.storage[i].view.data, to.bytes());
    }
    return host;
}

Operands run_case(const KernelCase& c, const Kernels& kernels, Dtype type, Dtype values, int threads,
                  uint64_t seed, const Kernels& dry) {
    Operands operands = prepared_operands(c, type, values, seed);
    PlannedExec exec(c, operands, threads, dry);
    fill_with_nan(exec.workspace, host_device(), planned_bytes(c, operands, threads, dry));
    c.call(kernels, exec, operands);
    return operands;
}

KernelCase with_options(const KernelCase& c, const ProductOptions& options) {
    KernelCase with = c;
    with.call = [call = c.call, options](const Kernels& kernels, Exec& exec, const Operands& operands) {
        set_product_options(exec, options);
        call(kernels, exec, operands);
    };
    return with;
}

KernelCase experts_in_8_bits(const KernelCase& c, std::optional<bool> asked) {
    KernelCase with = c;
    with.call = [call = c.call, asked](const Kernels& kernels, Exec& exec, const Operands& operands) {
        exec.experts_in_8_bits = asked;
        call(kernels, exec, operands);
    };
    return with;
}

}  // namespace coeus::test
