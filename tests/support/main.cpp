// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"
#include "support/skip.hpp"
#include "support/support.hpp"

#include <cstdlib>
#include <iostream>

namespace coeus::test {
Runner runner = nullptr;
std::function<void()> case_left;
int64_t resident_at_start = 0;

namespace {

bool case_skips = false;
int cases_run = 0, cases_skipped = 0;

void case_starts() {
    case_skips = false;
}
void case_ends() {
    ++cases_run;
    cases_skipped += case_skips ? 1 : 0;
}

// Whether a rank leaves its case, or a part of it, in which other ranks may wait for this one: by an
// exception that no check expects, or by a failed REQUIRE or FAIL. A signal ends the process by itself.
bool leaves_case(const Catch::AssertionResult& result) {
    if (result.isOk() || result.getResultType() == Catch::ResultWas::FatalErrorCondition) return false;
    return result.getResultType() == Catch::ResultWas::ThrewException ||
           !(result.m_info.resultDisposition & Catch::ResultDisposition::ContinueOnFailure);
}

#if COEUS_CATCH2 == 2
// Counts cases. A listener could do so too, but Catch2 2 also calls listeners for each passing check, which
// is slow.
struct CountingReporter : Catch::ConsoleReporter {
    using ConsoleReporter::ConsoleReporter;
    static std::string getDescription() { return "As console; counts the cases that are skipped"; }
    void testCaseStarting(const Catch::TestCaseInfo& info) override {
        case_starts();
        ConsoleReporter::testCaseStarting(info);
    }
    bool assertionEnded(const Catch::AssertionStats& stats) override {
        const bool printed = ConsoleReporter::assertionEnded(stats);
        if (case_left && leaves_case(stats.assertionResult)) {
            stream.flush();
            case_left();
        }
        return printed;
    }
    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        case_ends();
        ConsoleReporter::testCaseEnded(stats);
    }
};
CATCH_REGISTER_REPORTER("coeus", CountingReporter)
void prepare(Catch::ConfigData& config) {
    config.reporterName = "coeus";
    config.warnings = Catch::WarnAbout::NoTests;
}
#else
struct CountingListener : Catch::EventListenerBase {
    using EventListenerBase::EventListenerBase;
    void testCaseStarting(const Catch::TestCaseInfo& info) override {
        name_ = info.name;
        case_starts();
    }
    // The reporter has its turn after this listener, so it has not printed the failure.
    void assertionEnded(const Catch::AssertionStats& stats) override {
        const Catch::AssertionResult& result = stats.assertionResult;
        if (!case_left || !leaves_case(result)) return;
        std::cout << name_ << "\n" << result.getSourceInfo() << ": FAILED:\n";
        if (result.hasExpression()) std::cout << "  " << result.getExpressionInMacro() << "\n";
        if (result.hasExpandedExpression())
            std::cout << "with expansion:\n  " << result.getExpandedExpression() << "\n";
        for (const Catch::MessageInfo& info : stats.infoMessages) std::cout << "  " << info.message << "\n";
        std::cout << std::flush;
        case_left();
    }
    void testCaseEnded(const Catch::TestCaseStats&) override { case_ends(); }

private:
    std::string name_;
};
CATCH_REGISTER_LISTENER(CountingListener)
void prepare(Catch::ConfigData& config) {
    config.warnings = Catch::WarnAbout::UnmatchedTestSpec;
}
#endif

}  // namespace

void skip(const std::string& why) {
    case_skips = true;
    std::cout << "\nskipped: " << why << std::endl;  // also after an unfinished or coloured line
    SUCCEED();                                       // so that the case has a check
}

void skip_unless_required(const std::string& why) {
    const char* required = std::getenv("COEUS_REQUIRE_GOLDEN");
    if (required && std::string(required) == "1") FAIL("required, but " << why);
    skip(why);
}

int run_cases(int argc, char** argv) {
    Catch::Session session;
    // A name that ctest does not pass on unchanged, such as one with a semicolon, would match no test and
    // pass: Catch2 is told to fail then.
    prepare(session.configData());
    const int result = session.run(argc, argv);
    if (cases_run == 0) return result;  // only listing, or no case was selected
    // the result is the number of failed checks, which might equal skipped_code
    if (result != 0) return result == skipped_code ? 1 : result;
    return cases_skipped == cases_run ? skipped_code : 0;
}

}  // namespace coeus::test

int main(int argc, char** argv) {
    if (coeus::test::runner) return coeus::test::runner(argc, argv);
    return coeus::test::run_cases(argc, argv);
}
