// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl, and the page, text and table of a valid one; the same lines also serve as goodput.jsonl and
// expert_loads.jsonl.
#include "coeus/report/report.hpp"
#include "target.hpp"

namespace coeus::fuzz::metrics {

void read_input(std::string_view input) {
    write_scratch("metrics.jsonl", input);
    write_scratch("goodput.jsonl", input);
    write_scratch("expert_loads.jsonl", input);
    const std::vector<RunData> runs = read_runs({scratch().string()});
    report_html(runs);
    report_text(runs, 100, false);
    report_csv(runs);
}

std::vector<std::string> seeds() {
    const std::string step =
        "{\"step\": 1, \"loss\": 4.2, \"grad_norm\": 0.7, \"lr\": 1e-3, \"tokens_seen\": 64, "
        "\"tps\": 100.0, \"memory_gib\": null}\n";
    return {
        step + "{\"step\": 2, \"loss\": 1e300, \"grad_norm\": 1e-300, \"lr\": 0}\n",
        step + "{\"step\": 1, \"event\": \"\", \"layers\": {\"0\": [100, 100], \"3\": [0, 400]}}\n",
        step + "{\"step\": 1, \"validation_loss\": 4.0, \"validation_tokens\": 10}\n",
        step +
            "{\"step\": 9223372036854775807, \"event\": \"loss_spike\", \"action\": \"skip\", \"z\": 7.0}\n",
        step +
            "{\"start\": 1.7e9, \"time\": 1.7e9, \"step\": 0, \"start_up_s\": 1, \"step_s\": 2, \"data_s\": "
            "0, "
            "\"validation_s\": 0, \"saving_s\": 0}\n{\"step\":"};
}

const Target target("metrics", read_input, seeds);

}  // namespace coeus::fuzz::metrics
