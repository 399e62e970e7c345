// SPDX-License-Identifier: Apache-2.0
// The parts of the page that are the same for all runs: its style, and the script that shows the values under
// the pointer. Without scripts the page loses those values and nothing else. The build makes strings of
// page.css and page.js (cmake/libraries.cmake).
#pragma once

namespace coeus::report {

extern const char* const page_style;
extern const char* const page_script;

}  // namespace coeus::report
