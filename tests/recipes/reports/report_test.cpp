#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/recipes/reports/data_report.h"
#include "steelyard/recipes/reports/html.h"
#include "steelyard/recipes/reports/run_report.h"
#include "steelyard/recipes/reports/step_report.h"
#include "steelyard/recipes/reports/svg_chart.h"
#include "steelyard/recipes/runs/records/metrics_history.h"
#include "steelyard/recipes/runs/run.h"
#include "tests/recipes/recipe_support.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Html, EscapesText) {
  EXPECT_EQ(html_escaped("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(html_escaped("\xff\x01"), "\\xff\\x01");
}

// RFC 4648's examples; a style sheet's hash as `openssl dgst -sha256 -binary | base64` prints it.
TEST(Html, NamesTheOnlyStyleSheetByItsHash) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(policy_and_style("p { margin: 0; }"),
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
            "'sha256-ZMIWxFqsI8wXm9tNjoL6Cyi5nRfO7zhfynHh3P3TR9s='; img-src data:; "
            "base-uri 'none'; form-action 'none'\">\n<style>p { margin: 0; }</style>\n");
}

TEST(SvgChart, EscapesText) {
  EXPECT_THAT(line_chart({"<t>", "<x>", {{.name = "<s>"}, {.name = "&"}}}),
              Not(::testing::ContainsRegex("<[txs]>")));
}

// 296 units from the axis to the edge, 7.5 for a letter: 39 letters.
TEST(SvgChart, LongTitlesLoseTheirMiddle) {
  const auto shown = [](const std::string& title) {
    HistogramChart chart;
    chart.title = title;
    const std::string svg = histogram_chart(chart);
    EXPECT_THAT(svg, HasSubstr("aria-label=\"" + title + "\""));
    const std::size_t begin = svg.find('>', svg.find("class=\"title\"")) + 1;
    return svg.substr(begin, svg.find('<', begin) - begin);
  };
  EXPECT_EQ(shown(std::string(39, 'a')), std::string(39, 'a'));
  const std::string name = "head." + std::string(80, 'x') + ".tail";
  EXPECT_EQ(shown(name + " weights"), "head." + std::string(14, 'x') + "…xxxxxx.tail weights");
  EXPECT_EQ(shown(name + " activations"), "head." + std::string(14, 'x') + "…xx.tail activations");
  EXPECT_EQ(shown("é漢" + std::string(80, 'x') + "字"),
            "é漢" + std::string(16, 'x') + "…" + std::string(17, 'x') + "字");
}

TEST(SvgChart, TicksAreRound) {
  EXPECT_THAT(axis_ticks(0, 1, 4), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(axis_ticks(-3, 17, 4), ElementsAre(0, 5, 10, 15));
  EXPECT_THAT(axis_ticks(2, 2, 4), ElementsAre(2));
  const std::vector<double> tiny = axis_ticks(0, 3e-9, 3);
  EXPECT_EQ(tiny.size(), 4U);
  EXPECT_DOUBLE_EQ(tiny.back(), 3e-9);
}

// Every point in its place: the extremes of x and y touch the plot's sides.
TEST(SvgChart, DrawsPointsToScale) {
  const std::string svg = line_chart(
      {"t", "step", {{.name = "s", .points = {{100, -1}, {150, 0}, {200, 1}}, .dots = true}}});
  EXPECT_THAT(svg, HasSubstr("M52.00 203.70L240.00 125.00L428.00 46.30"));
  EXPECT_THAT(svg, HasSubstr("cx=\"240.00\" cy=\"125.00\""));
}

TEST(SvgChart, SurvivesWhatIsNotFinite) {
  const std::string svg = line_chart(
      {"t", "x", {{.name = "s", .points = {{1, NAN}, {2, INFINITY}, {3, 5.0}, {4, 5.0}}}}});
  EXPECT_THAT(svg, HasSubstr("class=\"line c1\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(line_chart({"t", "x", {{.name = "s"}}}), Not(HasSubstr("nan")));
}

// Bins at [0, 1), [1, 2), [2, 3); range 0..2 of the axis -0.06..3.06.
TEST(SvgChart, MarksTheRangeAndTheLevels) {
  HistogramChart chart;
  chart.title = "h";
  chart.histogram.bin_width = 1;
  chart.histogram.counts = {10, 0, 1};
  chart.range = {0, 2};
  chart.levels = {0, 1, 2};
  const std::string svg = histogram_chart(chart);
  const auto x = [](double value) { return 34 + (value + 0.06) / 3.12 * (322 - 34); };
  char expected[100];
  std::snprintf(expected, sizeof expected,
                "<rect class=\"range\" x=\"%.2f\" y=\"24.00\" width=\"%.2f\"", x(0), x(2) - x(0));
  EXPECT_THAT(svg, HasSubstr(expected));
  std::snprintf(expected, sizeof expected, "<line class=\"limit\" x1=\"%.2f\"", x(2));
  EXPECT_THAT(svg, HasSubstr(expected));
  std::snprintf(expected, sizeof expected, "<line class=\"level\" x1=\"%.2f\"", x(1));
  EXPECT_THAT(svg, HasSubstr(expected));
  std::snprintf(expected, sizeof expected, "M%.2f 132.00V", x(2));  // the bar of the third bin
  EXPECT_THAT(svg, HasSubstr(expected));
  std::snprintf(expected, sizeof expected, "M%.2f 132.00V", x(1));  // an empty bin has none
  EXPECT_THAT(svg, Not(HasSubstr(expected)));
}

TEST(SvgChart, JoinsBinsOfFewValues) {
  HistogramChart chart;
  chart.histogram.bin_width = 1;
  chart.histogram.counts.assign(64, 1);
  const auto bars = [&] {
    const std::string svg = histogram_chart(chart);
    const std::string path = svg.substr(svg.find("class=\"bar\""));
    return std::count(path.begin(), path.end(), 'Z');
  };
  EXPECT_EQ(bars(), 32);
  chart.histogram.counts.assign(64, 4);
  EXPECT_EQ(bars(), 64);
}

TEST(MetricsHistory, ReadsBackWhatRunsWrite) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(
      folder / "m.jsonl",
      R"({"type":"step","step":10,"epoch":1,"loss":0.5,"lr":0.1})"
      "\n"
      R"({"type":"epoch","step":12,"epoch":1,"train_loss":0.4,"validation":{"loss":0.3,"top1":90.5},"seconds":1})"
      "\n"
      R"({"type":"epoch","step":24,"epoch":2,"train_loss":0.2,"seconds":2})"
      "\n"
      R"({"type":"step","step":"30","loss":0.5,"lr":0.1})"
      "\nnonsense\n[1]\n{\"type\":\"other\",\"step\":1}\n"
      R"({"type":"step","step":1.5,"loss":0.5,"lr":0.1})"
      "\n"
      R"({"type":"epoch","step":12,"epoch":18446744073709551615,"train_loss":0.4})"
      "\n"
      R"({"type":"test","step":24,"loss":0.25,"seconds":2})"
      "\n"
      R"({"type":"st)");
  const MetricsHistory history = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(history.steps.size(), 1U);
  EXPECT_EQ(history.steps[0].lr, 0.1);
  ASSERT_EQ(history.epochs.size(), 2U);
  EXPECT_EQ(history.epochs[0].validation->top1, 90.5);
  EXPECT_FALSE(history.epochs[1].validation);
  EXPECT_EQ(history.test->loss, 0.25);
  EXPECT_FALSE(history.test->top1);
  EXPECT_EQ(history.unreadable_lines, 7);
  EXPECT_FALSE(history.diverged);
  testing::write_bytes(folder / "d.jsonl",
                       R"({"type":"diverged","step":7,"what":"step 8: loss is nan","seconds":1})"
                       "\n");
  const MetricsHistory diverged = read_metrics(folder / "d.jsonl");
  EXPECT_EQ(diverged.diverged->step, 7);
  EXPECT_EQ(diverged.diverged->what, "step 8: loss is nan");
  EXPECT_EQ(diverged.unreadable_lines, 0);
  EXPECT_FALSE(diverged.diverged->is_collapse());
  EXPECT_THROW(read_metrics(folder / "none"), InputError);
}

TEST(MetricsHistory, TellsCollapsesFromDivergences) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(
      folder / "m.jsonl",
      R"({"type":"epoch","step":9,"epoch":1,"train_loss":0.4,"collapse":"epoch 1: <lost>"})"
      "\n"
      R"({"type":"epoch","step":18,"epoch":2,"train_loss":0.2})"
      "\n"
      R"json({"type":"diverged","step":18,"what":"epoch 2: lost (on_collapse: stop)"})json"
      "\n");
  RunReport report;
  report.history = read_metrics(folder / "m.jsonl");
  EXPECT_EQ(report.history->unreadable_lines, 0);
  EXPECT_TRUE(report.history->diverged->is_collapse());
  EXPECT_EQ(collapsed_epochs(report), std::vector<std::string>{"epoch 1: <lost>"});
  const std::string page = report_page(report);
  EXPECT_THAT(page, HasSubstr("Epochs that lost what the run knew"));
  EXPECT_THAT(page, HasSubstr("<li>epoch 1: &lt;lost&gt;</li>"));
  EXPECT_TRUE(is_report_page(page));
  EXPECT_FALSE(is_report_page(page.substr(1)));
  EXPECT_FALSE(is_report_page(page.substr(0, 1000)));
}

TEST(ReportPage, SaysWhatStepsWaitedForTheirBatches) {
  const testing::TemporaryFolder folder;
  const auto page = [&](const std::string& seconds) {
    testing::write_bytes(folder / "m.jsonl",
                         R"({"type":"epoch","step":12,"epoch":1,"train_loss":0.4,"rank_seconds":)" +
                             seconds + "}\n");
    RunReport report;
    report.history = read_metrics(folder / "m.jsonl");
    EXPECT_EQ(report.history->unreadable_lines, 0);
    return report_page(report);
  };
  EXPECT_THAT(
      page(R"({"compute":[3,4],"reduce":[0,0],"wait":[2,1],"batches":[2,1],"making":[9,8]})"),
      HasSubstr("In training the steps waited 30.0 % of their time for batches (3.00 of "
                "10.00 s), which took 17.00 s of processor time: smaller images"));
  EXPECT_THAT(page(R"({"compute":[10],"reduce":[0],"wait":[0],"batches":[3],"making":[0.2]})"),
              HasSubstr("which took 0.20 s of processor time: files that come slowly"));
  EXPECT_THAT(page(R"({"compute":[10],"reduce":[0],"wait":[0],"batches":[0.49],"making":[9]})"),
              HasSubstr("In training the steps waited 4.9 % of their time for batches.<"));
  EXPECT_THAT(page(R"({"compute":[10],"reduce":[0],"wait":[0]})"), Not(HasSubstr("for batches")))
      << "of an earlier version";
}

// Images that count how often each of them is decoded.
class CountedImages : public ImageSource {
 public:
  explicit CountedImages(std::int64_t size) : decoded_(static_cast<std::size_t>(size)) {}
  std::int64_t size() const override { return std::ssize(decoded_); }
  std::string name(std::int64_t index) const override { return std::to_string(index); }
  std::string content_digest(std::int64_t index) const override { return name(index / 2); }
  Image image(std::int64_t index, std::int64_t channels, std::string* digest) const override {
    ++decoded_[static_cast<std::size_t>(index)];
    if (digest != nullptr) *digest = content_digest(index);
    Image image{4 + index, 5, channels, {}};
    image.pixels.assign(static_cast<std::size_t>((4 + index) * 5 * channels), 51);
    return image;
  }
  std::vector<int> decoded() const { return {decoded_.begin(), decoded_.end()}; }

 private:
  mutable std::vector<std::atomic<int>> decoded_;
};

TEST(DataReport, DecodesEveryImageOnce) {
  const auto trained = std::make_shared<CountedImages>(4),
             tested = std::make_shared<CountedImages>(3);
  const auto dataset = [](const std::shared_ptr<CountedImages>& images) {
    Dataset d{{}, Tensor::zeros({images->size()}, DType::kI64), 2};
    d.source = image_samples(images, {.resize = {{2, 2}}});
    return d;
  };
  DatasetSplits splits{dataset(trained), dataset(tested)};
  splits.train.targets.data<std::int64_t>()[3] = 1;
  const DataReport report = describe_data(splits);
  EXPECT_THAT(trained->decoded(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(tested->decoded(), ElementsAre(1, 1, 1));
  EXPECT_FLOAT_EQ(report.statistics.mean[2], 0.2F);
  const std::array<std::array<std::int64_t, 2>, 2> sizes{{{4, 5}, {7, 5}}};
  EXPECT_EQ(report.image_sizes, sizes);
  EXPECT_THAT(report.of_two_targets, ElementsAre(DataReport::Pair{"2", "3"}));
  EXPECT_THAT(report.tested_and_trained,
              ElementsAre(DataReport::Pair{"0", "0"}, DataReport::Pair{"1", "0"},
                          DataReport::Pair{"2", "2"}));
}

// One damaged image does not hide what the others say.
TEST(DataReport, DescribesWhatCanBeRead) {
  class WithDamage : public CountedImages {
   public:
    using CountedImages::CountedImages;
    Image image(std::int64_t index, std::int64_t channels, std::string* digest) const override {
      if (index % 4 == 1) throw InputError(name(index) + ": damaged");
      return CountedImages::image(index, channels, digest);
    }
  };
  const auto dataset = [](std::int64_t count) {
    Dataset d{{}, Tensor::zeros({count}, DType::kI64), 2};
    for (std::int64_t i = 0; i < count; ++i) d.targets.data<std::int64_t>()[i] = i % 2;
    d.source = image_samples(std::make_shared<WithDamage>(count), {.resize = {{2, 2}}});
    return d;
  };
  const DataReport report = describe_data({dataset(7), dataset(3)});
  EXPECT_THAT(report.faults, ElementsAre("1: damaged", "5: damaged", "1: damaged"));
  EXPECT_EQ(report.splits.train.size(), 5);
  EXPECT_EQ(report.splits.test.size(), 2);
  EXPECT_THAT(report.train_counts, ElementsAre(4, 1));
  EXPECT_FLOAT_EQ(report.statistics.mean[0], 0.2F);
  const std::string text = to_string(report, 2);
  EXPECT_THAT(text, HasSubstr("train: 5 samples u8 [2, 2, 3], 2 of them for validation\n"));
  EXPECT_THAT(text, HasSubstr("samples that cannot be read, and count nowhere here: 3\n"
                              "  1: damaged\n  5: damaged\n  1: damaged\n"));
  const std::int64_t damaged[] = {1};
  EXPECT_EQ(rejection([&] {
              describe_data({select_samples(dataset(2), damaged), dataset(1)});
            }),
            "no training sample can be read, the first: 1: damaged");
}

// Two rows of a table may agree in every feature and differ in what is predicted.
TEST(DataReport, NumbersAsTargetsTellSamplesApart) {
  const auto rows = [](std::vector<float> targets) {
    const auto count = std::ssize(targets);
    return Dataset{Tensor::zeros({count, 2}), Tensor::from(targets, {count, 1}), 0};
  };
  const DataReport report = describe_data({rows({1, 2}), rows({3, 2})});
  EXPECT_THAT(report.tested_and_trained, ElementsAre(DataReport::Pair{"sample 1", "sample 1"}));
  EXPECT_TRUE(report.of_two_targets.empty());
}

TEST(DataReport, EqualSamplesWithOtherLabels) {
  const auto rows = [](std::vector<float> marks) {
    const auto count = std::ssize(marks) / 2;
    return Dataset{Tensor::zeros({count, 2}), Tensor::from(marks, {count, 2}), 2};
  };
  const DatasetSplits splits{rows({1, 0, 1, 0, 1, 1}), rows({1, 0})};
  const DataReport report = describe_data(splits);
  EXPECT_THAT(report.of_two_targets, ElementsAre(DataReport::Pair{"sample 0", "sample 2"}));
  EXPECT_THAT(to_string(report, 2), HasSubstr("train: 3 samples f32 [2], 2 of them for"));
  EXPECT_THAT(to_string(report, 3),
              HasSubstr("train: 3 samples f32 [2], too few for data.validation: 3\n"));
}

TEST(ReportPage, SaysWhatIsMissing) {
  RunReport report;
  report.name = "a<b";
  report.recipe = "name: \"<i>\"\n";
  report.missing = {{"curves", "metrics.jsonl: no <such> file"},
                    {"weights, activations and accuracy", "no data"}};
  const std::string page = report_page(report);
  EXPECT_THAT(page, HasSubstr("<title>a&lt;b</title>"));
  EXPECT_THAT(page, HasSubstr("Not shown: metrics.jsonl: no &lt;such&gt; file"));
  EXPECT_THAT(page, HasSubstr("Not shown: no data"));
  EXPECT_THAT(page, HasSubstr("name: &quot;&lt;i&gt;&quot;"));
  EXPECT_EQ(page, report_page(report));
}

TEST(SvgChart, BarsStandBehindEachOther) {
  const std::string svg = bar_chart({.title = "<t>",
                                     .x_label = "ms",
                                     .parts = {"a", "<b>"},
                                     .rows = {{"first", {1, 3}}, {"<second>", {NAN, 2}}}});
  EXPECT_THAT(svg, Not(HasSubstr("<t>")));
  EXPECT_THAT(svg, Not(HasSubstr("<second>")));
  // 650 units for 4 ms.
  EXPECT_THAT(svg, HasSubstr("class=\"part p1\" x=\"230.00\" y=\"38.00\" width=\"162.50\""));
  EXPECT_THAT(svg, HasSubstr("class=\"part p2\" x=\"392.50\" y=\"38.00\" width=\"487.50\""));
  EXPECT_THAT(svg, HasSubstr("class=\"part p2\" x=\"230.00\" y=\"55.00\" width=\"325.00\""));
  EXPECT_THAT(bar_chart({"empty", "ms", {}, {}}), HasSubstr("</svg>"));
}

// Times steps of a small quantized network, on random images.
StepTiming timed_steps(std::int64_t steps) {
  Registries registries;
  registries.datasets.add("random", "nowhere", [](const DatasetRequest&) {
    DatasetSplits splits;
    for (Dataset* one : {&splits.train, &splits.test}) {
      one->inputs = Tensor::full({24, 6, 6, 1}, 0.5);
      one->inputs.data<float>()[0] = -1;
      one->targets = Tensor::zeros({24}, DType::kI64);
      one->classes = 3;
    }
    return splits;
  });
  const std::string recipe = R"(version: 1
name: timed
data: {dataset: random, batch_size: 8, validation: 0}
model: {classes: 3, layers: [{type: Conv2d, name: conv, out_channels: 4, kernel_size: 3}, {type: Flatten},
  {type: Linear, name: fc, out_features: 3}]}
train: {epochs: 1, optimizer: {type: sgd, lr: 0.1}}
quantize:
  groups:
    - targets: [Conv2d, Linear]
      weights: {}
      activations: {}
)";
  Run run(parse_recipe(recipe, "r.yaml", {}, registries), {.folder = "nowhere"}, registries);
  return run.time_steps(steps);
}

TEST(StepTimes, AreThoseOfALayersKernels) {
  const StepTiming timing = timed_steps(2);
  EXPECT_EQ(timing.run, "timed");
  EXPECT_EQ(timing.batch_size, 8);
  EXPECT_EQ(timing.first_step, StepWatch::kWarmUp);
  EXPECT_EQ(timing.steps, 2);
  EXPECT_GT(timing.rates.multiply_adds, 0);
  EXPECT_GT(timing.batches.making, 0);
  EXPECT_GE(timing.batches.waited, 2 * timing.data_seconds) << "of four steps, the median twice";
  // The median of two steps may be the longer one.
  EXPECT_GT(timing.batches.seconds, timing.batches.waited + timing.seconds * 0.99);
  EXPECT_THAT(to_string(timing), HasSubstr("the steps waited "));
  EXPECT_GT(timing.rates.integer_multiply_adds, 0);
  EXPECT_GT(timing.rates.bytes, 0);
  double inside = 0;
  for (const TimedLayer& layer : timing.layers) inside += layer.seconds();
  EXPECT_LT(inside, timing.watched_seconds);
  EXPECT_DOUBLE_EQ(timing.outside_kernels(), timing.watched_seconds - inside);
  const auto conv = std::find_if(timing.layers.begin(), timing.layers.end(),
                                 [](const auto& layer) { return layer.layer == "conv"; });
  ASSERT_NE(conv, timing.layers.end());
  EXPECT_EQ(conv->type, "QatConv2d");
  EXPECT_GT(conv->of(WorkKind::kQuantize).kernels, 0);
  EXPECT_EQ(conv->of(WorkKind::kBackwardWeight).multiply_adds, 8 * 4 * 4 * 4 * 9);
  const Work& product = conv->of(WorkKind::kProduct);
  EXPECT_EQ(product.multiply_adds + product.integer_multiply_adds, 8 * 4 * 4 * 4 * 9);
  EXPECT_GT(conv->forward_bound, 0);
  EXPECT_FALSE(std::filesystem::exists("nowhere"));
}

TEST(StepTimes, AreReadAsTheyWereWritten) {
  StepTiming timing = timed_steps(1);
  timing.layers.front().work[0] = {.seconds = 0.5, .kernels = 0.25};  // in one of four steps
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "profile.json";
  const auto with_text = [&](const std::string& text) {
    std::ofstream(file) << text;
    return load_step_timing(file);
  };
  const std::string text = to_json_text(timing);
  EXPECT_EQ(to_json_text(with_text(text)), text);
  EXPECT_EQ(to_string(with_text(text)), to_string(timing));
  EXPECT_EQ(step_bars(with_text(text)), step_bars(timing));
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), with(text, "\"steps\": 1", "\"steps\": 1.5"),
        with(text, "\"steps\": 1", "\"steps\": 0"),
        with(text, "\"watched_seconds\": ", "\"watched_seconds\": -"),
        with(text, "\"layers\"", "\"leyers\""), with(text, "\"rates\"", "\"retes\""),
        with(text, "\"kernels\"", "\"kernel\"")}) {
    EXPECT_THAT(rejection([&] { with_text(bad); }),
                HasSubstr("profile.json: not what `steelyard profile` writes: "))
        << bad;
  }
}

}  // namespace
}  // namespace steelyard
