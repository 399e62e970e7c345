// SPDX-License-Identifier: Apache-2.0
// StartUp: how long each phase takes between the start of the process and the first step.
#pragma once

#include "coeus/base/clock.hpp"

#include <string>
#include <utility>
#include <vector>

namespace coeus {

class StartUp {
public:
    /// `before`: seconds since the process was started, counted as the phase "program". `now`: a clock, which
    /// tests replace.
    explicit StartUp(double before = seconds_since_exec(), double (*now)() = steady_seconds)
        : now_(now), begun_(now() - before) {
        phases_.push_back({"program", before});
    }

    /// Calls `work` and adds its time to the phase `name`, a literal. Returns the result of `work`.
    template <class Work>
    auto phase(const char* name, const Work& work) {
        const Ending ending(*this, name);
        return work();
    }

    /// Constructs a T from these arguments and adds the time to the phase `name`.
    template <class T, class... Arguments>
    T make(const char* name, Arguments&&... arguments) {
        const Ending ending(*this, name);
        return T(std::forward<Arguments>(arguments)...);
    }

    /// Returns what the call returns and adds its time to the phase `name`.
    template <class Call>
    auto during(const char* name, const Call& call) {
        const Ending ending(*this, name);
        return call();
    }

    /// Ends the start-up at the first call. Returns its seconds, also at later calls.
    double end();
    /// "Start-up 0.6 s: program 0.0, MPI 0.3, deck 0.0, ..., other 0.1", the phases in their order. After
    /// end().
    std::string text() const;

    /// Seconds since this process was started, from /proc; 0 if /proc cannot be read.
    static double seconds_since_exec();

private:
    struct Phase {
        std::string name;
        double seconds;
    };
    class Ending {
    public:
        Ending(StartUp& start_up, const char* name)
            : start_up_(start_up), name_(name), begun_(start_up.now_()) {}
        ~Ending() { start_up_.add(name_, start_up_.now_() - begun_); }
        Ending(const Ending&) = delete;
        Ending& operator=(const Ending&) = delete;

    private:
        StartUp& start_up_;
        const char* name_;
        double begun_;
    };
    void add(const char* name, double seconds);

    double (*now_)();
    double begun_, seconds_ = -1;
    std::vector<Phase> phases_;
};

}  // namespace coeus
