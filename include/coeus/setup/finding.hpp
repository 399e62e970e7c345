// SPDX-License-Identifier: Apache-2.0
// Finding: one thing that is known about a run before its first step. Programs decide by its severity and its
// topic; the text is for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

struct Finding {
    enum class Severity : uint8_t {
        fact,
        notice,       ///< a fact that may not be meant so, such as a setting without effect
        hint,         ///< a setting or a place would be better if changed
        unknown,      ///< whether a rank fits is not known, since the device's memory is not
        warning,      ///< a run is not refused
        refusal,      ///< a run would be refused for this reason
        refusal_here  ///< a run on this host would be: a file is missing or cannot be read, or memory is too
                      ///< small
    };
    enum class Topic : uint8_t {
        length,    ///< what the whole run takes
        deck,      ///< the deck and the command line
        device,    ///< the device that is planned for
        plan,      ///< mesh, model, batches, types and memory: the same for a run, a dry run and `coeus info`
        layers,    ///< in which type each linear layer computes
        files,     ///< checkpoints, weights, data, folders
        schedule,  ///< the learning rate
        speed,     ///< the roofline
        advice     ///< on memory, cores and places of files
    };
    Topic topic;
    std::string text;  ///< without a mark of its severity
    Severity severity = Severity::fact;

    /// The text as programs print it: after "Notice: " or "Hint: " if it is one of these.
    std::string line() const;
    /// True if a log has it among its warnings: a warning, or a reason to refuse a run.
    bool is_warning() const;
};

/// What was found, in the order in which it is told.
class Findings {
public:
    using Severity = Finding::Severity;
    using Topic = Finding::Topic;

    void add(Topic topic, const std::string& text, Severity severity = Severity::fact) {
        all_.push_back({topic, text, severity});
    }
    void add(const Finding& one) { all_.push_back(one); }
    /// One for each of `texts`.
    void add(Topic topic, const std::vector<std::string>& texts, Severity severity = Severity::fact) {
        for (const std::string& text : texts) add(topic, text, severity);
    }
    void add(const Findings& more) { all_.insert(all_.end(), more.all_.begin(), more.all_.end()); }

    std::vector<Finding>::const_iterator begin() const { return all_.begin(); }
    std::vector<Finding>::const_iterator end() const { return all_.end(); }
    int64_t count(Severity severity) const;
    std::vector<std::string> texts(Severity severity) const;

    /// The exit code of a command that only looks: 2 if a run would be refused wherever it starts; if
    /// `strict`, also if it would be refused only on this host; else 0.
    int exit_code(bool strict) const;
    /// ConfigError with the reasons for which a run would be refused wherever it starts, if there are any.
    void require_not_refused() const;

private:
    std::vector<Finding> all_;
};

}  // namespace coeus
