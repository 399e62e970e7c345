// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/text_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/byte_stream.hpp"
#include "json_form.hpp"
#include "text_stream.hpp"

namespace coeus {

std::string flawless_text(const std::string& file) {
    TextStream stream(open_stream(file), file);
    std::string text;
    while (!stream.at_end()) stream.append(text, 1 << 20);
    const TextFlaws& flaws = stream.flaws();
    if (flaws.replaced() > 0) throw ConfigError("{} is not UTF-8{}", file, flaws.place());
    if (flaws.nuls() > 0) throw ConfigError("{} is not text: it has NUL bytes{}", file, flaws.place());
    return text;
}

bool has_name_of_json(const std::filesystem::path& file) {
    const std::filesystem::path unpacked =
        packing_of_name(file.string()) == Packing::none ? file : file.stem();
    const std::string extension = unpacked.extension().string();
    return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

LinesForm lines_form(std::string_view text, const std::vector<std::string>& fields) {
    LinesForm form = LinesForm::text;
    for (const std::string& field : fields) {
        switch (json_form(text, true, field)) {
            case JsonForm::none: break;
            case JsonForm::lines: return LinesForm::known;
            case JsonForm::value: return LinesForm::value;
            case JsonForm::other_lines: form = LinesForm::others; break;
        }
    }
    return form;
}

}  // namespace coeus
