// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/finding.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

using namespace coeus;
using enum Finding::Severity;
using Topic = Finding::Topic;

TEST_CASE("findings: exit codes and refusals follow from severities, not from words") {
    Findings found;
    found.add(Topic::plan, "a run would be refused");  // these words mean nothing
    found.add(Topic::advice, std::vector<std::string>{"one", "two"}, warning);
    found.add(Topic::device, "?", unknown);
    CHECK(found.exit_code(false) == 0);
    CHECK(found.exit_code(true) == 0);
    CHECK_NOTHROW(found.require_not_refused());
    CHECK(found.texts(warning) == std::vector<std::string>{"one", "two"});

    Findings missing = found;
    missing.add(Topic::files, "a.h5: does not exist", refusal_here);
    CHECK(missing.exit_code(false) == 0);
    CHECK(missing.exit_code(true) == 2);
    CHECK_NOTHROW(missing.require_not_refused());

    Findings refused;
    refused.add(Topic::files, "damaged", refusal);
    refused.add(missing);
    refused.add(Topic::advice, "too large", refusal);
    CHECK(refused.count(refusal) == 2);
    CHECK(refused.exit_code(false) == 2);
    CHECK_THROWS_WITH(refused.require_not_refused(), "damaged\ntoo large");
}

TEST_CASE("findings: notices and hints are marked by their severity, and are not warnings") {
    const auto finding = [](Finding::Severity severity) { return Finding{Topic::plan, "text", severity}; };
    CHECK(finding(notice).line() == "Notice: text");
    CHECK(finding(hint).line() == "Hint: text");
    for (const Finding::Severity severity : {fact, notice, hint, unknown})
        CHECK_FALSE(finding(severity).is_warning());
    for (const Finding::Severity severity : {fact, unknown, warning, refusal, refusal_here})
        CHECK(finding(severity).line() == "text");
    for (const Finding::Severity severity : {warning, refusal, refusal_here})
        CHECK(finding(severity).is_warning());
    Findings found;
    found.add(Topic::plan, "text", notice);
    found.add(finding(hint));
    CHECK(found.exit_code(true) == 0);
    CHECK(found.texts(hint) == std::vector<std::string>{"text"});
}
