// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include "convert.hpp"
#include "detokenize.hpp"
#include "evaluate.hpp"
#include "generate.hpp"
#include "info.hpp"
#include "products.hpp"
#include "report.hpp"
#include "schedule.hpp"
#include "slurm/sbatch.hpp"
#include "tokenizer.hpp"
#include "train.hpp"

namespace coeus::apps {

const std::vector<Command>& commands() {
    static const std::vector<Command> all = {
        {"train", "train the model that a deck describes, or resume it", train, train_help, true, false,
         true},
        {"generate", "write text with a trained model", generate, generate_help, false, true, true},
        {"evaluate", "score tasks and documents with a trained model", evaluate, evaluate_help, true, true,
         true},
        {"info", "show what a file or folder is and contains; --verify checks it", info, info_help, true},
        {"convert", "convert between checkpoints and Hugging Face folders", convert, convert_help, false,
         true, true},
        {"products", "search for the fastest matrix products of a deck at the GPU's power limit", products,
         products_help, true, true, true},
        {"report", "show plots and figures of one or more runs: text, HTML, CSV", report, report_help},
        {"sbatch", "print a job script for Slurm that trains a deck", sbatch, sbatch_help, true},
        {"schedule", "show a pipeline schedule: timetable, bubble, activations in memory", schedule,
         schedule_help},
        {"tokenizer", "train a byte-level BPE tokenizer on text", run_tokenizer, tokenizer_help},
        {"tokenize", "turn text into a token file", run_tokenize, tokenize_help},
        {"detokenize", "turn a token file into text (JSON Lines)", run_detokenize, detokenize_help},
    };
    return all;
}

}  // namespace coeus::apps
