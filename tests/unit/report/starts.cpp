// SPDX-License-Identifier: Apache-2.0
// The starts of a run: what goodput.jsonl says about each of them, and what reports show of it.
#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "coeus/metrics/goodput.hpp"
#include "coeus/report/report.hpp"
#include "report_data.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

StartRecord record_of(int64_t ranks, const std::string& mesh, const std::string& deck) {
    return {.version = "0.3",
            .model = "llama3 debugmodel",
            .parameters = 1234567,
            .active_parameters = 1234567,
            .ranks = ranks,
            .mesh = mesh,
            .machine = "Fast CPU",
            .hosts = {"n1", "n2"},
            .data = "tokens.h5, 5,000 tokens in 3 documents",
            .bytes_per_token = 4,
            .validation_bytes_per_token = 2,
            .deck = deck};
}

std::string goodput_line(double start, double time, int64_t step, const Json& more) {
    Json line = Json::object();
    line.set("start", start).set("time", time).set("step", step);
    for (const char* part : {"start_up_s", "step_s", "data_s", "validation_s", "saving_s"})
        line.set(part, 0.0);
    for (const auto& [key, value] : *more.as_object()) line.set(key, value);
    return line.text() + "\n";
}

Json with_record(const StartRecord& record) {
    return Json::object().set("record", json_of(record));
}

// 10 tokens a step, then 20 from step 5 on; a step takes half a second.
std::string metrics_lines() {
    std::string lines;
    int64_t tokens = 0;
    for (int step = 1; step <= 8; ++step) {
        tokens += step <= 4 ? 10 : 20;
        lines += fmt::format(
            R"({{"step":{},"loss":{},"mtp_loss":0.5,"lr":0.001,"tokens_seen":{},"tps":5,"step_s":0.5}})"
            "\n",
            step, 0.5 + 8.0 / step, tokens);
    }
    return lines + R"({"step":8,"validation_loss":1.5})" + "\n";
}

// A run of three starts: stopped, killed, complete.
std::string make_run(const fs::path& folder) {
    write_file(folder / "metrics.jsonl", metrics_lines());
    write_file(folder / "deck.toml",
               "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
               "[job]\ndescription = \"default job\"\n");
    const StartRecord first =
        record_of(1, "one rank", "[training]\nsteps = 4\nseq_len = 64\n[job]\ndump_folder = \"a\"\n");
    const StartRecord second =
        record_of(2, "tp 2", "[training]\nsteps = 4\nseq_len = 128\n[job]\ndump_folder = \"b\"\n");
    write_file(folder / "goodput.jsonl",
               goodput_line(1000, 1010, 0, with_record(first)) +
                   goodput_line(1000, 1060, 4, Json::object().set("end", "stopped by SIGTERM")) +
                   goodput_line(2000, 2010, 4, with_record(second)) +
                   goodput_line(2000, 2030, 6, Json::object()) +
                   goodput_line(3000, 3010, 6, with_record(second)) +
                   goodput_line(3000, 3020, 8, Json::object().set("complete", true).set("end", "complete")));
    return folder.string();
}

}  // namespace

TEST_CASE("starts: what a start was is written once, and read again") {
    const TemporaryFolder folder;
    const fs::path file = folder / "goodput.jsonl";
    const StartRecord record = record_of(2, "tp 2", "[training]\nsteps = 4\n");
    {
        GoodputClock clock(file, 1, 0, record);
        clock.ask_for_line();
        clock.write(3);
        CHECK_THAT(clock.finish(3, false, "stopped by SIGTERM"), Contains("Goodput"));
    }
    CHECK(count_of("\"record\"", read_file(file)) == 1);
    CHECK(count_of("\"end\"", read_file(file)) == 1);
    const std::vector<RunStart> starts = starts_of(read_start_times(file));
    REQUIRE(starts.size() == 1);
    CHECK(starts[0].record == record);
    CHECK(starts[0].first_step == 0);
    CHECK(starts[0].last_step == 3);
    CHECK(starts[0].end == "stopped by SIGTERM");
    // facts that are not known are neither written nor read
    CHECK(json_of({}).text() == "{}");
    CHECK(start_record(JsonDocument::parse("{}", "x").root()) == StartRecord());
    // the times of a line count even if its record cannot be read
    write_file(file, goodput_line(1, 2, 3, Json::object().set("record", Json::object().set("ranks", "x"))));
    CHECK(starts_of(read_start_times(file)).at(0).last_step == 3);
}

TEST_CASE("starts: hosts in words") {
    CHECK(hosts_text({}).empty());
    CHECK(hosts_text({"n1"}) == "n1");
    CHECK(hosts_text({"n1", "n2"}) == "2 hosts: n1, n2");
    CHECK(hosts_text({"n1", "n2", "n3"}) == "3 hosts: n1, n2, n3");
    CHECK(hosts_text({"n1", "n2", "n3", "n4"}) == "4 hosts: n1, n2, n3, ...");
}

TEST_CASE("starts: tokens per second of all ranks, and bits per byte") {
    const TemporaryFolder folder;
    const RunData run = read_runs({make_run(folder / "a")}).at(0);
    const MetricSeries& total = run.of("total_tps");
    CHECK(total.size() == 8);
    CHECK(total.at(1) == 20);
    CHECK(total.at(4) == 20);
    CHECK(total.at(5) == 40);
    // the cross entropy: without the loss of further tokens; 4 bytes per token
    CHECK(close(run.of("bits_per_byte").at(2), 4 / std::log(2) / 4, 1e-12));
    CHECK(close(run.of("validation_bits_per_byte").at(8), 1.5 / std::log(2) / 2, 1e-12));
    CHECK_THAT(report_csv({run}), Contains(",total_tps,bits_per_byte,validation_bits_per_byte\n"));
    // a window with the end of one start and the begin of another one has two speeds
    write_file(folder / "b/metrics.jsonl",
               "{\"step\":2,\"loss\":1,\"tokens_seen\":20,\"step_s\":0.5}\n"
               "{\"step\":8,\"loss\":1,\"tokens_seen\":110,\"step_s\":0.5}\n"
               "{\"step\":10,\"loss\":1,\"tokens_seen\":150,\"step_s\":0.5}\n");
    write_file(folder / "b/goodput.jsonl", read_file(folder / "a/goodput.jsonl"));
    CHECK(read_runs({(folder / "b").string()}).at(0).of("total_tps") == MetricSeries{{2, 20}, {10, 40}});
    // the folder of an earlier version does not say how many bytes a token has
    fs::remove(folder / "b/goodput.jsonl");
    const RunData old = read_runs({(folder / "b").string()}).at(0);
    CHECK(old.of("bits_per_byte").empty());
    CHECK(old.of("total_tps").size() == 3);
    // no time since the start, and a rate that is too large to be drawn
    write_file(folder / "c/metrics.jsonl",
               "{\"step\":0,\"loss\":1,\"tokens_seen\":64,\"step_s\":2}\n"
               "{\"step\":2,\"loss\":1,\"tokens_seen\":1e299,\"step_s\":1e-299}\n"
               "{\"step\":4,\"loss\":1,\"tokens_seen\":2e299,\"step_s\":1e299}\n");
    write_file(folder / "c/deck.toml", "[model]\nname = \"x\\u001b[8my\"\n");
    const RunData odd = read_runs({(folder / "c").string()}).at(0);
    CHECK(odd.of("total_tps") == MetricSeries{{4, 0.5}});
    report_html({odd});
    CHECK_THAT(report_text({odd}, 100, false), Contains("x\\x1b[8my") && !Contains("\033"));
}

TEST_CASE("starts: the report shows where they began, and what each of them was") {
    const TemporaryFolder folder;
    const std::string path = make_run(folder / "a");
    const std::vector<RunData> runs = read_runs({path});
    const std::string html = report_html(runs), text = report_text(runs, 100, false);
    for (const char* cell :
         {"<th>changes of the deck</th>", "<td>1 to 4</td>", "<td>5 to 6</td>", "<td>7 to 8</td>",
          "<td>stopped by SIGTERM</td>", "<td>killed, or ended by an error</td>", "<td>complete</td>",
          "<td>training.seq_len = 128, was 64</td>", "<td>2 ranks: tp 2</td>", "<td>one rank</td>",
          "<td>1970-01-01 00:16 UTC</td>"})
        CHECK_THAT(html, Contains(cell));
    CHECK_THAT(html, !Contains("dump_folder = "));
    // two later starts in each chart: loss, bits per byte, learning rate, two throughputs, step time
    const size_t charts = data_of(html).find("charts")->as_array()->size();
    CHECK(charts == 6);
    CHECK(count_of("class=\"start\"", html) == int(2 * charts));
    for (const char* fact :
         {"<dt>Model</dt><dd>llama3 debugmodel, 1,234,567 parameters</dd>",
          "<dt>Mesh</dt><dd>2 ranks: tp 2</dd>", "<dt>Machine</dt><dd>Fast CPU; 2 hosts: n1, n2</dd>",
          "<dt>Data</dt><dd>tokens.h5, 5,000 tokens in 3 documents, 4 bytes per token</dd>"})
        CHECK_THAT(html, Contains(fact));
    CHECK_THAT(html, !Contains("<p class=\"about\">default job"));
    CHECK_THAT(html, Contains("<dt>Bits per byte</dt>") && Contains("Throughput of all ranks"));
    CHECK_THAT(text, Contains("Starts\nstart  steps") && Contains("stopped by SIGTERM") &&
                         Contains("bits per byte") && Contains("tokens/s of all ranks, median") &&
                         Contains("2 ranks: tp 2"));
    // several runs: each has its starts
    const std::string both = report_html(read_runs({path, make_run(folder / "b")}));
    CHECK(count_of("<h2 class=\"run\">", both) == 2);
    CHECK(count_of("<td>stopped by SIGTERM</td>", both) == 2);
}

TEST_CASE("starts: a folder of an earlier version has a report too") {
    const TemporaryFolder folder;
    const std::string path = make_run(folder / "a");
    write_file(folder / "a/goodput.jsonl",
               goodput_line(1000, 1060, 4, Json::object()) +
                   goodput_line(2000, 2060, 8, Json::object().set("complete", true)));
    const std::string html = report_html(read_runs({path}));
    CHECK_THAT(html, Contains("<dt>Model</dt><dd>llama3 debugmodel</dd>") && Contains("<td>complete</td>"));
    CHECK_THAT(html, !Contains("<th>mesh</th>") && !Contains("killed"));
    fs::remove(folder / "a/goodput.jsonl");
    CHECK_THAT(report_html(read_runs({path})), !Contains("<h2>Starts</h2>"));
}

TEST_CASE("starts: charts have logarithmic axes to switch to, if all values are positive") {
    const TemporaryFolder folder;
    std::string lines;
    for (int step = 1; step <= 100; ++step)
        lines +=
            fmt::format("{{\"step\":{},\"loss\":{},\"lr\":{}}}\n", step, 8.0 / step, step == 1 ? 0 : 1e-3);
    write_file(folder / "a/metrics.jsonl", lines);
    const std::string html = report_html(read_runs({(folder / "a").string()}));
    const Json data = data_of(html);
    const Json::Array& charts = *data.find("charts")->as_array();
    REQUIRE(charts.size() == 2);
    const Json& log_y = *charts[0].find("logY");
    CHECK(*log_y.find("log")->as_boolean());
    CHECK(*log_y.find("low")->as_real() > 0);
    CHECK(*log_y.find("low")->as_real() < 0.08);
    CHECK(log_y.find("ticks")->as_array()->size() >= 3);
    const Json::Array& x = *charts[0].find("x")->as_array();
    REQUIRE(x.size() == 1);  // no line says how many tokens the run had seen
    CHECK(*x[0].find("log")->find("log")->as_boolean());
    CHECK(charts[1].find("logY")->is_null());  // a learning rate of 0
    CHECK(count_of("type=\"checkbox\"", html) == 2);
    CHECK(count_of("<g class=\"axes\">", html) == 2);
}
