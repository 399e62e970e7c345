// SPDX-License-Identifier: Apache-2.0
// The functions that libFuzzer calls; main(), options and the search are its own. The seeds are written into
// the first folder on its command line, its corpus.
#include "target.hpp"

#include <cstdint>
#include <fstream>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    namespace fs = std::filesystem;
    const auto seeds = coeus::fuzz::targets().at(0).seeds();
    for (int i = 1; i < *argc; ++i) {
        const fs::path folder = (*argv)[i];
        if (!fs::is_directory(folder)) continue;
        for (size_t s = 0; s < seeds.size(); ++s)
            std::ofstream(folder / ("seed-" + std::to_string(s)), std::ios::binary) << seeds[s];
        break;
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    coeus::fuzz::targets()[0].check_input({reinterpret_cast<const char*>(data), size});
    return 0;
}
