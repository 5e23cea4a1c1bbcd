// Means over dimensions of codes: integers against plain sums, gradients against those of the
// float mean, and what has no such form.
#include "steelyard/qat/layers/qat_reduce_mean.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;

struct MeanCase {
  const char* name;
  Shape in;
  std::vector<std::int64_t> axes;
  bool keep;
  Shape out;
  int bits = 8;
};
void PrintTo(const MeanCase& c, std::ostream* out) { *out << c.name; }

class QuantizedReduceMean : public ::testing::TestWithParam<MeanCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, QuantizedReduceMean,
    ::testing::Values(MeanCase{"rows_of_images", {2, 5, 4, 3}, {1}, false, {2, 4, 3}},
                      MeanCase{"columns_of_images", {2, 5, 4, 3}, {2}, true, {2, 5, 1, 3}},
                      MeanCase{"images", {2, 5, 4, 3}, {1, 2}, true, {2, 1, 1, 3}},
                      MeanCase{"flat_images", {2, 5, 4, 3}, {1, 2}, false, {2, 3}},
                      MeanCase{"channels", {2, 5, 4, 3}, {3}, true, {2, 5, 4, 1}},
                      MeanCase{"all", {2, 5, 4, 3}, {1, 2, 3}, false, {2}},
                      MeanCase{"tokens", {3, 7, 6}, {1}, false, {3, 6}},
                      MeanCase{"features", {3, 7, 6}, {2}, true, {3, 7, 1}},
                      MeanCase{"rows", {4, 9}, {1}, true, {4, 1}},
                      MeanCase{"five_dimensions", {2, 3, 4, 2, 5}, {2, 3}, false, {2, 3, 5}},
                      MeanCase{"wide", {3, 7, 6}, {1}, false, {3, 6}, 16}),
    [](const auto& p) { return std::string(p.param.name); });

TEST_P(QuantizedReduceMean, SumsCodesAndRoundsOnce) {
  const MeanCase& c = GetParam();
  QuantizerConfig config = *default_w8a8().activations;
  config.scheme.bits = c.bits;
  ActivationQuantizer input(config);
  QatReduceMean layer(c.axes, c.keep, config);
  ForwardContext training{.training = true};
  const Variable x(random_tensor(c.in, 3, DType::kF32), true);
  const Variable y = layer.forward(input.forward(x, training), training);
  ASSERT_EQ(y.shape(), c.out);
  const auto from = quantized(input.forward(x, training)), to = quantized(y);
  ASSERT_TRUE(from && to);
  // Where each element of the input goes, counted in the output's order.
  std::vector<std::int64_t> sums(static_cast<std::size_t>(shape_size(c.out)), 0);
  const std::vector<double> codes = testing::values(from->codes);
  std::int64_t count = 1;
  for (const std::int64_t axis : c.axes) count *= c.in[static_cast<std::size_t>(axis)];
  for (std::int64_t i = 0; i < x.value().size(); ++i) {
    std::int64_t rest = i, stride = 1, at = 0;
    for (std::size_t axis = c.in.size(); axis-- > 0; rest /= c.in[axis]) {
      if (std::count(c.axes.begin(), c.axes.end(), static_cast<std::int64_t>(axis)) > 0) continue;
      at += rest % c.in[axis] * stride;
      stride *= c.in[axis];
    }
    sums[static_cast<std::size_t>(at)] +=
        static_cast<std::int64_t>(codes[static_cast<std::size_t>(i)]) - from->host_zero_point();
  }
  const std::vector<double> found = testing::values(to->codes);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double steps = static_cast<double>(sums[i]) * from->host_scale() /
                         static_cast<double>(count) / to->host_scale();
    const double code = std::clamp<double>(std::nearbyint(steps) + to->host_zero_point(),
                                           to->range.qmin, to->range.qmax);
    // Floats of docs/numerics.md may decide a tie otherwise.
    const bool tie = std::abs(steps - std::floor(steps) - 0.5) < (c.bits == 8 ? 1e-4 : 1e-2);
    EXPECT_NEAR(found[i], code, tie ? 1 : 0) << i;
  }
  const Tensor grad = random_tensor(c.out, 4, DType::kF32);
  y.backward(grad);
  const Variable plain(x.value().clone(), true);
  mean(plain, c.axes, c.keep ? ReducedAxes::kKeep : ReducedAxes::kDrop).backward(grad);
  EXPECT_TRUE(testing::all_close(x.grad(), plain.grad(), 1e-5, 1e-6));
}

TEST(QuantizedReduceMeans, RefuseDimensionsThatAreNotThere) {
  const QuantizerConfig config = *default_w8a8().activations;
  ActivationQuantizer input(config);
  ForwardContext training{.training = true};
  const Variable x = input.forward(Variable(random_tensor({2, 3}, 1, DType::kF32)), training);
  for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{2}, {1, 2}, {5}}) {
    QatReduceMean layer(axes, false, config);
    EXPECT_THROW(layer.forward(x, training), std::invalid_argument) << shape_string(axes);
  }
  for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{}, {0}, {1, 3}, {-1}}) {
    EXPECT_THROW(QatReduceMean(axes, false, config), std::invalid_argument) << shape_string(axes);
  }
}

PreparedModel prepared(const std::vector<std::int64_t>& axes) {
  Rng rng(1);
  return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                     {"fc", std::make_shared<Linear>(LinearOptions{4, 6}, rng)},
                     {"mean", std::make_shared<Reduce>(Reduction::kMean, axes, false)}}),
                 {.groups = {{.targets = {"Linear"}, .config = default_w8a8()}}, .ignore = {}});
}

TEST(QuantizedReduceMeans, ThePlanSaysWhichStayInFloat) {
  const auto row = [](const PreparedModel& model) {
    for (const PlanRow& r : model.plan.rows) {
      if (r.module == "mean") return r;
    }
    return PlanRow{};
  };
  EXPECT_EQ(row(prepared({1})).note, "of the integer average");
  EXPECT_EQ(row(prepared({1, 3})).quantized, "float");
  EXPECT_EQ(row(prepared({1, 3})).note,
            "a mean over dimensions that do not lie next to each other");
  EXPECT_EQ(row(prepared({0, 1})).quantized, "float");
}

}  // namespace
}  // namespace steelyard::qat
