// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/memory.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>

using namespace coeus;

TEST_CASE("a buffer is zero-filled and page-aligned") {
    const Buffer buffer(100001, "test");
    CHECK(buffer.bytes() == 100001);
    CHECK(buffer.what() == "test");
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 4096 == 0);
    CHECK(std::all_of(buffer.data(), buffer.data() + buffer.bytes(),
                      [](std::byte b) { return b == std::byte(0); }));
}

TEST_CASE("a buffer moves") {
    Buffer a(64, "a");
    std::byte* const data = a.data();
    data[3] = std::byte(9);
    Buffer b(std::move(a));
    CHECK(b.data() == data);
    CHECK(b.bytes() == 64);
    CHECK(b.what() == "a");
    CHECK(a.data() == nullptr);  // NOLINT: after the move
    CHECK(a.bytes() == 0);
    Buffer c(128, "c");
    c = std::move(b);
    CHECK(c.data() == data);
    CHECK(c.data()[3] == std::byte(9));
    CHECK(c.what() == "a");
    static_assert(!std::is_copy_constructible_v<Buffer> && !std::is_copy_assignable_v<Buffer>);
}

TEST_CASE("a buffer may be empty, but not negative, and a lack of memory names the purpose") {
    CHECK(Buffer(0, "nothing").data() == nullptr);
    CHECK(Buffer().bytes() == 0);
    CHECK_THROWS_WITH(Buffer(-1, "x"), Catch::Contains("a buffer of negative size"));
    const int64_t too_much = int64_t(1) << 60;
    CHECK_THROWS_AS(Buffer(too_much, "weights"), SystemError);
    CHECK_THROWS_WITH(
        Buffer(too_much, "weights"),
        Catch::Contains("cannot get") && Catch::Contains("for weights: Cannot allocate memory"));
}

TEST_CASE("an owned tensor's view remains valid when it moves") {
    OwnedTensor a(Dtype::f32, {2, 3}, "x");
    set_element(a, 5, 4);
    const OwnedTensor b = std::move(a);
    CHECK(element(b, 5) == 4);
    CHECK(b.view.data == b.buffer.data());
}

TEST_CASE("a buffer's memory is resident from its start to its end") {
    constexpr int64_t size = 64 << 20;
    { const Buffer first(size, "starts the threads that touch the memory"); }
    const int64_t before = resident_bytes();
    CHECK(before > 0);
    {
        const Buffer buffer(size, "test");
        const int64_t during = resident_bytes();
        CHECK(during >= before + size * 9 / 10);
        CHECK(peak_resident_bytes() >= before + size * 9 / 10);
    }
    CHECK(resident_bytes() <= before + size / 10);
    CHECK(peak_resident_bytes() >= before + size * 9 / 10);
}

TEST_CASE("the memory limit is that of the machine or less") {
    const int64_t machine = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    CHECK(memory_limit_bytes() > 0);
    CHECK(memory_limit_bytes() <= machine);
    CHECK(memory_limit_bytes() > resident_bytes());
}

TEST_CASE("the smallest limit of the process's memory cgroups counts, in versions 1 and 2") {
    using test::TemporaryFolder;
    const int64_t none = std::numeric_limits<int64_t>::max();
    const TemporaryFolder absent;
    CHECK(cgroup_memory_limit(absent.path()) == none);
    SECTION("version 2: a step without a limit in a job with one") {
        const TemporaryFolder root;
        test::write_file(root / "proc/self/cgroup", "0::/slurm/job_7/step_0\n");
        test::write_file(root / "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
        CHECK(cgroup_memory_limit(root.path()) == none);
        test::write_file(root / "sys/fs/cgroup/slurm/job_7/memory.max", "4294967296\n");
        CHECK(cgroup_memory_limit(root.path()) == int64_t(4) << 30);
        test::write_file(root / "sys/fs/cgroup/memory.max", "1073741824\n");
        CHECK(cgroup_memory_limit(root.path()) == int64_t(1) << 30);
        test::write_file(root / "sys/fs/cgroup/slurm/job_8/memory.max", "5\n");  // of another job
        CHECK(cgroup_memory_limit(root.path()) == int64_t(1) << 30);
    }
    SECTION("version 1") {
        const TemporaryFolder root;
        test::write_file(root / "proc/self/cgroup", "12:cpuset:/\n9:hugetlb,memory:/job\n0::/\nnonsense\n");
        test::write_file(root / "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "12345678\n");
        CHECK(cgroup_memory_limit(root.path()) == 12345678);
    }
    CHECK(memory_limit_bytes() <= cgroup_memory_limit());
    CHECK(memory_limit_bytes() > 0);
}
