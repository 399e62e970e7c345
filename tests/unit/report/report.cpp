// SPDX-License-Identifier: Apache-2.0
// Reports: the data that are read of runs, and what the page, the text and the table show.
#include "coeus/report/report.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "report_data.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string step_line(int64_t step, double loss, double norm = 1) {
    return fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":0.001,"tokens_seen":{},"tps":1500.5,)"
                       R"("mfu":null,"memory_gib":0.5,"step_s":0.25,"data_percent":0.5}})"
                       "\n",
                       step, loss, norm, step * 100);
}
std::string validation_line(int64_t step, double loss) {
    return fmt::format(R"({{"step":{},"validation_loss":{},"memory_gib":9}})"
                       "\n",
                       step, loss);
}

// A run with these lines and this deck.
std::string make_run(const fs::path& folder, const std::string& lines, const std::string& deck = "") {
    write_file(folder / "metrics.jsonl", lines);
    write_file(folder / "deck.toml", deck);
    return folder.string();
}

std::string losses(int count) {
    std::string lines;
    for (int step = 1; step <= count; ++step)
        lines += step_line(step, 2 + 6.0 / step + 0.01 * (step % 7), step % 10 ? 0.25 * (step % 10) : 2.5);
    return lines;
}

std::string error_of(const std::string& path) {
    try {
        read_runs({path});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

// The pieces of a text between `start` and `end`, without these.
std::vector<std::string> between(const std::string& text, const std::string& start, const std::string& end) {
    std::vector<std::string> pieces;
    for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at)) {
        at += start.size();
        pieces.push_back(text.substr(at, text.find(end, at) - at));
    }
    return pieces;
}

// Whether every opened element is closed.
bool is_balanced(const std::string& html) {
    static const std::set<std::string> empty = {"meta", "input",    "line",    "circle",
                                                "path", "polyline", "!DOCTYPE"};
    std::vector<std::string> open;
    for (const std::string& tag : between(html.substr(0, html.find("<script")), "<", ">")) {
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (name[0] != '/') {
            if (!empty.count(name)) open.push_back(name);
        } else {
            if (open.empty() || "/" + open.back() != name) return false;
            open.pop_back();
        }
    }
    return open == std::vector<std::string>{"html", "body"};  // these are closed after the scripts
}

// Whether every point of every line, mark and tick is inside its plot.
bool points_are_inside(const std::string& html) {
    for (const std::string& plot : between(html, "<svg class=\"plot\" viewBox=\"0 0 ", "</svg>")) {
        double width = 0, height = 0;
        std::istringstream(plot) >> width >> height;
        for (const char* place : {" y1=\"", " y2=\"", " cy=\"", " y=\""})
            for (const std::string& y : between(plot, place, "\""))
                if (!(std::stod(y) >= 0 && std::stod(y) <= height)) return false;
        constexpr double below_frame = 40;  // for the numbers
        for (const std::string& grid : between(plot, "class=\"grid\"", "/>"))
            if (!(std::stod(between(grid, "y1=\"", "\"").at(0)) <= height - below_frame)) return false;
        for (const std::string& line : between(plot, "points=\"", "\"")) {
            std::istringstream points(line);
            double x = 0, y = 0;
            char comma = 0;
            while (!(points >> std::ws).eof())
                if (!(points >> x >> comma >> y && x >= 0 && x <= width && y >= 0 && y <= height))
                    return false;
        }
    }
    return true;
}

size_t columns_of(const std::string& line) {
    size_t columns = 0;
    for (const char c : line) columns += (c & 0xC0) != 0x80;
    return columns;
}

}  // namespace

TEST_CASE("report: the data of a run") {
    const TemporaryFolder folder;
    const std::string path =
        make_run(folder / "a",
                 step_line(1, 8) + validation_line(1, 8.5) + step_line(2, 7) + step_line(2, 6.5) +
                     "{\"step\":2,\"event\":\"loss_spike\",\"value\":9}\n{\"step\":2,\"gpu_throttle\":"
                     "\"power cap\"}\n",
                 "[training]\nsteps = 2\n");
    const RunData run = read_runs({path}).at(0);
    CHECK(run.name == "a");
    CHECK(run.of("loss") == MetricSeries{{1, 8}, {2, 6.5}});  // the later of two
    CHECK(run.of("validation_loss") == MetricSeries{{1, 8.5}});
    CHECK(run.of("value").empty());                                   // of an event
    CHECK(run.of("gpu_throttle").empty());                            // not a number
    CHECK(run.of("memory_gib") == MetricSeries{{1, 0.5}, {2, 0.5}});  // not that of the validation
    CHECK(run.of("mfu").empty());
    CHECK(run.of("absent").empty());
    CHECK(run.notices.empty());
    REQUIRE(run.deck.size() == 1);
    CHECK(run.deck[0].key == "training.steps");
    CHECK(run.fields.front() == "loss");
    // the same by its file, and by a path that ends with a slash
    CHECK(read_runs({path + "/metrics.jsonl"}).at(0).of("loss") == run.of("loss"));
    CHECK(read_runs({path + "/"}).at(0).name == "a");
    // runs whose folders have the same name
    const std::string other = make_run(folder / "b/a", step_line(1, 8));
    const std::vector<RunData> both = read_runs({path, other});
    CHECK(both[0].name != both[1].name);
    CHECK(both[1].name == "b/a");
}

TEST_CASE("report: a run that is still running, or has no deck") {
    const TemporaryFolder folder;
    write_file(folder / "a/metrics.jsonl", step_line(1, 8) + "{\"step\":2,\"lo");
    const RunData run = read_runs({(folder / "a").string()}).at(0);
    CHECK(run.of("loss").size() == 1);
    REQUIRE(run.notices.size() == 2);
    CHECK_THAT(run.notices[0], Contains("metrics.jsonl:2: skipped, since the line is incomplete"));
    CHECK_THAT(run.notices[1], Contains("has no deck.toml"));
    CHECK_THAT(report_html({run}), Contains("the line is incomplete"));
    CHECK_THAT(report_text({run}, 80, false), Contains("the line is incomplete"));
}

TEST_CASE("report: folders without a run, and broken ones, are named") {
    const TemporaryFolder folder;
    const auto in = [&](const char* name) { return (folder / name).string(); };
    CHECK_THAT(error_of(in("absent")), Contains("absent does not exist"));
    fs::create_directories(folder / "empty");
    CHECK_THAT(error_of(in("empty")), Contains("empty is not the folder of a run: it has no metrics.jsonl"));
    make_run(folder / "runs/one", step_line(1, 8));
    make_run(folder / "runs/two", step_line(1, 8));
    CHECK_THAT(error_of(in("runs")),
               Contains("runs in it: ") && Contains("runs/one, ") && Contains("runs/two"));
    write_file(folder / "text.txt", "x");
    CHECK_THAT(error_of(in("text.txt")), Contains("text.txt is not a run"));
    const auto error_with = [&](const std::string& lines, const std::string& deck = "") {
        return error_of(make_run(folder / "run", lines, deck));
    };
    CHECK_THAT(error_with(""), Contains("run/metrics.jsonl has no logged step yet"));
    CHECK_THAT(error_with("{\"step\":1,"), Contains("has no logged step yet"));
    CHECK_THAT(error_with(step_line(1, 8) + "nonsense\n" + step_line(2, 7)), Contains("metrics.jsonl:2: "));
    CHECK_THAT(error_with("[1]\n"), Contains("metrics.jsonl:1: is not a JSON object"));
    CHECK_THAT(error_with("{\"loss\":1}\n"), Contains("metrics.jsonl:1: ") && Contains("step"));
    CHECK_THAT(error_with("{\"step\":1,\"loss\":\"x\"}\n"),
               Contains("metrics.jsonl:1: ") && Contains("loss"));
    CHECK_THAT(error_with(step_line(1, 8), "steps = = 2\n"), Contains("deck.toml:1:"));
}

TEST_CASE("report: the table of values") {
    const TemporaryFolder folder;
    const std::string a = make_run(folder / "a, b",
                                   "{\"step\":1,\"loss\":0.1,\"lr\":1e-05}\n"
                                   "{\"step\":2,\"validation_loss\":3.3333333333333335}\n");
    const std::string b = make_run(folder / "c", "{\"step\":10,\"grad_norm\":2,\"loss\":1.5}\n");
    CHECK(report_csv(read_runs({a, b})) ==
          "run,step,loss,lr,validation_loss,grad_norm\n"
          "\"a, b\",1,0.1,1e-05,,\n"
          "\"a, b\",2,,,3.3333333333333335,\n"
          "c,10,1.5,,,2\n");
}

TEST_CASE("report: the page of one run") {
    const TemporaryFolder folder;
    const std::string path = make_run(folder / "run", losses(50) + validation_line(50, 2.5),
                                      "[job]\ndescription = \"a <b> & c\"\n");
    const std::string html = report_html(read_runs({path}));
    CHECK(is_balanced(html));
    CHECK(points_are_inside(html));
    CHECK_THAT(html, Contains("a &lt;b&gt; &amp; c") && Contains("<title>run</title>"));
    CHECK_THAT(html, Contains(">Loss<") && Contains(">Gradient norm<") && Contains(">Learning rate<") &&
                         Contains(">Throughput<") && Contains(">Memory<") && Contains("GiB"));
    CHECK_THAT(html, !Contains("Loss over tokens"));
    CHECK(count_of("class=\"mark\"", html) == 2);  // one value, and the legend
    // the page loads nothing
    for (const char* outside : {"src=", "href=", "url(", "@import", "https:", "fetch("})
        CHECK_THAT(html, !Contains(outside));
    CHECK(count_of("http:", html) == 1);  // the name of SVG's elements
    const Json data = data_of(html);
    const Json& loss = (*data.find("charts")->as_array())[0];
    const Json& curve = (*loss.find("curves")->as_array())[0];
    CHECK(*curve.find("name")->as_string() == "training");
    const Json::Array& points = *curve.find("points")->as_array();
    REQUIRE(points.size() == 50);
    CHECK(*(*points[9].as_array())[1].as_real() == 2 + 0.6 + 0.03);
}

TEST_CASE("report: the page of several runs") {
    const TemporaryFolder folder;
    const std::string a =
        make_run(folder / "b/script>/a", losses(30), "[optimizer]\nlr = 0.1\n[job]\ndump_folder = \"a\"\n");
    const std::string b =
        make_run(folder / "</script>/a", losses(20) + validation_line(25, 2) + step_line(30, 2),
                 "[optimizer]\nlr = 0.2\neps = 1\n[job]\ndump_folder = \"b\"\n");
    const std::string html = report_html(read_runs({a, b}));
    CHECK(is_balanced(html));
    CHECK(points_are_inside(html));
    CHECK(count_of("</script>", html) == 2);  // the name of the second run is "</script>/a"
    CHECK_THAT(html, Contains("Loss over tokens") && Contains("Loss over training time") &&
                         Contains("seconds in training steps"));
    CHECK_THAT(html, Contains("<code>optimizer.lr</code></th><td><code>0.1</code></td><td><code>0.2</code>"));
    CHECK_THAT(html, Contains("<code>optimizer.eps</code></th><td></td><td><code>1</code>"));
    CHECK_THAT(html, !Contains("job.dump_folder"));
    CHECK_THAT(report_html(read_runs({a, a})), Contains("the decks are equal"));
    // over tokens: 100 per step
    const Json data = data_of(html);
    const Json& tokens = (*data.find("charts")->as_array())[1];
    const Json::Array& points = *(*tokens.find("curves")->as_array())[1].find("points")->as_array();
    REQUIRE(points.size() == 21);
    CHECK(*(*points[20].as_array())[0].as_real() == 3000);
    const Json& validation = (*tokens.find("curves")->as_array())[2];
    CHECK(*validation.find("name")->as_string() == "</script>/a (validation)");
    // between steps 20 and 30
    const Json::Array& marks = *validation.find("points")->as_array();
    CHECK(*(*marks.at(0).as_array())[0].as_real() == 2500);
}

TEST_CASE("report: the steps of a page can be drawn over tokens and over the time of the run") {
    const TemporaryFolder folder;
    const auto line = [](int step, const std::string& more) {
        return fmt::format("{{\"step\":{},\"loss\":{},\"tokens_seen\":{}{}}}\n", step, 2 + 6.0 / step,
                           step * 4096, more);
    };
    std::string timed, untimed;
    for (int step = 1; step <= 1001; ++step) {
        // a restart before step 501 takes an hour
        timed += line(step, fmt::format(",\"time\":{},\"run_s\":{}", 1764515181 + step,
                                        step * 7.2 + (step > 500 ? 3600 : 0)));
        untimed += line(step, "");
    }
    const std::string with = make_run(folder / "with", timed + validation_line(1010, 2)),
                      without = make_run(folder / "without", untimed);
    const std::string html = report_html(read_runs({with}));
    CHECK(is_balanced(html));
    CHECK_THAT(html, Contains("> steps</label>") && Contains("> tokens</label>") &&
                         Contains("> hours of the run</label>") && Contains("id=\"smoothing\""));
    const Json data = data_of(html);
    const Json::Array& places = *data.find("places")->as_array();
    REQUIRE(places.size() == 2);
    CHECK(*places[1].find("title")->as_string() == "hours of the run");
    const Json::Array& hours = *(*places[1].find("runs")->as_array())[0].as_array();
    CHECK(hours.size() <= 401);
    const auto number = [](const Json& value) {
        return value.as_real() ? *value.as_real() : double(*value.as_integer());
    };
    for (const Json& place : hours) {
        const double step = number((*place.as_array())[0]), hour = number((*place.as_array())[1]);
        CHECK(close(hour, step * 0.002 + (step > 500 ? 1 : 0), 1e-7));
    }
    CHECK(number((*hours.back().as_array())[0]) == 1001);
    const Json& chart = (*data.find("charts")->as_array())[0];
    const Json::Array& axes = *chart.find("x")->as_array();
    REQUIRE(axes.size() == 3);
    CHECK(*axes[0].find("title")->as_string() == "step");
    CHECK(number(*axes[1].find("linear")->find("low")) == 4096);
    CHECK(number(*axes[1].find("linear")->find("high")) ==
          4100096);  // the validation is after the last place
    CHECK(close(number(*axes[2].find("linear")->find("high")), 3.002, 1e-9));
    CHECK(number(*axes[2].find("log")->find("low")) > 0);
    // of 1001 values, the page has the means of 400 stretches for other windows
    const Json& curve = (*chart.find("curves")->as_array())[0];
    CHECK(*curve.find("values")->as_integer() == 1001);
    CHECK(*curve.find("noisy")->as_boolean());
    const Json::Array& means = *curve.find("means")->as_array();
    REQUIRE(means.size() == 400);
    CHECK(close(number((*means[0].as_array())[1]), (8 + 5) / 2.0, 1e-12));

    // a run whose version did not write the time
    const std::string old = report_html(read_runs({without}));
    CHECK_THAT(old, Contains("> tokens</label>") && !Contains("of the run</label>"));
    const Json both = data_of(report_html(read_runs({with, without})));
    const Json::Array& of_both = *(*both.find("charts")->as_array())[0].find("x")->as_array();
    REQUIRE(of_both.size() == 3);
    CHECK_FALSE(of_both[1].is_null());
    CHECK(of_both[2].is_null());
}

TEST_CASE("report: no name of a run can end the page's data, or hide their end") {
    const TemporaryFolder folder;
    for (const char* name : {"<!--<script>", "</script>", "<!--", "a<b"}) {
        const std::string html = report_html(read_runs({make_run(folder / name / "x", losses(3))}));
        CHECK(is_balanced(html));
        const std::string data = between(html, "id=\"data\">", "</script>").at(0);
        CHECK(data.find('<') == std::string::npos);
        CHECK(data_of(html).find("charts")->as_array() != nullptr);
    }
}

TEST_CASE("report: many values are thinned without losing a peak, and their mean is drawn") {
    const TemporaryFolder folder;
    std::string lines;
    for (int step = 1; step <= 5000; ++step) lines += step_line(step, step == 2345 ? 77.5 : 3 + step % 2);
    const std::string html = report_html(read_runs({make_run(folder / "run", lines)}));
    CHECK(points_are_inside(html));
    CHECK(html.size() < 300'000);
    CHECK_THAT(html, Contains("moving mean"));
    const Json data = data_of(html);
    const Json& loss = (*data.find("charts")->as_array())[0];
    const Json::Array& points = *(*loss.find("curves")->as_array())[0].find("points")->as_array();
    CHECK(points.size() <= 802);
    CHECK(*(*points.front().as_array())[0].as_real() == 1);
    CHECK(*(*points.back().as_array())[0].as_real() == 5000);
    int peaks = 0;
    for (const Json& point : points) peaks += *(*point.as_array())[1].as_real() == 77.5;
    CHECK(peaks == 1);
}

TEST_CASE("report: results of evaluations are curves beside the loss") {
    const TemporaryFolder folder;
    const std::string run = make_run(folder / "run", losses(3));
    const auto line = [](int64_t step, const char* task, const char* metric, double value) {
        return fmt::format(R"({{"step":{},"task":"{}","metric":"{}","value":{},"lines":4}})"
                           "\n",
                           step, task, metric, value);
    };
    // the later result of a step counts, and a line that is cut off does not
    write_file(folder / "run/evaluation.jsonl",
               line(1, "arc_easy", "acc", 0.5) + line(1, "arc_easy", "acc_norm", 0.25) +
                   line(2, "arc_easy", "acc", 0.125) + line(2, "arc_easy", "acc", 0.75) +
                   line(2, "books", "loss", 3.5) +
                   R"({"step":2,"task":"arc_easy","metric":"acc","value":0.875,"lines":4,)"
                   R"("settings":{"dtype":"float32","context":16}})"
                   "\n" +
                   R"({"step":3,"task":"arc)");
    const std::vector<RunData> runs = read_runs({run});
    CHECK(runs[0].of("arc_easy acc") == MetricSeries{{1, 0.5}, {2, 0.75}});
    CHECK(runs[0].of("books loss") == MetricSeries{{2, 3.5}});
    // values of other settings are another curve
    CHECK(runs[0].of("arc_easy (dtype float32, context 16) acc") == MetricSeries{{2, 0.875}});
    const std::string html = report_html(runs);
    CHECK(is_balanced(html));
    CHECK_THAT(html, Contains("Accuracy on arc_easy<") && Contains("Loss of books<") &&
                         Contains("Accuracy on arc_easy (dtype float32, context 16)<"));
    CHECK(html.find("Accuracy on arc_easy") < html.find("Gradient norm"));
    CHECK_THAT(report_csv(runs), Contains("arc_easy acc_norm") && Contains(",0.75,"));
}

TEST_CASE("report: gradient norms over several decades are drawn on a log scale") {
    const TemporaryFolder folder;
    std::string wide, narrow, zero;
    for (int step = 1; step <= 9; ++step) {
        wide += step_line(step, 3, std::pow(10, step - 5));
        narrow += step_line(step, 3, step);
        zero += step_line(step, 3, step == 1 ? 0 : 1000);
    }
    const std::string drawn = report_html(read_runs({make_run(folder / "wide", wide)}));
    CHECK_THAT(drawn, Contains("log scale") && Contains(">0.01<") && Contains(">1000<"));
    CHECK(points_are_inside(drawn));
    // equal factors have equal distances: 9 values, one per decade
    const std::string plot = between(drawn, "Gradient norm over step", "</svg>").at(0);
    std::istringstream points(between(plot, "points=\"", "\"").at(0));
    std::vector<double> heights;
    double x = 0, y = 0;
    for (char comma = 0; points >> x >> comma >> y;) heights.push_back(y);
    REQUIRE(heights.size() == 9);
    for (size_t i = 1; i < 9; ++i)
        CHECK(close(heights[i - 1] - heights[i], (heights[0] - heights[8]) / 8, 0.2));
    CHECK_THAT(report_html(read_runs({make_run(folder / "narrow", narrow)})), !Contains("log scale"));
    CHECK_THAT(report_html(read_runs({make_run(folder / "zero", zero)})), !Contains("log scale"));
}

TEST_CASE("report: runs of one step, of equal values, of other fields") {
    const TemporaryFolder folder;
    for (const std::string& lines :
         {step_line(1, 8), step_line(1, 0), step_line(1, 3) + step_line(2, 3) + step_line(3, 3),
          validation_line(7, 2), std::string("{\"step\":3,\"loss\":-1.5}\n"),
          std::string("{\"step\":0,\"loss\":1e300}\n")}) {
        CAPTURE(lines);
        const std::vector<RunData> runs = read_runs({make_run(folder / "run", lines)});
        const std::string html = report_html(runs);
        CHECK(is_balanced(html));
        CHECK(points_are_inside(html));
        CHECK_FALSE(report_text(runs, 80, false).empty());
    }
    // nothing to plot is not an error
    const std::vector<RunData> other = read_runs({make_run(folder / "other", "{\"step\":1,\"x\":2}\n")});
    CHECK(is_balanced(report_html(other)));
    CHECK(report_csv(other) == "run,step,x\nother,1,2\n");
    CHECK_FALSE(report_text(other, 80, false).empty());
}

TEST_CASE("report: text for a terminal") {
    const TemporaryFolder folder;
    const std::string a =
        make_run(folder / "a", losses(120) + validation_line(60, 2.5), "[optimizer]\nlr = 0.1\n");
    const std::string b = make_run(folder / "b", losses(80), "[optimizer]\nlr = 0.2\n");
    for (const int columns : {60, 100}) {
        for (const auto& paths : {std::vector{a}, std::vector{a, b}}) {
            const std::string text = report_text(read_runs(paths), columns, false);
            INFO(text);
            CHECK(text.find('\033') == std::string::npos);
            std::istringstream lines(text);
            for (std::string line; std::getline(lines, line);) CHECK(columns_of(line) <= size_t(columns) + 8);
            CHECK(count_of("○", text) == 2);  // one value, and the legend
            CHECK_THAT(text, Contains("Loss (nats per token)") && Contains("step") && Contains("⠤"));
            CHECK_THAT(text,
                       Contains("▄") && Contains("always 1500 tokens/s") && Contains("0.25 to 2.5, last "));
            CHECK_THAT(text, Contains("lowest validation loss"));
            CHECK((text.find("optimizer.lr  0.1  0.2") != std::string::npos) == (paths.size() == 2));
        }
    }
    // with colour, the runs share a plot
    const std::string colored = report_text(read_runs({a, b}), 100, true);
    CHECK(count_of("┤", colored) < count_of("┤", report_text(read_runs({a, b}), 100, false)));
    const std::regex code("\033\\[\\d+m");
    CHECK(std::regex_replace(colored, code, "").find('\033') == std::string::npos);
}

TEST_CASE("report: a file that cannot be written is named") {
    const TemporaryFolder folder;
    write_report(folder / "a.html", "x");
    CHECK(read_file(folder / "a.html") == "x");
    CHECK_FALSE(fs::exists(folder / "a.html.part"));
    CHECK_THROWS_WITH(write_report(folder / "absent/a.html", "x"),
                      Contains("absent/a.html cannot be written: No such file or directory"));
    fs::create_directories(folder / "folder/inside");
    CHECK_THROWS_AS(write_report(folder / "folder", "x"), ConfigError);
}

TEST_CASE("report: how the wall time of all starts was spent") {
    const TemporaryFolder folder;
    make_run(folder / "a", losses(20));
    make_run(folder / "b", losses(20));
    const auto line = [](double start, double time, int64_t step, double start_up, double steps) {
        return fmt::format(R"({{"start":{},"time":{},"step":{},"start_up_s":{},"step_s":{},"data_s":0,)"
                           R"("validation_s":0,"saving_s":0}})"
                           "\n",
                           start, time, step, start_up, steps);
    };
    write_file(folder / "a/goodput.jsonl", line(100, 105, 0, 5, 0) + line(100, 150, 20, 5, 45) +
                                               line(170, 180, 10, 10, 0) + line(170, 200, 20, 10, 20));
    const auto paths = [&](const char* name) { return (folder / name).string(); };
    const std::vector<RunData> one = read_runs({paths("a")}), both = read_runs({paths("a"), paths("b")});
    CHECK(one[0].goodput.starts == 2);
    CHECK(both[1].goodput.starts == 0);
    const std::string text = report_text(one, 80, false), html = report_html(one);
    CHECK_THAT(text, Contains("goodput, of wall time") && Contains("42.5 % of 1 m 40 s") &&
                         Contains("\n"
                                  "Wall time\n"
                                  "Goodput 42.5 %") &&
                         Contains("\u2588 useful steps 42.5 %  + start-up 15.0 %  x repeated steps 22.5 %  - "
                                  "between starts 20.0 %\n"));
    CHECK(count_of("\u2588", text) >= 34 + 1);
    CHECK(is_balanced(html));
    CHECK(count_of("<div class=\"bar\">", html) == 1);
    CHECK_THAT(html, Contains("width:42.50%") && Contains("between starts 20.0 %"));
    CHECK(count_of("<div class=\"bar\">", report_html(both)) == 1);
    CHECK_THAT(report_html(read_runs({paths("b")})), !Contains("<div class=\"bar\">"));
}

TEST_CASE("report: words in metrics.jsonl are not plotted") {
    const TemporaryFolder folder;
    const std::string run = make_run(
        folder / "a", R"({"step":1,"loss":2,"gpu_throttle":"thermal"})"
                      "\n"
                      R"({"step":1,"straggler_phase":"compute","straggler_ms":12.5,"straggler_group":[1,3]})"
                      "\n");
    const std::vector<RunData> runs = read_runs({run});
    CHECK(runs[0].fields == std::vector<std::string>{"loss", "straggler_ms"});
}

TEST_CASE("report: values so large, small or similar that their differences cannot be drawn") {
    const TemporaryFolder folder;
    for (const char* pair : {"1e300 -1e300", "0 1e-310", "1 1.0000000000000002", "-1e-310 9e299"}) {
        std::istringstream values(pair);
        std::string first, second;
        values >> first >> second;
        std::string lines;
        for (int step = 1; step <= 20; ++step)
            lines += fmt::format("{{\"step\": {}, \"loss\": {}, \"grad_norm\": {}}}\n", step,
                                 step % 2 ? first : second, step % 3 ? first : second);
        lines += "{\"step\": 21, \"loss\": 2}\n";
        const auto runs = read_runs({make_run(folder / "run", lines)});
        CHECK(points_are_inside(report_html(runs)));
        CHECK_THAT(report_text(runs, 80, false), !Contains("nan"));
    }
}

TEST_CASE("report: a run with experts has a heat map of their loads, and another has none") {
    const TemporaryFolder folder;
    const std::string dense = make_run(folder / "dense", losses(3)),
                      moe = make_run(folder / "moe", losses(3));
    write_file(folder / "moe/expert_loads.jsonl",
               "{\"step\":1,\"layers\":{\"0\":[100,100],\"1\":[50,150]}}\n"
               "{\"step\":3,\"layers\":{\"0\":[0,200],\"1\":[1");
    const std::vector<RunData> one = read_runs({moe});
    CHECK(one[0].notices.empty());
    const std::string html = report_html(one);
    CHECK(is_balanced(html));
    CHECK(count_of("<svg class=\"map\"", html) == 1);
    CHECK_THAT(html, Contains("Loads of experts<small>"));
    const Json data = data_of(html);
    const Json::Array& maps = *data.find("maps")->as_array();
    REQUIRE(maps.size() == 1);
    CHECK(*(*maps[0].find("layers")->as_array())[1].as_string() == "Fd");
    const std::string without = report_html(read_runs({dense}));
    CHECK(count_of("<svg class=\"map\"", without) == 0);
    CHECK_THAT(without, Contains("\"maps\":[]"));
    const std::string both = report_html(read_runs({dense, moe}));
    CHECK(is_balanced(both));
    CHECK(count_of("<svg class=\"map\"", both) == 1);
    CHECK_THAT(both, Contains("Loads of experts in moe<small>"));
}
