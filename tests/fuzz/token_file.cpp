// SPDX-License-Identifier: Apache-2.0
// A valid HDF5 file with the arrays and attributes of a token file, of any type, length and value. Each byte
// of the input makes one decision about it. (libhdf5 itself is not tested.)
#include "coeus/data/token_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/sampler.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "target.hpp"

#include <cstdint>

namespace coeus::fuzz::token_file {

namespace {

class Bytes {
public:
    explicit Bytes(std::string_view input) : input_(input) {}
    uint8_t operator()() { return next_ < input_.size() ? uint8_t(input_[next_++]) : 0; }

private:
    std::string_view input_;
    size_t next_ = 0;
};

// Mostly small numbers, and a few that are larger than any array.
template <class T>
void write_array(hdf5::File& file, const char* name, Bytes& next) {
    std::vector<T> values(next() % 65);
    for (T& value : values) {
        value = T(next());
        if (value == 255) value = T(-1) >> (next() % 8);
    }
    auto array = file.create_dataset(name, hdf5::type_of<T>(), {int64_t(values.size())});
    if (!values.empty()) array.write(std::span<const T>(values));
}

void write_any(hdf5::File& file, const char* name, Bytes& next) {
    switch (next() % 8) {
        case 0: return write_array<uint16_t>(file, name, next);
        case 1: return write_array<uint32_t>(file, name, next);
        case 2: return write_array<uint64_t>(file, name, next);
        case 3: return write_array<int64_t>(file, name, next);
        case 4: return write_array<uint8_t>(file, name, next);
        case 5: file.create_group(name); return;
        case 6: return file.create_external_link(name, "/dev/zero", "/x");
        default: return;
    }
}

}  // namespace

void read_input(std::string_view input) {
    const std::string path = (scratch() / "tokens.h5").string();
    Bytes next(input);
    std::filesystem::remove(path);
    hdf5::File file = hdf5::File::create(path);
    for (const char* name : {"tokens", "documents", "loss_mask"}) write_any(file, name, next);
    if (next() % 2) file.set_attribute("max_token", int64_t(int8_t(next())));
    if (next() % 2) file.set_attribute("tokenizer", std::string(next(), char(next() % 128)));
    file.close();
    TokenFile tokens(path);
    const TokenFile again(path, TokenFile::Layout::of_text(tokens.layout().text()));
    tokens.check_vocabulary(64, 1);
    const Sampler sampler(again, {.seq_len = 1 + next() % 8, .shuffle = next() % 2 == 1, .vocab_size = 64});
    std::vector<int32_t> inputs(size_t(sampler.seq_len()), 0), labels = inputs, start = inputs;
    for (int64_t i = 0; i < 3 * sampler.num_windows(); ++i) sampler.sample(i, inputs, labels, start);
}

std::vector<std::string> seeds() {
    const std::string tokens = std::string("\0\x20", 2) + std::string(32, '\7');
    return {tokens + std::string("\2\3\0\5\x20", 5) + std::string("\7", 1) +
                std::string("\1\x3f\1\x10\x41\3\1", 7),
            tokens + std::string("\7\4\x20", 3) + std::string(32, '\1') + std::string("\0\0\2\1", 4),
            std::string("\1\4\xff\3\1\1\1", 7), ""};
}

const Target target("token_file", read_input, seeds);

}  // namespace coeus::fuzz::token_file
