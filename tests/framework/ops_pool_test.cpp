#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "steelyard/framework/ops/reductions/pool.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using testing::gradcheck;
using testing::leaf;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::spread_tensor;

struct PoolCase {
  std::string name;
  Shape x;
  Pool2dGeometry geometry;
};

struct Window {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  std::int64_t inside = 0;
};

// The window of output pixel (i, j), by its definition.
Window window(const Tensor& x, const Pool2dGeometry& g, std::int64_t n, std::int64_t i,
              std::int64_t j, std::int64_t c) {
  Window result;
  for (std::int64_t kh = 0; kh < g.kernel[0]; ++kh) {
    for (std::int64_t kw = 0; kw < g.kernel[1]; ++kw) {
      const std::int64_t h = i * g.stride[0] - g.padding[0] + kh;
      const std::int64_t w = j * g.stride[1] - g.padding[1] + kw;
      if (h < 0 || h >= x.dim(1) || w < 0 || w >= x.dim(2)) continue;
      const double value = x.data<double>()[((n * x.dim(1) + h) * x.dim(2) + w) * x.dim(3) + c];
      result.max = std::max(result.max, value);
      result.sum += value;
      ++result.inside;
    }
  }
  return result;
}

template <typename F>
Tensor pooled(const Tensor& x, const Pool2dGeometry& g, const F& reduce) {
  const std::int64_t out_h = (x.dim(1) + 2 * g.padding[0] - g.kernel[0]) / g.stride[0] + 1;
  const std::int64_t out_w = (x.dim(2) + 2 * g.padding[1] - g.kernel[1]) / g.stride[1] + 1;
  Tensor y = Tensor::empty({x.dim(0), out_h, out_w, x.dim(3)}, DType::kF64);
  double* out = y.data<double>();
  for (std::int64_t n = 0; n < x.dim(0); ++n)
    for (std::int64_t i = 0; i < out_h; ++i)
      for (std::int64_t j = 0; j < out_w; ++j)
        for (std::int64_t c = 0; c < x.dim(3); ++c) *out++ = reduce(window(x, g, n, i, j, c));
  return y;
}

class PoolOp : public ::testing::TestWithParam<PoolCase> {
 protected:
  double area() const {
    const auto& k = GetParam().geometry.kernel;
    return static_cast<double>(k[0] * k[1]);
  }
};

TEST_P(PoolOp, MatchesTheDefinition) {
  const auto& [name, shape, g] = GetParam();
  const Tensor x = random_tensor(shape, 1);
  const Variable v(x);
  EXPECT_TRUE(
      all_close(max_pool2d(v, g).value(), pooled(x, g, [](Window w) { return w.max; }), 0, 0));
  EXPECT_TRUE(all_close(avg_pool2d(v, g).value(),
                        pooled(x, g, [&](Window w) { return w.sum / area(); }), 1e-14, 1e-14));
  const auto of_inside = [](Window w) { return w.sum / static_cast<double>(w.inside); };
  EXPECT_TRUE(all_close(avg_pool2d(v, g, false).value(), pooled(x, g, of_inside), 1e-14, 1e-14));
}

TEST_P(PoolOp, Gradients) {
  const Pool2dGeometry g = GetParam().geometry;
  const Variable spread = leaf(spread_tensor(GetParam().x));
  EXPECT_TRUE(gradcheck([&] { return max_pool2d(spread, g); }, {spread}));
  const Variable x = random_leaf(GetParam().x, 2);
  EXPECT_TRUE(gradcheck([&] { return avg_pool2d(x, g); }, {x}));
  EXPECT_TRUE(gradcheck([&] { return avg_pool2d(x, g, false); }, {x}));
}

TEST_P(PoolOp, F32AgreesWithF64) {
  const Pool2dGeometry g = GetParam().geometry;
  const Tensor x = spread_tensor(GetParam().x);
  const Variable narrow(x.to(DType::kF32), true), wide(x, true);
  const Variable y = max_pool2d(narrow, g), z = max_pool2d(wide, g);
  y.backward(random_tensor(y.shape(), 3, DType::kF32));
  z.backward(random_tensor(y.shape(), 3));
  EXPECT_TRUE(all_close(y.value(), z.value(), 1e-6, 1e-6));
  EXPECT_TRUE(all_close(narrow.grad(), wide.grad(), 1e-6, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, PoolOp,
    ::testing::Values(PoolCase{"two_by_two", {2, 4, 6, 3}, {}},
                      PoolCase{"overlapping", {1, 5, 5, 2}, {{3, 3}, {1, 1}, {0, 0}}},
                      PoolCase{"padded", {2, 5, 4, 2}, {{3, 3}, {2, 2}, {1, 1}}},
                      PoolCase{"gaps", {1, 7, 7, 1}, {{2, 2}, {3, 3}, {0, 0}}},
                      PoolCase{"rectangular", {1, 4, 6, 3}, {{3, 2}, {1, 2}, {1, 0}}},
                      PoolCase{"ragged", {1, 5, 7, 2}, {{2, 2}, {2, 2}, {1, 1}}}),
    [](const auto& param) { return param.param.name; });

TEST(MaxPool2d, NegativeInputsBeatThePadding) {
  const Variable x(Tensor::full({1, 2, 2, 1}, -3.0));
  const Tensor y = max_pool2d(x, {{2, 2}, {2, 2}, {1, 1}}).value();
  EXPECT_THAT(y.span<float>(), ElementsAre(-3, -3, -3, -3));
}

TEST(MaxPool2d, TheFirstOfEqualsGetsTheGradient) {
  const Variable x(Tensor::zeros({1, 2, 2, 1}), true);
  max_pool2d(x, {}).backward(Tensor::full({1, 1, 1, 1}, 5.0));
  EXPECT_THAT(x.grad().span<float>(), ElementsAre(5, 0, 0, 0));
}

TEST(GlobalAvgPool, MeanAndGradients) {
  const Variable x = random_leaf({2, 3, 4, 5}, 1);
  const Tensor y = global_avg_pool(x).value();
  const Tensor expected =
      pooled(x.value(), {{3, 4}, {1, 1}, {0, 0}}, [](Window w) { return w.sum / 12; });
  EXPECT_TRUE(all_close(y, expected.reshape({2, 5}), 1e-14, 1e-14));
  EXPECT_TRUE(gradcheck([&] { return global_avg_pool(x); }, {x}));
  EXPECT_EQ(global_avg_pool(Variable(Tensor::zeros({2, 3, 4, 0}))).shape(), (Shape{2, 0}));
}

TEST(PoolErrors, NameTheArgument) {
  const Variable x(Tensor::zeros({1, 4, 4, 2}));
  const auto error = [&](Pool2dGeometry g) {
    return message_of<std::invalid_argument>([&] { max_pool2d(x, g); });
  };
  EXPECT_EQ(error({{0, 2}, {1, 1}, {0, 0}}), "[max_pool2d] expected kernel of at least 1, got 0,2");
  EXPECT_EQ(error({{2, 2}, {0, 1}, {0, 0}}), "[max_pool2d] expected stride of at least 1, got 0,1");
  EXPECT_EQ(error({{2, 2}, {1, 1}, {2, 0}}),
            "[max_pool2d] expected padding between 0 and half the kernel 2,2, got 2,0");
  EXPECT_EQ(error({{5, 2}, {1, 1}, {0, 0}}),
            "[max_pool2d] expected a padded input of at least the kernel 5,2, got input "
            "[1, 4, 4, 2] with padding 0,0");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              avg_pool2d(Variable(Tensor::zeros({4, 4})), {});
            }),
            "[avg_pool2d] expected input [N, H, W, C], got [4, 4]");
  for (const Shape& shape : {Shape{1, 0, 4, 1}, Shape{1, 4, 0, 1}}) {
    const Variable empty(Tensor::zeros(shape));
    const Pool2dGeometry padded{{2, 2}, {1, 1}, {1, 1}};
    EXPECT_EQ(message_of<std::invalid_argument>([&] { max_pool2d(empty, padded); }),
              "[max_pool2d] expected input [N, H, W, C] with pixels, got " + shape_string(shape));
    EXPECT_THROW(avg_pool2d(empty, padded), std::invalid_argument);
  }
  EXPECT_EQ(max_pool2d(Variable(Tensor::zeros({0, 4, 4, 1})), {}).shape(), (Shape{0, 2, 2, 1}));
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              global_avg_pool(Variable(Tensor::zeros({1, 0, 4, 2})));
            }),
            "[global_avg_pool] expected input [N, H, W, C] with pixels, got [1, 0, 4, 2]");
}

}  // namespace
}  // namespace steelyard
