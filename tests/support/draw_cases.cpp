// SPDX-License-Identifier: Apache-2.0
// Initial values of every kind, at every kind of place in a parameter.
#include "coeus/base/random.hpp"
#include "support/cases.hpp"

namespace coeus::test {

KernelCase draw_case(const std::string& kind, const Init& init, int64_t count, const ElementPlace& place,
                     int64_t padding) {
    KernelCase c;
    c.name = fmt::format("draw {} {} from {} in runs of {}{}", kind, count, place.first_index, place.run,
                         padding > 0 ? " off alignment" : "");
    c.arguments = {{"out", Role::update, Kind::compute, {count + padding}, 9, 0.1}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        ElementPlace of_test = place;
        of_test.stream = stream_of("test");
        k.draw(e, o[0].slice_rows(padding, count), init, 7, of_test);
    };
    return c;
}

std::vector<KernelCase> draw_cases() {
    const std::pair<const char*, Init> kinds[] = {{"ones", Init::ones()},
                                                  {"zeros", Init{}},
                                                  {"normal", Init::normal(0.02)},
                                                  {"truncated", Init::truncated_normal(0.5, 1.5)},
                                                  {"uniform", Init::uniform(0.25)}};
    struct DrawPlace {
        int64_t count, run;
        uint64_t first, stride;
        int64_t padding;  // elements before the first one, so that it is not aligned to packs
    };
    const DrawPlace places[] = {{1, 0, 0, 0, 0},         {4096, 0, 0, 0, 0},
                                {1003, 0, 7, 0, 0},      {1003, 0, 6, 0, 1},
                                {1024, 64, 128, 256, 0}, {1001, 13, 5, 29, 0},
                                {1000, 2, 0, 5, 0},      {999, 1, 3, 3, 3},
                                {17000, 300, 1, 301, 0}, {514, 0, uint64_t(1) << 40, 0, 0}};
    std::vector<KernelCase> list;
    for (const auto& [kind, init] : kinds)
        for (const DrawPlace& p : places)
            list.push_back(draw_case(kind, init, p.count,
                                     {.first_index = p.first, .run = p.run, .stride = p.stride}, p.padding));
    return list;
}

}  // namespace coeus::test
