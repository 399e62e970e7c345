// SPDX-License-Identifier: Apache-2.0
// A valid HDF5 file that claims to be a checkpoint, with attributes and arrays of any name, type and shape.
// Each byte of the input makes one decision about it. (libhdf5 itself is not tested: see
// checkpoint_bytes.cpp.)
#include "coeus/base/error.hpp"
#include "support/checkpoint_state.hpp"
#include "target.hpp"

#include <cstdint>

namespace coeus::fuzz::checkpoint_content {

namespace {

using test::CheckpointState;

class Decisions {
public:
    explicit Decisions(std::string_view input) : input_(input) {}
    /// Chooses one of `choices`; the first one once the input is used up.
    size_t operator()(size_t choices) {
        return next_ < input_.size() ? uint8_t(input_[next_++]) % choices : 0;
    }

private:
    std::string_view input_;
    size_t next_ = 0;
};

// usually the correct attribute
void write_attribute(hdf5::Object& object, const char* name, const std::string& text, int64_t number,
                     bool is_text, Decisions& decide) {
    const int64_t odd[] = {0, -1, INT64_MAX, INT64_MIN, 1};
    switch (decide(8)) {
        default: is_text ? object.set_attribute(name, text) : object.set_attribute(name, number); break;
        case 5: object.set_attribute(name, odd[decide(5)]); break;
        case 6: object.set_attribute(name, 0.5); break;
        case 7: object.set_attribute(name, std::string(decide(256), char(decide(256)))); break;
        case 4: break;
    }
}

Shape some_shape(const Shape& right, Decisions& decide) {
    const Shape odd[] = {{}, {0}, {1}, {0, 4}, {1 << 20}, {int64_t(1) << 40}, {3, 2, 2, 2}};
    return decide(4) == 3 ? odd[decide(std::size(odd))] : right;
}

hdf5::Type some_type(hdf5::Type right, Decisions& decide) {
    const hdf5::Type all[] = {hdf5::Type::f64, hdf5::Type::f32, hdf5::Type::f16, hdf5::Type::bf16,
                              hdf5::Type::i64, hdf5::Type::i32, hdf5::Type::u64, hdf5::Type::u8};
    return decide(4) == 3 ? all[decide(std::size(all))] : right;
}

void write_array(hdf5::File& file, const CheckpointTensor& tensor, Decisions& decide) {
    if (decide(8) != 7)
        file.create_dataset(tensor.path, some_type(hdf5::Type::f32, decide),
                            some_shape(tensor.shape, decide));
    if (decide(8) == 7) return;
    auto sums = file.create_dataset("checksum/" + tensor.path, some_type(hdf5::Type::u64, decide),
                                    some_shape({1}, decide));
    write_attribute(sums, "rows_per_block", "", 1 << 18, false, decide);
}

}  // namespace

void read_input(std::string_view input) {
    const std::string path = (scratch() / "x.h5").string();
    Decisions decide(input);
    CheckpointState state(Dtype::f32);
    try {
        std::filesystem::remove(path);
        hdf5::File file = hdf5::File::create(path);
        write_attribute(file, "format", "coeus checkpoint", 0, true, decide);
        write_attribute(file, "format_version", "", 1, false, decide);
        if (decide(16) == 15) {
            write_attribute(file, "parts", "x.parts", 0, true, decide);
            write_attribute(file, "files", "", 2, false, decide);
        }
        for (const CheckpointTensor& tensor : state.tensors) write_array(file, tensor, decide);
        if (decide(8) != 7) {
            hdf5::Group train = file.create_group("train");
            for (const char* name : {"step", "tokens_seen", "seed", "sample"})
                write_attribute(train, name, "", 7, false, decide);
            for (const char* name : {"deck", "version", "model"})
                write_attribute(train, name, "text", 0, true, decide);
        }
        file.close();
        // a large file is mostly a hole: reading it would only take time
        if (std::filesystem::file_size(path) > (64 << 20)) std::filesystem::resize_file(path, 1 << 20);
    } catch (const SystemError&) {
        return;  // HDF5 does not write such a file
    }
    const auto attempt = [&](const auto& read) {
        try {
            read();
        } catch (const ConfigError&) {
        }
    };
    const Communicator self = Communicator::self();
    attempt([&] { read_checkpoint_header(path); });
    attempt([&] { verify_checkpoint(path); });
    attempt([&] { load_checkpoint(path, state.tensors, self); });
}

std::vector<std::string> seeds() {
    std::string all;
    for (int i = 0; i < 120; ++i) all += char(i * 37);
    // blocks of more rows than an integer can count
    return {"", std::string(10, '\0') + std::string(22, '\x9d'), all, std::string(120, '\3'),
            std::string(60, '\0') + std::string(60, '\5')};
}

const Target target("checkpoint_content", read_input, seeds);

}  // namespace coeus::fuzz::checkpoint_content
