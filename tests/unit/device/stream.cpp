// SPDX-License-Identifier: Apache-2.0
// Work outside the computation's own thread or queue: order, waiting, errors.
#include "coeus/device/stream.hpp"

#include "support/catch.hpp"

#include <atomic>
#include <stdexcept>
#include <vector>

using namespace coeus;

TEST_CASE("stream: work is done in order, and join waits for its own") {
    for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
        Stream stream(mode);
        std::vector<int> done;
        Pending last;
        for (int i = 0; i < 200; ++i) {  // more than the ring holds
            last.forget();
            last = stream.run([&done, i] { done.push_back(i); });
        }
        last.join();
        CHECK(done.size() == 200);
        for (size_t i = 0; i < done.size(); ++i) CHECK(done[i] == int(i));
        last.join();  // a second time
    }
}

TEST_CASE("stream: work runs at the same time as the caller") {
    Stream stream(Stream::Mode::threaded);
    std::atomic<bool> go = false, done = false;
    Pending work = stream.run([&] {
        go.wait(false);
        done = true;
    });
    CHECK_FALSE(done);
    go = true;
    go.notify_one();
    work.join();
    CHECK(done);
}

TEST_CASE("stream: join does not wait for later work") {
    Stream stream(Stream::Mode::threaded);
    std::atomic<bool> go = false, first_done = false, second_done = false;
    Pending first = stream.run([&] { first_done = true; }), second = stream.run([&] {
        go.wait(false);
        second_done = true;
    });
    first.join();  // otherwise this waits for ever
    CHECK(first_done);
    CHECK_FALSE(second_done);
    go = true;
    go.notify_one();
    second.join();
    CHECK(second_done);
}

TEST_CASE("stream: deferred work is done when it is joined, after all work before it") {
    std::vector<int> done;
    {
        Stream stream(Stream::Mode::deferred);
        const auto give = [&](int number) { return stream.run([&done, number] { done.push_back(number); }); };
        Pending first = give(1), second = give(2), third = give(3), fourth = give(4);
        CHECK(done.empty());
        second.join();
        CHECK(done == std::vector<int>{1, 2});
        first.join();
        CHECK(done == std::vector<int>{1, 2});
        third = give(5);  // joins the work that it was
        CHECK(done == std::vector<int>{1, 2, 3});
        third.forget();
        fourth.forget();
    }
    CHECK(done == std::vector<int>{1, 2, 3, 4, 5});
}

TEST_CASE("stream: an error is thrown in join, and no work runs after it") {
    for (const auto mode : {Stream::Mode::threaded, Stream::Mode::deferred}) {
        Stream stream(mode);
        bool ran = false;
        Pending failing = stream.run([] { throw std::runtime_error("no network"); });
        Pending after = stream.run([&ran] { ran = true; });
        CHECK_THROWS_WITH(after.join(), "no network");
        CHECK_THROWS_WITH(failing.join(), "no network");
        CHECK_FALSE(ran);
    }
    Stream eager(Stream::Mode::eager);
    CHECK_THROWS_WITH(eager.run([] { throw std::runtime_error("at once"); }), "at once");
}

TEST_CASE("stream: the end waits for work that was not joined, and forgotten work is done, too") {
    int done = 0;
    {
        Stream stream(Stream::Mode::threaded);
        {
            const Pending joined = stream.run([&done] { ++done; });
        }
        CHECK(done == 1);
        Pending forgotten = stream.run([&done] { ++done; });
        forgotten.forget();
        Pending first = stream.run([&done] { ++done; }), second = std::move(first);
        second = stream.run([&done] { ++done; });
        CHECK(done >= 3);  // an assignment waits for the previous work
        second.forget();
    }
    CHECK(done == 4);
}
