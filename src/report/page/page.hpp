// SPDX-License-Identifier: Apache-2.0
// The parts of the page that are the same for all runs: its style, and the script that shows the values under
// the pointer and draws the chosen layer of a heat map. Without scripts only these are missing. The build
// turns page.css and page.js into strings (cmake/libraries.cmake).
#pragma once

namespace coeus::report {

extern const char* const page_style;
extern const char* const page_script;

}  // namespace coeus::report
