// SPDX-License-Identifier: Apache-2.0
// A checkpoint with changed bytes. The input says what is changed: the length of the file (4 bytes), then
// positions (4 bytes each) with the bits that change there (1 byte each). Either the damage is found, or the
// loaded values are those that were saved. Cut exactly at the end of HDF5's part, it would look like a file
// of another program, which has no layout guard (doc/checkpoint.md): there it is cut one byte earlier.
#include "coeus/base/error.hpp"
#include "support/checkpoint_state.hpp"
#include "target.hpp"

#include <cstdint>
#include <cstring>

namespace coeus::fuzz::checkpoint_bytes {

namespace {

using test::CheckpointState;

const std::string& sound_file() {
    static const std::string bytes = [] {
        const Communicator self = Communicator::self();
        const CheckpointStore checkpoint((scratch() / "sound").string(), 0, self);
        checkpoint.save(test::record_of(1), CheckpointState(Dtype::f32).tensors);
        return read_scratch("sound/step-00000001.h5");
    }();
    return bytes;
}

uint32_t number_at(std::string_view input, size_t at) {
    uint32_t number = 0;
    std::memcpy(&number, input.data() + at, sizeof number);
    return number;
}

}  // namespace

void read_input(std::string_view input) {
    std::string bytes = sound_file();
    const size_t hdf5_end = number_at(bytes, 28);
    if (input.size() >= 4) bytes.resize(number_at(input, 0) % (bytes.size() + 64));
    if (bytes.size() == hdf5_end) bytes.pop_back();
    for (size_t at = 4; at + 5 <= input.size() && !bytes.empty(); at += 5) {
        char& byte = bytes[number_at(input, at) % bytes.size()];
        byte = char(byte ^ input[at + 4]);
    }
    const std::string path = write_scratch("x.h5", bytes);
    const CheckpointState saved(Dtype::f32);
    CheckpointState loaded(Dtype::f32, -3);
    const Communicator self = Communicator::self();
    const TrainRecord record = load_checkpoint(path, loaded.tensors, self);
    if (loaded.bytes() != saved.bytes() || record != test::record_of(1))
        throw LogicError("another state was loaded than was saved");
    read_checkpoint_header(path);
    verify_checkpoint(path);
}

std::vector<std::string> seeds() {
    const auto words = [](std::initializer_list<uint32_t> numbers) {
        std::string text;
        for (const uint32_t n : numbers) text.append(reinterpret_cast<const char*>(&n), sizeof n);
        return text;
    };
    const auto size = uint32_t(sound_file().size());
    return {words({size}), words({size, 100}) + "\1", words({size, 700, 0x20000003}) + "\xff",
            words({size / 2}), words({number_at(sound_file(), 28)})};
}

const Target target("checkpoint_bytes", read_input, seeds);

}  // namespace coeus::fuzz::checkpoint_bytes
