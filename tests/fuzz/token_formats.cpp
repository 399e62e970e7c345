// SPDX-License-Identifier: Apache-2.0
// Token files of llm.c and NumPy, and Megatron-LM's pairs. The first byte of the input chooses. For a pair,
// the second byte says how many of those after it are the .bin; the rest is the .idx.
#include "coeus/base/error.hpp"
#include "coeus/data/sampler.hpp"
#include "coeus/data/token_file.hpp"
#include "target.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

namespace coeus::fuzz::token_formats {

void read_input(std::string_view input) {
    if (input.size() < 2) return;
    const int kind = uint8_t(input[0]) % 3;
    const size_t data = std::min<size_t>(uint8_t(input[1]), input.size() - 2);
    std::filesystem::remove(scratch() / "tokens.idx");
    std::string path = write_scratch(kind == 0 ? "tokens.npy" : "tokens.bin",
                                     kind == 2 ? input.substr(2, data) : input.substr(1));
    if (kind == 2) path = write_scratch("tokens.idx", input.substr(2 + data));
    TokenFile tokens(path);
    if (!tokens.lists_documents()) {
        tokens.divide_at({7, uint8_t(input[1]) % 2 == 0});
        tokens.count_documents(1);
    }
    const TokenFile again(path, TokenFile::Layout::of_text(tokens.layout().text()));
    tokens.check_vocabulary(64, 1);
    for (int64_t d = 0; d < std::min<int64_t>(again.num_documents(), 50); ++d)
        if (again.document_begin(d) > again.document_begin(d + 1)) throw LogicError("documents descend");
    const Sampler sampler(again, {.seq_len = 3, .vocab_size = 64});
    std::vector<int32_t> inputs(3), labels(3), start(3);
    for (int64_t i = 0; i < std::min<int64_t>(sampler.num_windows(), 50); ++i)
        sampler.sample(i, inputs, labels, start);
}

std::vector<std::string> seeds() {
    const auto number = [](auto value) {
        std::string bytes(sizeof value, '\0');
        std::memcpy(bytes.data(), &value, sizeof value);
        return bytes;
    };
    std::string ids;
    for (int i = 0; i < 12; ++i) ids += number(uint16_t(i % 9));
    const std::string dictionary = "{'descr': '<u2', 'fortran_order': False, 'shape': (12,), }";
    std::string llm_c = number(int32_t(20240520)) + number(int32_t(1)) + number(int32_t(12));
    llm_c.resize(1024, '\0');
    std::string index("MMIDIDX\0\0", 9);
    index += number(uint64_t(1)) + number(uint8_t(8)) + number(uint64_t(3)) + number(uint64_t(3));
    for (const int32_t length : {4, 0, 8}) index += number(length);
    for (const int64_t offset : {0, 8, 8}) index += number(offset);
    for (const int64_t bound : {0, 2, 3}) index += number(bound);
    return {std::string(1, '\0') + "\x93NUMPY\1" + std::string(1, '\0') +
                number(uint16_t(dictionary.size())) + dictionary + ids,
            "\1" + llm_c + ids, "\2" + std::string(1, char(ids.size())) + ids + index};
}

const Target target("token_formats", read_input, seeds);

}  // namespace coeus::fuzz::token_formats
