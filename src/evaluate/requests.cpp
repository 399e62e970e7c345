// SPDX-License-Identifier: Apache-2.0
#include "coeus/evaluate/requests.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/parquet_to_lines.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/data/text_file.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/file/byte_stream.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"
#include "text_size.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

namespace coeus {

namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

// Ids of texts, as lm-evaluation-harness has them.
class PairEncoder {
public:
    PairEncoder(const Tokenizer& tokenizer, AddBos add_bos) : tokenizer_(tokenizer), add_bos_(add_bos) {
        const std::optional<int32_t> prefix = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
        if (!prefix)
            throw ConfigError(
                "the tokenizer {} has neither BOS nor EOS, one of which must be before a text that has no "
                "context; name one of them in its tokenizer_config.json",
                tokenizer.folder());
        prefix_ = *prefix;
        before_ = tokenizer.own_ends().before;
        if (add_bos == AddBos::always && before_.empty() && tokenizer.bos_id())
            before_ = {*tokenizer.bos_id()};
        if (add_bos == AddBos::never) before_.clear();
    }

    /// All white space at the end of the context belongs to the continuation. The ids of the continuation are
    /// what the ids of the whole text have more than those of the context.
    Request pair(const std::string& context, const std::string& continuation) const {
        if (context.empty()) return after_nothing(continuation);
        const size_t end = end_without_white_space(context);
        if (end == 0) return after_nothing(context + continuation);
        Request request;
        request.context = of_text(context.substr(0, end));
        const Ids whole = of_text(context + continuation);
        const size_t first = std::min(request.context.size(), whole.size());
        request.continuation.assign(whole.begin() + int64_t(first), whole.end());
        return request;
    }

    /// A document, which is scored from its first id on.
    Request document(const std::string& text) const {
        return {.context = {prefix_},
                .continuation = add_bos_ == AddBos::always ? of_text(text) : tokenizer_.encode(text)};
    }

    int32_t prefix() const { return prefix_; }

private:
    Ids of_text(const std::string& text) const {
        Ids ids = tokenizer_.encode(text);
        if (!before_.empty() && (ids.empty() || ids.front() != before_.front()))
            ids.insert(ids.begin(), before_.begin(), before_.end());
        return ids;
    }
    Request after_nothing(const std::string& continuation) const {
        Ids ids = tokenizer_.encode(continuation);
        if (!ids.empty() && ids.front() == prefix_) ids.erase(ids.begin());
        return {.context = {prefix_}, .continuation = std::move(ids)};
    }

    const Tokenizer& tokenizer_;
    AddBos add_bos_;
    int32_t prefix_ = 0;
    Ids before_;
};

std::string text_of_file(const std::string& file) {
    if (is_parquet(file))
        throw ConfigError(
            "{} is a Parquet file; it must be text, JSON Lines or a token file; this writes its documents: "
            "{} > "
            "FILE.jsonl",
            file, parquet_to_lines(file, "text"));
    if (const auto foreign = foreign_content(file))
        throw ConfigError("{} is {}; it must be text, JSON Lines or a token file", file, *foreign);
    return flawless_text(file);
}

bool is_packed(const fs::path& path) {
    return packing_of_name(path.string()) != Packing::none;
}

// "tasks/arc_easy.jsonl.gz": "arc_easy"
std::string task_of_file(fs::path file) {
    if (is_packed(file)) file = file.stem();
    return file.stem().string();
}

constexpr const char* known_forms =
    "\"query\", \"choices\" and \"gold\"; or \"context_options\", \"continuation\" and \"gold\"; or "
    "\"context\" and \"continuation\"; or \"text\"";

TaskKind kind_of(const JsonView& line) {
    if (line.contains("choices")) return TaskKind::multiple_choice;
    if (line.contains("context_options")) return TaskKind::schema;
    if (line.contains("continuation")) return TaskKind::continuation;
    if (line.contains("text")) return TaskKind::document;
    std::vector<std::string> fields;
    for (const auto& [name, value] : line.items()) fields.push_back('"' + printable(name) + '"');
    throw ConfigError("{}: has {}; a line must have {}", line.file(),
                      fields.empty() ? "no fields" : "the fields " + join(fields, ", "), known_forms);
}

// Whether each line of a file asks for something: by its name, else by its first lines.
bool has_lines(std::string_view text, const std::string& file) {
    const LinesForm form = lines_form(text, {"choices", "context_options", "continuation", "text"});
    if (form == LinesForm::value)
        throw ConfigError(
            "{}: is an array or an object over several lines; each line must be an object with {} (jq -c "
            "'.[]' FILE writes the objects of an array so)",
            file, known_forms);
    if (has_name_of_json(file)) return true;
    if (form == LinesForm::known)
        log::info(
            "Notice: {} is JSON Lines, although the name does not end in .jsonl: each line is a question or "
            "a document",
            file);
    if (form == LinesForm::others)
        log::warn(
            "{} is read as plain text, although the first lines are JSON objects: they have none of the "
            "fields that ask for something, {}",
            file, known_forms);
    return form == LinesForm::known;
}

class Reader {
public:
    Reader(const Tokenizer& tokenizer, const RequestOptions& options)
        : tokenizer_(tokenizer), options_(options), encoder_(tokenizer, options.add_bos) {}

    void read(const std::string& file) {
        if (leads_to_tokens(file)) return read_token_file(file);
        require_file(file);
        const std::string text = text_of_file(file);
        if (has_lines(text, file)) return read_lines(text, file);
        add_document(task(task_of_file(file), file, TaskKind::document), text, {.number = 1});
    }
    std::vector<Task> tasks() && { return std::move(tasks_); }

private:
    Task& task(const std::string& name, const std::string& file, TaskKind kind) {
        const auto known = std::ranges::find(tasks_, name, &Task::name);
        if (known == tasks_.end()) return tasks_.emplace_back(Task{name, file, kind});
        if (known->file != file)
            throw ConfigError(
                "{} and {} both have a task named \"{}\"; rename a file, or set \"task\" in its lines",
                known->file, file, printable(name));
        if (known->kind != kind)
            throw ConfigError(
                "{}: the lines of the task \"{}\" are of different kinds; set another \"task\" in those of "
                "one kind",
                file, printable(name));
        return *known;
    }

    bool has_enough(int64_t lines) const { return options_.limit > 0 && lines >= options_.limit; }

    void read_lines(const std::string& all, const std::string& file) {
        int64_t number = 0, lines = 0;
        for (size_t begin = 0; begin < all.size() && !has_enough(lines);) {
            const size_t end = std::min(all.find('\n', begin), all.size());
            const std::string_view line = std::string_view(all).substr(begin, end - begin);
            begin = end + 1;
            ++number;
            if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
            ++lines;
            const JsonDocument document = JsonDocument::parse(line, fmt::format("{}, line {}", file, number));
            add_line(document.root(), file, number);
        }
        if (lines == 0) throw ConfigError("{} has no lines", file);
    }

    void add_line(const JsonView& json, const std::string& file, int64_t number) {
        if (!json.is_object()) json.reject(fmt::format("must be an object with {}", known_forms));
        const TaskKind kind = kind_of(json);
        Task& in = task(json.string("task", task_of_file(file)), file, kind);
        TaskLine line = {.number = number};
        if (const auto id = json.find("id")) line.id = id->value().text();
        const auto ask = [&](const std::string& context, const std::string& delimiter,
                             const std::string& text) {
            if (text.empty()) throw ConfigError("{}: a choice or continuation is empty", json.file());
            Request request = encoder_.pair(context, delimiter + text);
            request.size = size_of_text(text);
            require_fits(request, in, json.file());
            line.requests.push_back(std::move(request));
        };
        const std::string delimiter = json.string("delimiter", options_.delimiter);
        switch (kind) {
            case TaskKind::multiple_choice:
                for (const std::string& choice : json["choices"].strings())
                    ask(json.string("query"), delimiter, choice);
                break;
            case TaskKind::schema:
                for (const std::string& context : json["context_options"].strings())
                    ask(context, delimiter, json.string("continuation"));
                break;
            case TaskKind::continuation: ask(json.string("context"), "", json.string("continuation")); break;
            case TaskKind::document: add_document(in, json.string("text"), std::move(line)); return;
        }
        if (kind != TaskKind::continuation) line.gold = json.integer("gold");
        if (line.gold < 0 || line.gold >= int64_t(line.requests.size()))
            throw ConfigError("{}: gold = {}: must be from 0 to {}, the number of one of the {}", json.file(),
                              line.gold, int64_t(line.requests.size()) - 1,
                              counted(int64_t(line.requests.size()), "choice"));
        in.lines.push_back(std::move(line));
    }

    void require_fits(const Request& request, const Task& of, const std::string& place) const {
        const auto count = int64_t(request.continuation.size());
        if (count == 0)
            throw ConfigError("{}: a continuation of the task \"{}\" has no tokens of its own", place,
                              printable(of.name));
        if (count > options_.context)
            throw ConfigError(
                "{}: a continuation of the task \"{}\" has {} tokens, but the context only {}; set --context "
                "to at least {}, or remove the line",
                place, printable(of.name), count, options_.context, count);
    }

    void add_document(Task& in, const std::string& text, TaskLine line) {
        Request request = encoder_.document(text);
        request.size = size_of_text(text);
        add_document(in, std::move(request), std::move(line));
    }
    static void add_document(Task& in, Request request, TaskLine line) {
        if (request.continuation.empty()) {
            ++in.without_tokens;
            return;
        }
        line.requests.push_back(std::move(request));
        in.lines.push_back(std::move(line));
    }

    void read_token_file(const std::string& name) {
        TokenFile file{fs::path(name)};
        if (const std::string& hash = file.tokenizer_hash(); !hash.empty() && !tokenizer_.has_hash(hash))
            throw ConfigError(
                "{} was made with another tokenizer ({}) than {} ({}); give its tokenizer with --tokenizer, "
                "or "
                "make it again with `coeus tokenize`",
                name, hash, tokenizer_.folder(), tokenizer_.hash());
        file.check_vocabulary(tokenizer_.vocab_size());
        if (const std::string line = divide_documents(file, {}, tokenizer_.folder()); !line.empty())
            log::info("{}", line);
        Task& in = task(task_of_file(name), name, TaskKind::document);
        const int64_t documents =
            options_.limit > 0 ? std::min(options_.limit, file.num_documents()) : file.num_documents();
        const std::vector<int64_t> bounds = file.document_bounds(0, documents - 1);
        for (size_t i = 0; i < size_t(documents); ++i)
            add_document(in, stored(file, bounds[i], bounds[i + 1]), {.number = int64_t(i) + 1});
    }

    // A document as it is in the file: its BOS is the context, and special tokens have no bytes.
    Request stored(const TokenFile& file, int64_t first, int64_t end) const {
        Request request = {.context = {encoder_.prefix()}, .continuation = Ids(size_t(end - first))};
        Ids& ids = request.continuation;
        file.read(first, ids);
        file.require_in_vocabulary(first, ids, tokenizer_.vocab_size());
        const int64_t skipped = !ids.empty() && ids.front() == encoder_.prefix() ? 1 : 0;
        ids.erase(ids.begin(), ids.begin() + skipped);
        Ids scored = ids;
        if (file.has_loss_mask()) {
            request.counts.resize(ids.size());
            for (size_t i = 0; i < ids.size(); ++i)
                request.counts[i] = file.is_label(first + skipped + int64_t(i)) ? 1 : 0;
            scored.clear();
            for (size_t i = 0; i < ids.size(); ++i)
                if (request.counts[i] != 0) scored.push_back(ids[i]);
            if (scored.empty()) ids.clear();  // no token of the document counts
        }
        request.size = size_of_text(tokenizer_.decode(scored, true));
        return request;
    }

    const Tokenizer& tokenizer_;
    const RequestOptions& options_;
    PairEncoder encoder_;
    std::vector<Task> tasks_;
};

}  // namespace

std::string content_id(const Task& task) {
    Hasher hasher;
    const auto add = [&](const auto& values) {
        const size_t count = values.size();
        hasher.update(std::as_bytes(std::span(&count, 1))).update(std::as_bytes(std::span(values)));
    };
    for (const TaskLine& line : task.lines) {
        const auto requests = int64_t(line.requests.size());
        add(std::array{int64_t(task.kind), requests, line.gold});
        for (const Request& request : line.requests) {
            add(request.context);
            add(request.continuation);
            add(request.counts);
            add(std::array{request.size.characters, request.size.bytes, request.size.words});
        }
    }
    return hash_text(hasher.digest());
}

std::vector<Task> read_tasks(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                             const RequestOptions& options) {
    Reader reader(tokenizer, options);
    std::map<fs::path, std::string> known;  // by the file itself: the name that was given
    for (const std::string& file : files) {
        std::error_code absent;  // that is, no file, or the common part of the names of a Megatron-LM pair
        const fs::path real = real_path_patiently(file, absent);
        if (const auto [first, is_new] = known.emplace(absent ? fs::path(file) : real, file); is_new)
            reader.read(file);
        else
            log::warn("{} is given more than once, but read only once{}", file,
                      first->second == file ? "" : ": it is the same file as " + first->second);
    }
    std::vector<Task> tasks = std::move(reader).tasks();
    if (std::ranges::all_of(tasks, [](const Task& task) { return task.lines.empty(); }))
        throw ConfigError("{}: there is nothing to score: no document has tokens", join(files, ", "));
    return tasks;
}

}  // namespace coeus
