// Metrics against scikit-learn (metric_values.h), and by ranks.
#include "steelyard/framework/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/train/evaluate.h"
#include "tests/framework/metric_values.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

namespace expected = testing::metric_values;
using ::testing::ElementsAre;

// Outputs are the inputs.
class Identity : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Identity"; }
};

template <typename T, std::size_t size>
Tensor tensor_of(const T (&values)[size], std::int64_t columns) {
  const Tensor all = Tensor::from(std::span<const T>(values), {static_cast<std::int64_t>(size)});
  return columns == 0 ? all : all.reshape({all.size() / columns, columns});
}

Evaluation evaluation_of(const Dataset& dataset, const Loss& loss) {
  Identity model;
  comm::Communicator alone;
  return evaluate_predictions(model, dataset, {}, loss, 16, alone);
}

double value_of(const Metrics& metrics, const char* name) {
  const auto value = value_in(metrics, name);
  EXPECT_TRUE(value) << name;
  return value.value_or(0);
}

TEST(Metrics, OfClassesAreThoseOfScikitLearn) {
  const Dataset dataset{tensor_of(expected::kScores, 7), tensor_of(expected::kLabels, 0), 7};
  const Evaluation evaluation = evaluation_of(dataset, {});
  const Metrics& metrics = evaluation.metrics;
  EXPECT_NEAR(*metrics.top1, 100 * expected::kTop1, 1e-9);
  EXPECT_NEAR(value_of(metrics, "top5"), 100 * expected::kTop5, 1e-9);
  EXPECT_NEAR(value_of(metrics, "precision"), 100 * expected::kPrecision, 1e-9);
  EXPECT_NEAR(value_of(metrics, "recall"), 100 * expected::kRecall, 1e-9);
  EXPECT_NEAR(value_of(metrics, "f1"), 100 * expected::kF1, 1e-9);
  const auto scores = class_scores(evaluation.predictions, dataset);
  ASSERT_EQ(scores.size(), 7U);
  for (std::size_t c = 0; c < 7; ++c) {
    EXPECT_NEAR(scores[c].precision(), expected::kPrecisionOfClasses[c], 1e-12) << c;
    EXPECT_NEAR(scores[c].recall(), expected::kRecallOfClasses[c], 1e-12) << c;
    EXPECT_NEAR(scores[c].f1(), expected::kF1OfClasses[c], 1e-12) << c;
  }
  const std::vector<std::int64_t> confusion(std::begin(expected::kConfusion),
                                            std::end(expected::kConfusion));
  EXPECT_EQ(confusion_matrix(evaluation.predictions, dataset), confusion);
}

TEST(Metrics, OfLabelsAreThoseOfScikitLearn) {
  const Dataset dataset{tensor_of(expected::kLogits, 4), tensor_of(expected::kMarks, 4), 4};
  const Metrics metrics = evaluation_of(dataset, {.type = Loss::Type::kBinaryCrossEntropy}).metrics;
  EXPECT_FALSE(metrics.top1);
  EXPECT_NEAR(value_of(metrics, "map"), 100 * expected::kMap, 1e-9);
  EXPECT_NEAR(value_of(metrics, "precision"), 100 * expected::kMarksPrecision, 1e-9);
  EXPECT_NEAR(value_of(metrics, "recall"), 100 * expected::kMarksRecall, 1e-9);
  EXPECT_NEAR(value_of(metrics, "f1"), 100 * expected::kMarksF1, 1e-9);
}

TEST(Metrics, OfValuesAreThoseOfScikitLearn) {
  const Dataset dataset{tensor_of(expected::kOutputs, 3), tensor_of(expected::kTargets, 3), 0};
  for (const Loss::Type type : {Loss::Type::kMeanSquaredError, Loss::Type::kHuber}) {
    EXPECT_NEAR(value_of(evaluation_of(dataset, {.type = type}).metrics, "r2"), expected::kR2,
                1e-6);
  }
  EXPECT_TRUE(evaluation_of(dataset, {.type = Loss::Type::kCosine}).metrics.more.empty());
}

// In the units of the data, also where the targets are normalized; as scikit-learn's
// root_mean_squared_error.
TEST(Metrics, RootMeanSquaredErrorHasTheUnitsOfTheData) {
  const auto dataset_of = [](std::vector<float> outputs, std::vector<float> targets) {
    return Dataset{Tensor::from(outputs, {2, 2}), Tensor::from(targets, {2, 2}), 0};
  };
  const Loss mse{.type = Loss::Type::kMeanSquaredError};
  // Errors of 30 and 50 in one column, of 1 and 1 in the other.
  const Dataset raw = dataset_of({130, 1, 150, 3}, {100, 2, 200, 4});
  const Metrics of_raw = evaluation_of(raw, mse).metrics;
  const double expected = (std::sqrt((900.0 + 2500.0) / 2) + 1) / 2;
  EXPECT_NEAR(value_of(of_raw, "rmse"), expected, 1e-6);

  Dataset scaled = raw;
  normalize_targets(scaled, {{150, 3}, {50, 1}});
  scaled.inputs = Tensor::from<float>({-0.4F, -2, 0, 0}, {2, 2});  // the same predictions
  const Metrics of_scaled = evaluation_of(scaled, mse).metrics;
  EXPECT_NEAR(value_of(of_scaled, "rmse"), expected, 1e-5);
  EXPECT_NEAR(value_of(of_scaled, "r2"), value_of(of_raw, "r2"), 1e-6);
  EXPECT_LT(of_scaled.loss, 1);
  EXPECT_EQ(metric_text({"rmse", 21345.678}), "RMSE 21346");
  EXPECT_EQ(metric_text({"rmse", 0.00012345}), "RMSE 0.00012345");
}

TEST(Metrics, OfTexts) {
  EXPECT_THAT(spelled(std::vector<std::int64_t>{0, 3, 3, 0, 3, 1, 1, 0}), ElementsAre(3, 3, 1));
  const auto distance = [](const std::string& a, const std::string& b) {
    const std::vector<std::int64_t> x(a.begin(), a.end()), y(b.begin(), b.end());
    return edit_distance(x, y);
  };
  EXPECT_EQ(distance("kitten", "sitting"), 3);
  EXPECT_EQ(distance("", "abc"), 3);
  EXPECT_EQ(distance("abc", ""), 3);
  EXPECT_EQ(distance("flaw", "lawn"), 2);
  // Frames [sample, character, frame] that say "1 2" and "2 2", where "1 2" and "2" are right.
  const Tensor outputs = Tensor::from<float>({0, 0, 1, 0, 9, 2, 0, 0, 0, 1, 3, 5,   //
                                              0, 9, 0, 0, 0, 0, 0, 0, 9, 1, 9, 9},  //
                                             {2, 12});
  const Dataset dataset{outputs, Tensor::from<std::int64_t>({1, 2, 2, -1}, {2, 2}), 3};
  const Metrics metrics =
      evaluation_of(dataset, {.type = Loss::Type::kCtc, .characters = 3}).metrics;
  EXPECT_NEAR(value_of(metrics, "cer"), 100.0 / 3, 1e-9);
}

TEST(Metrics, BestIsByTheMetricThatIsAskedFor) {
  const Metrics a{.loss = 1, .top1 = 90, .more = {{"f1", 70}, {"cer", 4}}};
  const Metrics b{.loss = 2, .top1 = 91, .more = {{"f1", 60}, {"cer", 5}}};
  EXPECT_TRUE(is_better(b, a));
  EXPECT_TRUE(is_better(a, b, find_metric("loss")));
  EXPECT_TRUE(is_better(a, b, find_metric("f1")));
  EXPECT_FALSE(is_better(b, a, find_metric("f1")));
  EXPECT_TRUE(is_better(a, b, find_metric("cer")));
  EXPECT_TRUE(is_better(b, a, find_metric("map"))) << "what was not measured decides nothing";
  EXPECT_EQ(metrics_text(a), ", top-1 90.00 %, F1 70.00 %, character error rate 4.00 %");
}

// Half of the mean square of logits, of class labels.
Loss half_square() {
  Loss loss{.type = Loss::Type::kOwn};
  loss.own = std::make_shared<const LossInfo>(
      LossInfo{.targets = TargetKind::kClass,
               .compute = [](const Loss&, const Variable& outputs, const Tensor&,
                             const LossPart&) { return 0.5 * mean(outputs * outputs); },
               .name = "half_square"});
  return loss;
}

TEST(Metrics, TheTopFiveOfFiveClassesSayNothing) {
  const Metrics metrics{.loss = 1, .top1 = 50.0, .more = {{"top5", 90}, {"f1", 40}}};
  EXPECT_EQ(metrics_text(without_certain_ones(metrics, 5)), ", top-1 50.00 %, F1 40.00 %");
  EXPECT_EQ(metrics_text(without_certain_ones(metrics, 6)),
            ", top-1 50.00 %, top-5 90.00 %, F1 40.00 %");
}

TEST(Metrics, OfAProgramsLossAreThoseOfItsTargetsAndItsOwn) {
  const Dataset dataset{Tensor::from<float>({2, 0, 0, 2, 2, 0}, {3, 2}),
                        Tensor::from<std::int64_t>({0, 1, 1}, {3}), 2};
  const std::vector<Loss::Type> of_classes{Loss::Type::kCrossEntropy};
  const std::vector<Loss::Type> of_values{Loss::Type::kHuber};
  const auto samples = [](const Predictions&, const Dataset& of) {
    return static_cast<double>(of.size());
  };
  Loss loss = half_square();
  loss.own_metrics = std::make_shared<const std::vector<MetricInfo>>(
      std::vector<MetricInfo>{{"samples", "number of samples", false, false, samples, of_classes},
                              {"other", "of other losses", false, false, samples, of_values}});
  const Metrics metrics = evaluation_of(dataset, loss).metrics;
  EXPECT_DOUBLE_EQ(metrics.loss, 1);
  EXPECT_NEAR(metrics.top1.value_or(0), 200.0 / 3, 1e-9);
  EXPECT_TRUE(value_in(metrics, "recall"));
  EXPECT_FALSE(value_in(metrics, "r2"));
  EXPECT_EQ(value_of(metrics, "samples"), 3);
  EXPECT_FALSE(value_in(metrics, "other"));
  EXPECT_THAT(metrics_text(metrics), ::testing::HasSubstr("number of samples 3.0000"));
  Metrics fewer = metrics;
  fewer.more.back().value = 2;
  EXPECT_TRUE(is_better(fewer, metrics, find_metric("samples", loss)));
  EXPECT_FALSE(is_better(metrics, fewer, find_metric("samples", loss)));
}

TEST(Metrics, OfEqualsTheOneWithTheLowestLossIsBest) {
  const Metrics a{.loss = 1, .top1 = 90, .more = {{"f1", 70}}};
  const Metrics b{.loss = 2, .top1 = 90, .more = {{"f1", 70}}};
  for (const char* metric : {"", "top1", "f1", "loss"}) {
    EXPECT_TRUE(is_better(a, b, find_metric(metric))) << metric;
    EXPECT_FALSE(is_better(b, a, find_metric(metric))) << metric;
    EXPECT_FALSE(is_better(a, a, find_metric(metric))) << metric;
  }
}

}  // namespace
}  // namespace steelyard
