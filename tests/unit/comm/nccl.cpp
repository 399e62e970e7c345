// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/nccl.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <cstdlib>

using namespace coeus;
using Catch::Contains;

TEST_CASE("NCCL is loaded by name, and reports its version") {
    const NcclLibrary nccl = load_nccl(test::paths::nccl());
    CHECK(nccl.version_text() == "2.28.9");
    CHECK(nccl.receive != nullptr);
    CHECK(nccl.comm_split != nullptr);
    CHECK(nccl.comm_finalize != nullptr);
    CHECK(nccl.comm_init_rank_config != nullptr);
    CHECK(nccl.comm_init_rank_scalable != nullptr);
    setenv("COEUS_NCCL", test::paths::nccl().c_str(), 1);
    CHECK(nccl_path() == test::paths::nccl());
    CHECK(load_nccl().version_text() == "2.28.9");
    unsetenv("COEUS_NCCL");
    CHECK(nccl_path() == "libnccl.so.2");
}

TEST_CASE("an NCCL before 2.18 cannot split communicators") {
    const NcclLibrary nccl = load_nccl(test::paths::nccl_unsplit());
    CHECK(nccl.version_text() == "2.13.4");
    CHECK(nccl.comm_split == nullptr);
    CHECK(nccl.comm_finalize == nullptr);
    CHECK(nccl.comm_init_rank_config == nullptr);
    CHECK(nccl.comm_init_rank_scalable == nullptr);
}

TEST_CASE("an NCCL that is absent, too old, or another library") {
    const std::string old = test::paths::nccl_old(), partial = test::paths::nccl_partial();
    CHECK_THROWS_WITH(load_nccl("/absent/libnccl.so.2"),
                      Contains("NCCL cannot be loaded: /absent/libnccl.so.2: cannot open"));
    CHECK_THROWS_WITH(load_nccl(old), old + " is NCCL 2.8.4; 2.13 or newer is needed");
    CHECK_THROWS_WITH(load_nccl(partial),
                      partial + " is not NCCL 2.13 or newer: it has no function ncclSend");
    CHECK_THROWS_WITH(load_nccl("libc.so.6"),
                      "libc.so.6 is not NCCL 2.13 or newer: it has no function ncclGetVersion");
    CHECK_THROWS_AS(load_nccl("/absent/libnccl.so.2"), ConfigError);
}
