// SPDX-License-Identifier: Apache-2.0
// Observers of an Exec: which of them see what, in which order, and for how long.
#include "coeus/device/observers.hpp"

#include "coeus/device/exec.hpp"
#include "support/catch.hpp"

#include <optional>
#include <string>
#include <vector>

using namespace coeus;

namespace {

// Appends to a text that several scribes share.
class Scribe : public KernelObserver {
public:
    Scribe(std::string name, std::string& text) : name_(std::move(name)), text_(text) {}
    void begin(const char* kernel, double flops, double bytes) override {
        text_ += name_ + "(" + kernel + "," + std::to_string(int(flops)) + "," + std::to_string(int(bytes));
    }
    void operands(std::span<const Tensor> tensors) override {
        text_ += "," + std::to_string(tensors.size()) + name_;
    }
    void end() override { text_ += ")" + name_; }

private:
    std::string name_;
    std::string& text_;
};

}  // namespace

TEST_CASE("observers: each sees every call, and the first one is closest to it") {
    std::string text;
    Scribe a("a", text), b("b", text);
    Exec exec;
    CHECK(exec.observers.none());
    { const ObservedExchange nobody(exec, Exchange::gather_keys, 7); }
    CHECK(text.empty());
    const Observation first = exec.observers.add(a), second = exec.observers.add(b);
    CHECK_FALSE(exec.observers.none());
    const Tensor tensor(nullptr, Dtype::f32, {3});
    {
        const ObservedExchange noted(exec, Exchange::gather_keys, tensor);
        text += "|";
    }
    CHECK(text == "b(gather_keys,0,12a(gather_keys,0,12,1b,1a|)a)b");
}

TEST_CASE("observers: an observation ends without affecting others, and can be moved") {
    std::string text;
    Scribe a("a", text), b("b", text);
    const auto seen = [&](Exec& exec) {
        text.clear();
        { const ObservedExchange noted(exec, Exchange::pass_keys_on); }
        return text;
    };
    Exec exec;
    Observation kept;
    CHECK_FALSE(kept);
    {
        Observation first = exec.observers.add(a);
        const Observation second = exec.observers.add(b);
        kept = std::move(first);
        CHECK_FALSE(first);  // NOLINT: after the move
        CHECK(seen(exec) == "b(pass_keys_on,0,0a(pass_keys_on,0,0)a)b");
    }
    CHECK(kept);
    CHECK(seen(exec) == "a(pass_keys_on,0,0)a");
    kept = exec.observers.add(b);  // the observation that it replaces ends
    CHECK(seen(exec) == "b(pass_keys_on,0,0)b");
    kept.end();
    kept.end();
    CHECK_FALSE(kept);
    CHECK(exec.observers.none());
}

TEST_CASE("observers: their number is limited") {
    std::string text;
    Scribe a("a", text);
    Exec exec;
    std::vector<Observation> all;
    for (int i = 0; i < 8; ++i) all.push_back(exec.observers.add(a));
    CHECK_THROWS_WITH(exec.observers.add(a),
                      Catch::Contains("more observers of an Exec than it has room for"));
    all.clear();
    CHECK(exec.observers.none());
}
