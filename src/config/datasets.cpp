// SPDX-License-Identifier: Apache-2.0
#include "datasets.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace coeus::config {

namespace {

namespace fs = std::filesystem;

Words folders() {
    Words all;
    if (const char* own = std::getenv("COEUS_DATASETS"); own != nullptr && *own != '\0') all.push_back(own);
    all.insert(all.end(), {"./datasets", "./tests/assets"});
    return all;
}

bool is_there(const fs::path& path) {
    return exists_patiently(path);
}

// Files of a folder whose names begin with `beginning`, sorted.
Words files_with(const fs::path& folder, const std::string& beginning) {
    Words files;
    std::error_code ignored;
    for (const fs::path& file : entries_patiently(folder, ignored))
        if (file.filename().string().starts_with(beginning)) files.push_back(file.string());
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

std::string dataset_folders() {
    return join(folders(), ", ");
}

Words named_dataset(const std::string& name) {
    if (name.empty()) return {};
    for (const fs::path folder : folders()) {
        if (name == "c4" || name == "c4_validation") {
            Words files = files_with(folder / "c4" / "en", name == "c4" ? "c4-train." : "c4-validation.");
            if (!files.empty()) return files;
        }
        for (const char* ending : {"", ".h5", ".jsonl", ".json", ".txt"})
            for (const char* packed : {"", ".gz", ".zst"})
                if (const fs::path path = folder / (name + ending + packed); is_there(path))
                    return {path.string()};
    }
    return {};
}

}  // namespace coeus::config
