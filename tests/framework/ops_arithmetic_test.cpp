// Values and errors of arithmetic on variables, and how tensors and modules print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "steelyard/framework/autograd/print.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;
using testing::values;

Variable row(std::initializer_list<float> elements) {
  return Variable(Tensor::from<float>(elements, {static_cast<std::int64_t>(elements.size())}));
}
Variable column(std::initializer_list<float> elements) {
  return Variable(Tensor::from<float>(elements, {static_cast<std::int64_t>(elements.size()), 1}));
}

TEST(Arithmetic, OperatorsBroadcast) {
  EXPECT_THAT(values((row({1, 2}) + column({10, 20})).value()), ElementsAre(11, 12, 21, 22));
  EXPECT_THAT(values((column({10, 20}) - row({1, 2})).value()), ElementsAre(9, 8, 19, 18));
  EXPECT_THAT(values((row({1, 2}) * column({3, 5})).value()), ElementsAre(3, 6, 5, 10));
  EXPECT_THAT(values((column({6, 8}) / row({1, 2})).value()), ElementsAre(6, 3, 8, 4));
  EXPECT_EQ((row({1, 2}) + column({10, 20})).shape(), (Shape{2, 2}));
}

TEST(Arithmetic, NumbersStandOnEitherSide) {
  const Variable x = row({1, -2});
  EXPECT_THAT(values((x + 1.5).value()), ElementsAre(2.5, -0.5));
  EXPECT_THAT(values((1.5 + x).value()), ElementsAre(2.5, -0.5));
  EXPECT_THAT(values((x - 1).value()), ElementsAre(0, -3));
  EXPECT_THAT(values((1 - x).value()), ElementsAre(0, 3));
  EXPECT_THAT(values((x * 3).value()), ElementsAre(3, -6));
  EXPECT_THAT(values((3 * x).value()), ElementsAre(3, -6));
  EXPECT_THAT(values((x / 4).value()), ElementsAre(0.25, -0.5));
  EXPECT_THAT(values((4 / x).value()), ElementsAre(4, -2));
  EXPECT_THAT(values((-x).value()), ElementsAre(-1, 2));
}

// Against plain loops, over axes that repeat in different places.
TEST(Arithmetic, AgreesWithLoopsOverSeveralAxes) {
  const Tensor a = random_tensor({2, 1, 4, 1}, 1), b = random_tensor({3, 1, 5}, 2);
  const Tensor y = (Variable(a) * Variable(b)).value();
  ASSERT_EQ(y.shape(), (Shape{2, 3, 4, 5}));
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t l = i % 5, k = i / 5 % 4, j = i / 20 % 3, h = i / 60;
    EXPECT_EQ(y.data<double>()[i], a.data<double>()[h * 4 + k] * b.data<double>()[j * 5 + l]);
  }
}

TEST(Arithmetic, AnEmptyAxisStaysEmpty) {
  const Variable none(Tensor::zeros({0, 3}));
  EXPECT_EQ((none + row({1, 2, 3})).shape(), (Shape{0, 3}));
  EXPECT_THAT(values(sum(none, {0}).value()), ElementsAre(0, 0, 0));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { mean(none); }),
            "[mean] expected at least one element, got [0, 3]");
}

TEST(Arithmetic, ComparisonsAreFalseBesideNaN) {
  const Variable x = row({-1, 0, 2, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(values(x > 0), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(values(x >= 0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(values(x < 0), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(values(x <= 0), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(values(x > x), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ((x > 0).dtype(), DType::kBool);
}

TEST(Arithmetic, WhereChooses) {
  const Variable x = row({-2, 3});
  EXPECT_THAT(values(where(x > 0, x, 0.5 * x).value()), ElementsAre(-1, 3));
  EXPECT_THAT(values(where(x > 0, 1, x).value()), ElementsAre(-2, 1));
  EXPECT_THAT(values(where(x > 0, x, 7).value()), ElementsAre(7, 3));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { where(x.value(), x, x); }),
            "[where] expected a condition of dtype bool on cpu, got f32 on cpu");
}

TEST(Arithmetic, SumsAndMeans) {
  const Variable x(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x).value().item(), 21);
  EXPECT_EQ(mean(x).value().item(), 3.5);
  EXPECT_THAT(values(sum(x, {0}).value()), ElementsAre(5, 7, 9));
  EXPECT_THAT(values(sum(x, {-1}).value()), ElementsAre(6, 15));
  EXPECT_EQ(sum(x, {1}, ReducedAxes::kKeep).shape(), (Shape{2, 1}));
  EXPECT_THAT(values(mean(x, {1}).value()), ElementsAre(2, 5));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { sum(x, {2}); }),
            "[sum] expected different axes of [2, 3], got [2]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              sum(x, {1, -1});
            }),
            "[sum] expected different axes of [2, 3], got [1, -1]");
}

TEST(Arithmetic, KeepsOnlyWhatGradientsNeed) {
  const Variable x(Tensor::zeros({1000}), true), w(Tensor::full({1000}, 2.0));
  EXPECT_EQ(saved_bytes(x * w, {}), 4000) << "w, for the gradient of x";
  EXPECT_EQ(saved_bytes(x / w, {}), 4000) << "w";
  EXPECT_EQ(saved_bytes(w / (x + 1.0), {}), 8000) << "the divisor and the quotient";
  EXPECT_EQ(saved_bytes(x + w, {}), 0);
}

TEST(Arithmetic, Errors) {
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              row({1, 2}) * row({1, 2, 3});
            }),
            "[mul] expected shapes that broadcast, got [2] and [3]");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { row({1}) - Variable(Tensor::zeros({1}, DType::kF64)); }),
            "[sub] expected second operand of dtype f32, got f64");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { row({1}) / Variable(); }),
            "[div] expected two operands, got an undefined variable");
}

std::string printed(const auto& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

TEST(Print, TensorsShowTypeShapeDeviceAndValues) {
  EXPECT_EQ(printed(Tensor::from<float>({1, -0.5, 3, 4e-7F}, {2, 2})),
            "f32 [2, 2] on cpu\n[[1, -0.5],\n [3, 4e-07]]");
  EXPECT_EQ(printed(Variable(Tensor::full({}, 2.5))), "f32 [] on cpu\n2.5");
  EXPECT_EQ(printed(Tensor::zeros({12}, DType::kI64)), "i64 [12] on cpu\n[0, 0, 0, ..., 0, 0, 0]");
  EXPECT_EQ(printed(Tensor::zeros({0, 2}, DType::kU8)), "u8 [0, 2] on cpu\n[]");
  EXPECT_EQ(printed(row({1, 2}) > 1), "bool [2] on cpu\n[0, 1]");
  EXPECT_EQ(printed(Tensor()), "undefined tensor");
  EXPECT_EQ(printed(Variable()), "undefined variable");
  EXPECT_EQ(printed(Device::cuda(1)), "cuda:1");
}

}  // namespace
}  // namespace steelyard
