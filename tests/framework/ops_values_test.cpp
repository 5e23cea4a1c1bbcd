// Values and errors of the small operations: linear, relu, relu6, add, flatten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/moves/gather.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/own_precision.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using testing::leaf;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::values;

TEST(Linear, MatchesTheDefinitionForAnyLeadingDimensions) {
  const Tensor x = random_tensor({2, 3, 5}, 1), w = random_tensor({4, 5}, 2);
  const Tensor bias = random_tensor({4}, 3);
  Tensor expected = Tensor::empty({2, 3, 4}, DType::kF64);
  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t o = 0; o < 4; ++o) {
      double sum = bias.data<double>()[o];
      for (std::int64_t i = 0; i < 5; ++i) {
        sum += x.data<double>()[r * 5 + i] * w.data<double>()[o * 5 + i];
      }
      expected.data<double>()[r * 4 + o] = sum;
    }
  }
  EXPECT_TRUE(
      all_close(linear(Variable(x), Variable(w), Variable(bias)).value(), expected, 1e-13, 1e-13));
  const Variable narrow = linear(Variable(x.to(DType::kF32)), Variable(w.to(DType::kF32)),
                                 Variable(bias.to(DType::kF32)));
  EXPECT_TRUE(all_close(narrow.value(), expected, 1e-5, 1e-6));
}

TEST(Linear, RoundsFloat32OperandsWhileAGuardAsksForBf16) {
  // 1 + 2^-9 has 10 significant bits.
  const Variable x(Tensor::from<float>({1.001953125F}, {1, 1}));
  const Variable w(Tensor::from<float>({1.0F}, {1, 1}));
  const auto product = [&] { return *linear(x, w, {}).value().data<float>(); };
  {
    const MatmulPrecisionGuard bf16(Device{}, "bf16");
    EXPECT_EQ(product(), 1.0F);
    EXPECT_EQ(message_of<std::invalid_argument>([] { MatmulPrecisionGuard(Device{}, "tf32"); }),
              "[matmul] expected float32 or bf16 on the CPU, got tf32");
    EXPECT_EQ(product(), 1.0F);
    const MatmulPrecisionGuard inner(Device{}, "float32");
    EXPECT_EQ(product(), 1.001953125F);
  }
  EXPECT_EQ(product(), 1.001953125F);
}

TEST(Linear, RoundsAsTheThreadsOwnPrecisionSays) {
  const Variable x(Tensor::from<float>({1.001953125F}, {1, 1}));
  const Variable w(Tensor::from<float>({1.0F}, {1, 1}));
  const auto product = [&] { return *linear(x, w, {}).value().data<float>(); };
  const MatmulPrecisionGuard process(Device{}, "bf16");
  {
    const kernels::OwnMatmulPrecision own(kernels::MatmulPrecision::kFloat32);
    EXPECT_EQ(product(), 1.001953125F);
    float of_another_thread = 0;
    std::thread([&] { of_another_thread = product(); }).join();
    EXPECT_EQ(of_another_thread, 1.0F);
  }
  EXPECT_EQ(product(), 1.0F);
}

TEST(Linear, AVectorGivesAVector) {
  const Variable y =
      linear(Variable(random_tensor({5}, 1)), Variable(random_tensor({4, 5}, 2)), {});
  EXPECT_EQ(y.shape(), Shape{4});
}

TEST(Pad, BordersThatNoSizeHolds) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Variable x(Tensor::zeros({2}));
  for (const std::int64_t border : {kMost, -kMost}) {
    EXPECT_THAT(message_of<std::invalid_argument>([&] { pad(x, {border}, {0}); }),
                ::testing::HasSubstr("expected borders of at most 2305843009213693951, got "));
  }
}

TEST(Linear, Errors) {
  const Variable x(Tensor::zeros({2, 3}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              linear(x, Variable(Tensor::zeros({4, 5})), {});
            }),
            "[linear] expected weight [out, in] with in = 3, got [4, 5]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              linear(x, Variable(Tensor::zeros({4, 3})), Variable(Tensor::zeros({3})));
            }),
            "[linear] expected bias [4], got [3]");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              linear(Variable(Tensor::zeros({2, 3}, DType::kI32)),
                     Variable(Tensor::zeros({4, 3}, DType::kI32)), {});
            }),
            "[linear] expected f32 or f64, got i32");
  EXPECT_EQ(
      message_of<std::invalid_argument>([] {
        linear(Variable(Tensor::zeros({2, 3}, DType::kU8)), Variable(Tensor::zeros({4, 3})), {});
      }),
      "[linear] expected an input f32 or f64, got u8");
  EXPECT_THROW(linear(Variable(Tensor::zeros(Shape{})), x, {}), std::invalid_argument);
  EXPECT_THROW(linear(x, {}, {}), std::invalid_argument);
}

TEST(Relu, ClampsAndKeepsNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Variable x(Tensor::from<float>({-1, 0, 2, 7, kInf, -kInf, kNaN}, {7}));
  const auto plain = values(relu(x).value());
  EXPECT_THAT(std::vector<double>(plain.begin(), plain.end() - 1),
              ElementsAre(0, 0, 2, 7, kInf, 0));
  EXPECT_TRUE(std::isnan(plain.back()));
  const auto six = values(relu6(x).value());
  EXPECT_THAT(std::vector<double>(six.begin(), six.end() - 1), ElementsAre(0, 0, 2, 6, 6, 0));
  EXPECT_TRUE(std::isnan(six.back()));
}

TEST(Relu, TheGradientIsZeroAtTheKinks) {
  const Variable x(Tensor::from<float>({-1, 0, 2, 6, 7}, {5}), true);
  relu6(x).backward(Tensor::full({5}, 3.0));
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 0, 3, 0, 0));
  const Variable z(x.value(), true);
  relu(z).backward(Tensor::full({5}, 3.0));
  EXPECT_THAT(values(z.grad()), ElementsAre(0, 0, 3, 3, 3));
}

TEST(Add, SumsAndChecksShapes) {
  const Variable a(Tensor::from<float>({1, 2}, {2})), b(Tensor::from<float>({10, 20}, {2}));
  EXPECT_THAT(values(add(a, b).value()), ElementsAre(11, 22));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              add(a, Variable(Tensor::zeros({1, 2})));
            }),
            "[add] expected equal shapes, got [2] and [1, 2]");
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { add(a, Variable(Tensor::zeros({2}, DType::kF64))); }),
      "[add] expected second operand of dtype f32, got f64");
}

TEST(LayerNorm, NormalizesEachRow) {
  const Variable x(Tensor::from<float>({1, 3, 10, 10}, {2, 2}));
  const Variable gamma(Tensor::from<float>({2, 1}, {2})), beta(Tensor::from<float>({0, 5}, {2}));
  const auto y = values(layer_norm(x, gamma, beta, 1e-12).value());
  EXPECT_NEAR(y[0], -2, 1e-6);
  EXPECT_NEAR(y[1], 6, 1e-6);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 5);
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { layer_norm(x, Variable(Tensor::zeros({3})), beta); }),
      "[layer_norm] expected gamma [2], got [3]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { layer_norm(x, gamma, beta, 0); }),
            "[layer_norm] expected eps above 0, got 0");
}

TEST(InputPart, TakesSomeValuesOfEachSample) {
  const Variable x(Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 5}));
  const Tensor y = input_part(x, {.first = 1, .shape = {2, 2}}).value();
  EXPECT_TRUE(all_close(y, Tensor::from<float>({1, 2, 3, 4, 6, 7, 8, 9}, {2, 2, 2}), 0, 0));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              input_part(x, {.first = 2, .shape = {2, 2}});
            }),
            "[input_part] expected samples of 6 values or more, got [2, 5]");
}

TEST(OutputParts, GivesTheValuesOfEachSampleOneTensorAfterAnother) {
  const Variable a(Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2}));
  const Variable b(Tensor::from<float>({10, 20}, {2}));
  const Tensor y = output_parts({a, b, a}).value();
  EXPECT_TRUE(all_close(y,
                        Tensor::from<float>({0, 1, 2, 3, 10, 0, 1, 2, 3,  //
                                             4, 5, 6, 7, 20, 4, 5, 6, 7},
                                            {2, 9}),
                        0, 0));
  const auto refusal = [](const std::vector<Variable>& outputs) {
    return message_of<std::invalid_argument>([&] { output_parts(outputs); });
  };
  EXPECT_EQ(refusal({}), "[output_parts] expected at least one tensor, got none");
  EXPECT_EQ(refusal({a, random_leaf({3, 2}, 1)}),
            "[output_parts] expected tensors of dtype f32, got f64");
  EXPECT_EQ(refusal({a, Variable(Tensor::zeros({3, 2}))}),
            "[output_parts] expected tensors of one batch, got [2, 2, 2] and [3, 2]");
  EXPECT_EQ(refusal({Variable(Tensor::zeros({}))}),
            "[output_parts] expected tensors [N, ...], got []");
}

TEST(Slice, StaysInside) {
  const Variable x = random_leaf({5}, 1);
  EXPECT_EQ(slice(x, {{4, 3, -2}}).shape(), (Shape{3}));
  for (const std::int64_t step : {std::int64_t{-3}, std::int64_t{2}, std::int64_t{1} << 62}) {
    EXPECT_EQ(message_of<std::invalid_argument>([&] {
                slice(x, {{0, 5, step}});
              }),
              "[slice] expected positions inside of [5], got 5 from 0 on in steps of " +
                  std::to_string(step) + " along dimension 0");
  }
}

TEST(Embedding, ChoosesRows) {
  const Variable table(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor y = embedding(Tensor::from<std::int64_t>({2, 0}, {1, 2}), table).value();
  EXPECT_EQ(y.shape(), (Shape{1, 2, 2}));
  EXPECT_THAT(values(y), ElementsAre(5, 6, 1, 2));
  EXPECT_EQ(message_of<std::out_of_range>([&] {
              embedding(Tensor::from<std::int64_t>({0, 3}, {2}), table);
            }),
            "[embedding] expected indices in [0, 3), got 3 in sample 1 of the batch, at index 0");
  EXPECT_EQ(message_of<std::out_of_range>([&] {
              embedding(Variable(Tensor::from<float>({0, -0.75F}, {1, 2})), table);
            }),
            "[embedding] expected indices in [0, 3), got -0.75 at index 1");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { embedding(Tensor::zeros({2}), table); }),
            "[embedding] expected i64 indices, got f32");
}

TEST(Gather, ChoosesPositionsOfAnAxis) {
  const Variable x(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const auto at = [](std::vector<std::int64_t> indices, Shape shape) {
    return Tensor::from<std::int64_t>(std::move(indices), std::move(shape));
  };
  const Tensor columns = gather(x, at({2, 0, 2, 1}, {2, 2}), 1).value();
  EXPECT_EQ(columns.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(values(columns), ElementsAre(3, 1, 3, 2, 6, 4, 6, 5));
  EXPECT_THAT(values(gather(x, at({1, 0}, {2}), -2).value()), ElementsAre(4, 5, 6, 1, 2, 3));
  const Tensor one = gather(x, at({1}, {}), 0).value();  // the axis goes
  EXPECT_EQ(one.shape(), Shape{3});
  EXPECT_THAT(values(one), ElementsAre(4, 5, 6));
  EXPECT_EQ(gather(x, at({}, {0}), 1).shape(), (Shape{2, 0}));
  EXPECT_EQ(gather(Variable(Tensor::zeros({0, 3})), at({2}, {1}), 1).shape(), (Shape{0, 1}));
}

TEST(Gather, SaysWhatItDoesNotTake) {
  const Variable x(Tensor::zeros({2, 3}));
  const auto at = [](std::int64_t index) { return Tensor::from<std::int64_t>({0, index}, {2}); };
  EXPECT_EQ(message_of<std::out_of_range>([&] { gather(x, at(3), 1); }),
            "[gather] expected indices in [0, 3), got 3 at place 1");
  EXPECT_EQ(message_of<std::out_of_range>([&] { gather(x, at(-1)); }),
            "[gather] expected indices in [0, 2), got -1 at place 1");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { gather(x, at(0), 2); }),
            "[gather] expected an axis of [2, 3], got 2");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { gather(x, Tensor::zeros({2})); }),
            "[gather] expected i64 indices, got f32");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { gather(x, Tensor()); }),
            "[gather] expected i64 indices, got an undefined tensor");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { gather(Variable(), at(0)); }),
            "[gather] expected a tensor, got an undefined variable");
}

TEST(CumulativeSum, MayLeaveOutTheElementAndBeginAtTheEnd) {
  const Variable x(Tensor::from<float>({1, 2, 4, 8, 16, 32}, {2, 3}));
  const auto sums = [&](bool exclusive, bool reverse) {
    return values(cumulative_sum(x, {.exclusive = exclusive, .reverse = reverse}).value());
  };
  EXPECT_THAT(sums(false, false), ElementsAre(1, 3, 7, 8, 24, 56));
  EXPECT_THAT(sums(true, false), ElementsAre(0, 1, 3, 0, 8, 24));
  EXPECT_THAT(sums(false, true), ElementsAre(7, 6, 4, 56, 48, 32));
  EXPECT_THAT(sums(true, true), ElementsAre(6, 4, 0, 48, 32, 0));
  EXPECT_EQ(message_of<std::invalid_argument>([] { cumulative_sum(Variable(Tensor::zeros({}))); }),
            "[cumulative_sum] expected input [..., columns], got []");
}

TEST(LogSoftmax, IsExactWhereSoftmaxIsZero) {
  const Variable x(Tensor::from<float>({0, -200, 1e30F, 0}, {2, 2}));
  EXPECT_THAT(values(log_softmax(x).value()), ElementsAre(0, -200, 0, -1e30F));
  EXPECT_EQ(message_of<std::invalid_argument>([] { log_softmax(Variable(Tensor::zeros({}))); }),
            "[log_softmax] expected input [..., columns], got []");
}

TEST(Embedding, RoundsFloatsToRows) {
  const Variable table = leaf(Tensor::from<double>({1, 2, 3}, {3, 1}));
  const auto rows = [&](std::vector<double> at) {
    return embedding(Variable(Tensor::from<double>(at, {std::ssize(at)})), table);
  };
  EXPECT_THAT(values(rows({2, 0.4, 0.6, 1.5}).value()), ElementsAre(3, 1, 2, 3));
  for (const double wrong : {-0.6, 2.6, 1e30, std::nan("")}) {
    EXPECT_THROW(rows({0, wrong}), std::out_of_range) << wrong;
  }
}

TEST(Extremes, ShareGradientsEvenlyAndKeepNaN) {
  const Variable a = leaf(Tensor::from<double>({1, 5, 2}, {3}));
  const Variable b = leaf(Tensor::from<double>({1, 2, 7}, {3}));
  const Variable larger = maximum(a, b);
  EXPECT_THAT(values(larger.value()), ElementsAre(1, 5, 7));
  sum(larger).backward();
  EXPECT_THAT(values(a.grad()), ElementsAre(0.5, 1, 0));
  EXPECT_THAT(values(b.grad()), ElementsAre(0.5, 0, 1));

  const Variable x = leaf(Tensor::from<double>({4, 1, 4, 3, 0, 2}, {2, 3}));
  const Variable largest = amax(x, {-1});
  EXPECT_THAT(values(largest.value()), ElementsAre(4, 3));
  sum(largest).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(0.5, 0, 0.5, 1, 0, 0));

  const double nan = std::nan("");
  const Variable holes(Tensor::from<double>({nan, 1, 2, nan}, {2, 2}));
  for (const Variable& y : {amax(holes, {1}), amin(holes, {1}), maximum(holes, constant(0, holes)),
                            minimum(constant(0, holes), holes)}) {
    EXPECT_TRUE(std::isnan(values(y.value()).front())) << y.shape().size();
    EXPECT_TRUE(std::isnan(values(y.value()).back()));
  }
}

TEST(DivideNoNan, IsZeroWhereTheDivisorIs) {
  const Variable a = leaf(Tensor::from<double>({1, 6}, {2}));
  const Variable b = leaf(Tensor::from<double>({0, 2}, {2}));
  const Variable y = divide_no_nan(a, b);
  EXPECT_THAT(values(y.value()), ElementsAre(0, 3));
  sum(y).backward();
  EXPECT_THAT(values(a.grad()), ElementsAre(0, 0.5));
  EXPECT_THAT(values(b.grad()), ElementsAre(0, -1.5));
}

TEST(Extremes, Errors) {
  const Variable x(Tensor::zeros({2, 3}, DType::kF64));
  EXPECT_THROW(amax(x, {}), std::invalid_argument);
  EXPECT_THROW(amax(x, {0, -2}), std::invalid_argument);
  EXPECT_THROW(amin(x, {2}), std::invalid_argument);
  EXPECT_THROW(amax(Variable(Tensor::zeros({2, 0}, DType::kF64)), {1}), std::invalid_argument);
  EXPECT_THROW(maximum(x, Variable(Tensor::zeros({4}, DType::kF64))), std::invalid_argument);
  EXPECT_THROW(expand(x, {2, 6}), std::invalid_argument);
  EXPECT_THROW(expand(x, {3}), std::invalid_argument);
}

TEST(Concat, JoinsTheLastDimensionAndSplitsIt) {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from<float>({5, 6}, {2, 1});
  const Tensor joined = concat({Variable(a), Variable(b)}).value();
  EXPECT_EQ(joined.shape(), (Shape{2, 3}));
  EXPECT_THAT(values(joined), ElementsAre(1, 2, 5, 3, 4, 6));
  EXPECT_THAT(values(split(joined, {2, 1})[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(split(joined, {2, 1})[1]), ElementsAre(5, 6));
  EXPECT_EQ(concat({Variable(a), Variable(Tensor::zeros({2, 0}))}).shape(), (Shape{2, 2}));
}

TEST(Concat, Errors) {
  const Variable a(Tensor::zeros({2, 3}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { concat({}); }),
            "[concat] expected at least one tensor, got none");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              concat({a, Variable(Tensor::zeros({3, 3}))});
            }),
            "[concat] expected shapes that differ in the last dimension only, got [2, 3] and [3, "
            "3]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              concat({a, Variable(Tensor::zeros({2, 3}, DType::kF64))});
            }),
            "[concat] expected tensors of dtype f32, got f64");
}

TEST(Flatten, GivesChannelMajorRows) {
  // Pixel p, channel c holds 10 p + c.
  const Tensor x = Tensor::from<float>({0, 1, 10, 11, 20, 21}, {1, 1, 3, 2});
  const Variable y = flatten(Variable(x));
  EXPECT_EQ(y.shape(), (Shape{1, 6}));
  EXPECT_THAT(values(y.value()), ElementsAre(0, 10, 20, 1, 11, 21));
}

TEST(Flatten, CopiesOnlyWhereTheOrderChanges) {
  for (const Shape& shape : {Shape{2, 1, 1, 5}, Shape{2, 3, 4, 1}}) {
    const Variable x = Variable(random_tensor(shape, 1));
    EXPECT_TRUE(flatten(x).value().shares_storage_with(x.value()));
  }
  const Variable image(random_tensor({2, 3, 4, 2}, 1));
  EXPECT_FALSE(flatten(image).value().shares_storage_with(image.value()));
  const Variable rows = random_leaf({2, 3}, 1);
  EXPECT_EQ(flatten(rows).node(), rows.node());
}

TEST(Flatten, ASequenceGoesChannelByChannel) {
  const Variable x(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 3, 2}));
  EXPECT_EQ(values(flatten(x).value()), (std::vector<double>{1, 3, 5, 2, 4, 6}));
}

TEST(Flatten, Errors) {
  EXPECT_EQ(
      message_of<std::invalid_argument>([] {
        flatten(Variable(Tensor::zeros({2, 3, 4, 5, 6})));
      }),
      "[flatten] expected input [N, H, W, C], [N, L, C] or [N, features], got [2, 3, 4, 5, 6]");
}

// Every order of every rank, with sizes of 1 and dimensions that stay together.
TEST(Permute, MovesEveryElementWhereItsOrderSays) {
  const std::vector<Shape> shapes{
      {7},          {3, 5},          {2, 1, 5},          {2, 3, 4},
      {1, 3, 1, 4}, {2, 17, 3, 33},  {1, 1, 4, 3, 2},    {2, 3, 2, 3, 2},
      {5, 1, 1, 7}, {2, 2, 3, 1, 2}, {2, 1, 3, 2, 1, 2}, {0, 2, 3}};
  for (const Shape& shape : shapes) {
    const Tensor x = random_tensor(shape, 1);
    std::vector<std::int64_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      const Tensor y = permute(Variable(x), order).value();
      std::vector<std::int64_t> from(shape.size()), strides(shape.size(), 1);
      for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
      for (std::int64_t i = 0; i < y.size(); ++i) {
        std::int64_t rest = i, place = 0;
        for (std::size_t d = order.size(); d-- > 0;) {
          place += rest % y.dim(static_cast<std::int64_t>(d)) *
                   strides[static_cast<std::size_t>(order[d])];
          rest /= y.dim(static_cast<std::int64_t>(d));
        }
        ASSERT_EQ(y.span<double>()[static_cast<std::size_t>(i)],
                  x.span<double>()[static_cast<std::size_t>(place)])
            << shape_string(shape) << ::testing::PrintToString(order);
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Resize, Errors) {
  const Variable x(Tensor::zeros({1, 2, 2, 1}));
  const ResizedAxis twice{.repeats = 2, .inputs = 2, .outputs = 4};
  const ResizedAxis negative{.repeats = -2, .inputs = 2, .outputs = 4};
  EXPECT_EQ(resize(x, twice, twice).shape(), (Shape{1, 4, 4, 1}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { resize(x, negative, twice); }),
            "[resize] expected repeats of at least 0, got -2 x 2");
  EXPECT_THROW(resize(x, twice, negative), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
