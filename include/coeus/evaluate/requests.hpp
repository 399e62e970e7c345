// SPDX-License-Identifier: Apache-2.0
// Requests: what a model is asked to score, read from files. Each file is text, JSON Lines (also packed) or a
// token file. The fields of a line of JSON say what it asks for; they are those of the task files of
// llm-foundry and DCLM, and the ids are those of lm-evaluation-harness:
//   query, choices, gold                    which choice is the most likely after the query
//   context_options, continuation, gold     after which context the continuation is the most likely
//   context, continuation                   how likely the continuation is
//   text                                    how likely a document is, from its first token on
// `task` names the line's task (else the name of the file), `id` the line, `delimiter` what is between query
// and choice.
#pragma once

#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

enum class TaskKind : uint8_t { multiple_choice, schema, continuation, document };

/// Sizes of a text: code points, bytes in UTF-8, and pieces between runs of white space (an empty one at
/// either end counts).
struct TextSize {
    int64_t characters = 0, bytes = 0, words = 0;
};
TextSize size_of_text(std::string_view text);

/// Ids whose probability is asked for.
struct Request {
    std::vector<int32_t> context;       ///< ids before them; never empty
    std::vector<int32_t> continuation;  ///< the ids; never empty
    std::vector<uint8_t> counts;        ///< 0: the id is not scored. Empty: all are scored
    TextSize size;                      ///< of the choice, the continuation or the document
};

struct TaskLine {
    int64_t number = 0;             ///< of the line in its file, or of the document in a token file, from 1
    std::string id = {};            ///< its field `id` as JSON; "" if there is none
    std::vector<Request> requests;  ///< one for each choice or context; else one
    int64_t gold = 0;               ///< the number of the right one
};

struct Task {
    std::string name, file;
    TaskKind kind;
    std::vector<TaskLine> lines = {};
    int64_t without_tokens = 0;  ///< documents without tokens, which are left out
};

/// Sixteen hexadecimal digits that depend on all that a task asks for: ids, which of them count, right
/// choices and sizes of texts.
std::string content_id(const Task& task);

/// Whether ids of a text begin with BOS. `by_template`: as the tokenizer's own template says, but not for
/// documents: there it would be scored after BOS.
enum class AddBos : uint8_t { by_template, always, never };

struct RequestOptions {
    int64_t context = 0;  ///< the most ids that a model sees; a continuation may not have more
    AddBos add_bos = AddBos::by_template;
    std::string delimiter = " ";  ///< between a query and a choice
    int64_t limit = 0;            ///< lines that are read of each file; 0: all
};

/// The tasks of the files, in the order in which they occur. A file that is given twice is read once, with a
/// warning. ConfigError, with file and line: it cannot be
/// read, a line has none of the forms above, `gold` is not one of the choices, a choice is empty, or a
/// continuation does not fit into the context.
std::vector<Task> read_tasks(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                             const RequestOptions& options);

}  // namespace coeus
