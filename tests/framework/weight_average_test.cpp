#include "steelyard/framework/train/weight_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;
using testing::values;

// Two parameters, a buffer to average and one to copy.
class Model : public Module {
 public:
  Model() {
    weight = register_parameter("weight", random_tensor({3}, 1));
    scale = register_parameter("scale", Tensor::full({1}, 1.0, DType::kF64));
    mean = register_buffer("running_mean", Tensor::full({1}, 5.0, DType::kF64));
    codes = register_buffer("codes", Tensor::zeros({1}, DType::kI32));
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Model"; }

  Variable weight, scale;
  Tensor mean, codes;
};

WeightAverageOptions options(double decay) {
  return {.decay = decay,
          .averages_buffer = [](const std::string& name) { return name == "running_mean"; }};
}

void give_gradient(Variable& parameter) { parameter.set_grad(parameter.value().clone()); }

std::vector<double> averaged(WeightAverage& average, const std::string& name) {
  for (const NamedTensor& t : average.averaged()) {
    if (t.name == name) return values(t.tensor);
  }
  return {};
}

// One module in two slots.
class Twice : public Module {
 public:
  explicit Twice(const std::shared_ptr<Module>& module) {
    register_child("a", module);
    register_child("b", module);
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Twice"; }
};

TEST(WeightAverage, GivesBackWhatTwoSlotsShare) {
  const auto model = std::make_shared<Model>();
  Twice twice(model);
  WeightAverage average(twice, options(0.9));
  for (const double value : {1.0, 7.0}) {
    model->weight.value().fill(value);
    give_gradient(model->weight);
    average.update();
  }
  {
    const AveragedScope averaged(&average);
    EXPECT_NE(values(model->weight.value()), std::vector<double>(3, 7.0));
  }
  EXPECT_EQ(values(model->weight.value()), std::vector<double>(3, 7.0));
}

TEST(WeightAverage, FollowsTheRecurrence) {
  for (const double decay : {0.0, 0.3, 0.9}) {
    Model model;
    WeightAverage average(model, options(decay));
    std::vector<double> expected = values(model.weight.value());
    for (int n = 0; n < 30; ++n) {
      model.weight.value().copy_from(random_tensor({3}, static_cast<std::uint64_t>(n) + 10));
      give_gradient(model.weight);
      average.update();
      const double d = n == 0 ? 0 : std::min(decay, (1.0 + n) / (10.0 + n));
      const auto value = values(model.weight.value());
      for (std::size_t i = 0; i < 3; ++i) expected[i] = d * expected[i] + (1 - d) * value[i];
      const auto got = averaged(average, "weight");
      for (std::size_t i = 0; i < 3; ++i) ASSERT_NEAR(got[i], expected[i], 1e-14) << n;
    }
  }
}

// A learned scale is set when it begins: an average that had begun before would lag behind.
TEST(WeightAverage, BeginsWithTheFirstGradient) {
  Model model;
  WeightAverage average(model, options(0.9));
  give_gradient(model.weight);
  average.update();
  model.scale.value().fill(8.0);
  average.update();
  EXPECT_THAT(averaged(average, "scale"), ElementsAre(8.0));
  give_gradient(model.scale);
  average.update();
  model.scale.value().fill(19.0);
  average.update();
  EXPECT_THAT(averaged(average, "scale"), ElementsAre(8.0 + 9.0 / 11.0 * 11.0)) << "d = 2 / 11";
}

TEST(WeightAverage, BeginsAnewWhereAParameterWasSet) {
  Model model;
  bool set = false;
  WeightAverageOptions with_set = options(0.9);
  with_set.take_set_parameters = [&] {
    return std::exchange(set, false) ? std::vector<std::string>{"scale"}
                                     : std::vector<std::string>{};
  };
  WeightAverage average(model, with_set);
  give_gradient(model.scale);
  give_gradient(model.weight);
  for (int n = 0; n < 5; ++n) average.update();
  const std::vector<double> weight = averaged(average, "weight");
  model.scale.value().fill(64.0);
  set = true;
  average.update();
  EXPECT_THAT(averaged(average, "scale"), ElementsAre(64.0));
  EXPECT_EQ(averaged(average, "weight"), weight);
  model.scale.value().fill(75.0);
  average.update();
  EXPECT_THAT(averaged(average, "scale"), ElementsAre(73.0)) << "d = 2 / 11 again";
}

TEST(WeightAverage, ExchangesTheModelAndKeepsWhatIsChangedInTheAveragedOne) {
  Model model;
  int refreshed = 0;
  WeightAverageOptions with_refresh = options(0.5);
  with_refresh.refresh = [&] {
    ++refreshed;
    EXPECT_THAT(values(model.mean), ElementsAre(5 + 9.0 / 11.0 * 11.0));
    EXPECT_THAT(values(model.codes), ElementsAre(3)) << "not averaged: the trained model's";
    model.codes.fill(7);
  };
  WeightAverage average(model, with_refresh);
  average.update();
  model.mean.fill(16.0);
  model.codes.fill(3);
  average.update();
  {
    const AveragedScope scope(&average);
    EXPECT_THAT(values(model.codes), ElementsAre(7));
    model.mean.fill(100.0);
  }
  EXPECT_EQ(refreshed, 1);
  EXPECT_THAT(values(model.mean), ElementsAre(16.0));
  EXPECT_THAT(values(model.codes), ElementsAre(3));
  EXPECT_THAT(averaged(average, "running_mean"), ElementsAre(100.0));
  EXPECT_THAT(averaged(average, "codes"), ElementsAre(7));
  EXPECT_EQ(refreshed, 1) << "nothing was updated since";
}

TEST(WeightAverage, IsEnteredAndLeftInTurn) {
  Model model;
  WeightAverage average(model, options(0.5));
  EXPECT_THROW(average.leave(), std::logic_error);
  give_gradient(model.weight);
  average.update();
  model.weight.value().fill(3.0);
  average.update();
  {
    const AveragedScope scope(&average);
    EXPECT_TRUE(average.entered());
    const std::vector<double> averaged = values(model.weight.value());
    EXPECT_THROW(average.enter(), std::logic_error);
    EXPECT_EQ(values(model.weight.value()), averaged) << "nothing was exchanged";
    average.leave();
    EXPECT_FALSE(average.entered());
  }
  EXPECT_EQ(values(model.weight.value()), std::vector<double>(3, 3.0));
  EXPECT_THROW(average.leave(), std::logic_error);
}

TEST(WeightAverage, Errors) {
  Model model;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { WeightAverage(model, {.decay = 1.0}); }),
            "[weight_average] expected a decay in [0, 1), got 1.000000");
}

}  // namespace
}  // namespace steelyard
