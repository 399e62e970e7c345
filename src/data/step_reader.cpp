// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/step_reader.hpp"

#include <span>

namespace coeus {

void TokenReader::reserve(int64_t samples) {
    const auto tokens = size_t(samples * stream_.seq_len());
    for (Buffer& buffer : buffers_)
        for (auto* ids : {&buffer.tokens, &buffer.labels, &buffer.document_start}) ids->resize(tokens);
}

ReadSamples TokenReader::read(int64_t first, int64_t number, size_t buffer) {
    Buffer& to = buffers_[buffer];
    const auto length = size_t(stream_.seq_len());
    int64_t counted = 0;
    for (int64_t row = 0; row < number; ++row) {
        const auto part = [&](std::vector<int32_t>& all) {
            return std::span(all).subspan(size_t(row) * length, length);
        };
        counted += stream_.sample(first + row, part(to.tokens), part(to.labels), part(to.document_start));
    }
    SampleRows rows = {
        .sequences = number, .seq_len = stream_.seq_len(), .tokens = to.tokens, .labels = to.labels};
    if (masks_documents_) rows.document_start = to.document_start;
    return {rows, counted};
}

}  // namespace coeus
