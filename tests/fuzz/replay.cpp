// SPDX-License-Identifier: Apache-2.0
// Runs a target without libFuzzer: fuzz_readers TARGET runs it on its seeds and random changes of them,
// fuzz_readers TARGET FILE... on these files, such as a finding of `make fuzz`. An input that ends the
// process or takes long stays beside the program.
#include "coeus/base/random.hpp"
#include "target.hpp"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

using namespace coeus;

namespace {

constexpr uint64_t inputs = 500;
constexpr time_t most_seconds = 10;  // of processor time per input
constexpr rlim_t most_memory = rlim_t(8) << 30;

/// The random numbers for one input.
class Draw {
public:
    explicit Draw(uint64_t number) : random_(11, number) {}
    uint64_t operator()(uint64_t below) { return random_.u64(count_++) % below; }

private:
    RandomStream random_;
    uint64_t count_ = 0;
};

void change(std::string& text, Draw& draw) {
    static const char* const words[] = {"-1", "1e999", "18446744073709551615", "null", "{", "[", "]", "\"",
                                        "..", "\xff"};
    const size_t at = draw(text.size() + 1), count = std::min(text.size() - at, size_t(draw(8)) + 1);
    switch (draw(6)) {
        case 0:
            if (at < text.size()) text[at] = char(draw(256));
            break;
        case 1: text.erase(at, count); break;
        case 2: text.insert(at, text.substr(draw(text.size() + 1), draw(64))); break;
        case 3: text.replace(at, count, words[draw(std::size(words))]); break;
        case 4: text.resize(at); break;
        default: text.insert(at, draw(40), char(draw(256)));
    }
}

std::string read(const char* path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    return content.str();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    const auto& all = fuzz::targets();
    const auto target = std::ranges::find(all, name, &fuzz::Target::name);
    if (target == all.end()) {
        std::fprintf(stderr, "usage: %s TARGET [FILE...]; the targets are", argv[0]);
        for (const fuzz::Target& other : all) std::fprintf(stderr, " %s", other.name.c_str());
        std::fprintf(stderr, "\n");
        return 2;
    }
    for (int i = 2; i < argc; ++i) target->check_input(read(argv[i]));
    if (argc > 2) return 0;
#ifndef __SANITIZE_ADDRESS__  // takes terabytes of address space
    const rlimit memory{most_memory, most_memory};
    setrlimit(RLIMIT_AS, &memory);
#endif
    const auto seeds = target->seeds();
    const std::string kept = std::string(argv[0]) + "." + name + ".input";
    for (uint64_t number = 0; number < inputs; ++number) {
        std::string input = seeds[number % seeds.size()];
        Draw draw(number);
        if (number >= seeds.size())
            for (uint64_t changes = 1 + draw(4); changes > 0; --changes) change(input, draw);
        std::ofstream(kept, std::ios::binary) << input;
        const itimerval most = {{0, 0}, {most_seconds, 0}};
        setitimer(ITIMER_PROF, &most, nullptr);
        target->check_input(input);
    }
    std::remove(kept.c_str());
    std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
}
