// SPDX-License-Identifier: Apache-2.0
// Errands: work with files, on a thread of its own: a file system that does not answer stops whoever asks it,
// and the watchdog is there for such days.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace coeus {

class Errands {
public:
    Errands();
    /// Waits for nothing.
    ~Errands();
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    /// False where the work has not ended after so many seconds, or was not begun because the one before it
    /// has not ended by then. It may go on for good, and so must own all it refers to. An error of it is a
    /// warning in the log.
    bool run(double seconds, std::function<void()> work);

    /// What it returns; `otherwise` where it has not ended.
    template <class T>
    T ask(double seconds, T otherwise, std::function<T()> question) {
        const auto answer = std::make_shared<T>(otherwise);
        return run(seconds, [answer, question = std::move(question)] { *answer = question(); })
                   ? std::move(*answer)
                   : otherwise;
    }

private:
    struct State;
    std::shared_ptr<State> state_;  // with the thread, which may outlive this
};

}  // namespace coeus
