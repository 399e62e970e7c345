// SPDX-License-Identifier: Apache-2.0
// PyTorch's distributed checkpoints: a folder's .metadata, which is a pickle, or a tensor's stream, which is
// a zip archive with a pickle in it. The first byte of the input says which of the two the other bytes are;
// the rest of the folder is correct.
#include "coeus/pretrained/dcp.hpp"

#include "coeus/device/memory.hpp"
#include "support/dcp_writer.hpp"
#include "target.hpp"

#include <algorithm>

namespace coeus::fuzz::dcp {

namespace {

constexpr int64_t most_elements = 1 << 20;  // the metadata may announce so many elements and still be read
constexpr const char *metadata_file = ".metadata", *stream_file = "__0_0.distcp";

struct Sound {
    std::string metadata, stream;
};
const Sound& sound() {
    static const Sound made = [] {
        test::write_dcp(scratch(), {{.shape = {4, 3}, .parts = {{{0, 0}, {4, 3}}}}});
        return Sound{read_scratch(metadata_file), read_scratch(stream_file)};
    }();
    return made;
}

// The correct metadata with another length of the stream: .metadata gives the length that the stream has in
// the input.
std::string metadata_for(size_t stream_bytes) {
    std::string metadata = sound().metadata;
    const std::string length = test::pickled::text("length");
    const std::string right = length + test::pickled::integer(int64_t(sound().stream.size()));
    metadata.replace(metadata.find(right), right.size(),
                     length + test::pickled::integer(int64_t(stream_bytes)));
    return metadata;
}

}  // namespace

void read_input(std::string_view input) {
    const Sound& right = sound();  // made before the input replaces it
    const bool is_stream = !input.empty() && input[0] == 's';
    if (!input.empty()) input.remove_prefix(1);
    write_scratch(metadata_file, is_stream ? metadata_for(input.size()) : input);
    write_scratch(stream_file, is_stream ? input : std::string_view(right.stream));
    const DcpFolder folder(scratch().string());
    for (const std::string& name : folder.names()) {
        const DcpFolder::Entry entry = folder.entry(name);
        if (entry.shape.count() > most_elements) continue;
        const OwnedTensor all(entry.dtype, {entry.shape.rows(), entry.shape.cols()});
        folder.read(name, all, 0);
        folder.integer(name);
    }
}

std::vector<std::string> seeds() {
    return {"m" + sound().metadata, "s" + sound().stream};
}

const Target target("dcp", read_input, seeds);

}  // namespace coeus::fuzz::dcp
