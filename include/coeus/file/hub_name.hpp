// SPDX-License-Identifier: Apache-2.0
// Names of the Hugging Face Hub, such as "meta-llama/Llama-3.2-1B", where the path of a folder is needed.
#pragma once

#include <string>

namespace coeus {

/// What to do if a path that does not exist is a name of the Hub: "; nothing is downloaded: `hf download
/// meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B` makes a folder, whose path is then given here". "" if
/// the path exists, or is not of the form OWNER/NAME.
std::string download_hint(const std::string& path);

}  // namespace coeus
