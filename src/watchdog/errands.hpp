// SPDX-License-Identifier: Apache-2.0
// Errands: runs file operations on a thread of their own. A file system that does not answer blocks the
// thread that uses it, and the watchdog must not block.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace coeus {

class Errands {
public:
    Errands();
    /// Does not wait for work that has not ended.
    ~Errands();
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    /// Runs `work` and waits at most `seconds`. False if the work has not ended by then, or was not begun
    /// because the previous work has not ended. The work may run forever, so it must own everything that it
    /// refers to. Its errors are logged as warnings.
    bool run(double seconds, std::function<void()> work);

    /// The result of `question`; `otherwise` if it has not ended in time.
    template <class T>
    T ask(double seconds, T otherwise, std::function<T()> question) {
        const auto answer = std::make_shared<T>(otherwise);
        return run(seconds, [answer, question = std::move(question)] { *answer = question(); })
                   ? std::move(*answer)
                   : otherwise;
    }

private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace coeus
