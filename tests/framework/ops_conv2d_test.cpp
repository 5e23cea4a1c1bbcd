// conv2d against plain loops in double, finite differences and every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/kernels/backend.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;

struct ConvCase {
  std::string name;
  Shape x;
  Shape w;
  Conv2dGeometry geometry;
  bool bias = true;
};

const std::vector<ConvCase>& cases() {
  static const std::vector<ConvCase> all{
      {"pointwise", {2, 3, 4, 3}, {5, 3, 1, 1}, {}},
      {"three_by_three", {2, 5, 4, 3}, {4, 3, 3, 3}, {.padding = {1, 1}}},
      {"no_bias", {1, 4, 4, 2}, {3, 2, 3, 3}, {}, false},
      {"strided", {2, 6, 7, 2}, {3, 2, 3, 3}, {.stride = {2, 3}, .padding = {1, 0}}},
      {"dilated", {1, 7, 6, 2}, {2, 2, 3, 2}, {.padding = {2, 1}, .dilation = {2, 3}}},
      {"grouped", {2, 4, 4, 4}, {6, 2, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {"depthwise", {2, 5, 5, 4}, {4, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 4}},
      {"depth_multiplier", {1, 4, 4, 3}, {6, 1, 2, 2}, {.groups = 3}},
      {"rectangular", {1, 3, 6, 2}, {2, 2, 1, 5}, {.padding = {0, 2}}},
      {"wide_padding", {1, 2, 2, 1}, {2, 1, 3, 3}, {.padding = {3, 2}}},
      {"all_at_once",
       {2, 7, 6, 4},
       {4, 2, 3, 2},
       {.stride = {2, 1}, .padding = {2, 1}, .dilation = {2, 2}, .groups = 2}},
  };
  return all;
}

// The definition, with explicit bounds.
Tensor reference(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& g) {
  const auto at = [](const Tensor& t, std::int64_t a, std::int64_t b, std::int64_t c,
                     std::int64_t d) {
    return t.data<double>()[((a * t.dim(1) + b) * t.dim(2) + c) * t.dim(3) + d];
  };
  const std::int64_t span_h = g.dilation[0] * (w.dim(2) - 1) + 1;
  const std::int64_t span_w = g.dilation[1] * (w.dim(3) - 1) + 1;
  const std::int64_t out_h = (x.dim(1) + 2 * g.padding[0] - span_h) / g.stride[0] + 1;
  const std::int64_t out_w = (x.dim(2) + 2 * g.padding[1] - span_w) / g.stride[1] + 1;
  Tensor y = Tensor::empty({x.dim(0), out_h, out_w, w.dim(0)}, DType::kF64);
  double* out = y.data<double>();
  for (std::int64_t n = 0; n < x.dim(0); ++n)
    for (std::int64_t i = 0; i < out_h; ++i)
      for (std::int64_t j = 0; j < out_w; ++j)
        for (std::int64_t o = 0; o < w.dim(0); ++o) {
          double sum = bias.defined() ? bias.data<double>()[o] : 0.0;
          const std::int64_t first = o / (w.dim(0) / g.groups) * w.dim(1);
          for (std::int64_t c = 0; c < w.dim(1); ++c)
            for (std::int64_t kh = 0; kh < w.dim(2); ++kh)
              for (std::int64_t kw = 0; kw < w.dim(3); ++kw) {
                const std::int64_t h = i * g.stride[0] - g.padding[0] + kh * g.dilation[0];
                const std::int64_t v = j * g.stride[1] - g.padding[1] + kw * g.dilation[1];
                if (h < 0 || h >= x.dim(1) || v < 0 || v >= x.dim(2)) continue;
                sum += at(x, n, h, v, first + c) * at(w, o, c, kh, kw);
              }
          *out++ = sum;
        }
  return y;
}

class Conv2dOp : public ::testing::TestWithParam<ConvCase> {
 protected:
  Variable x(DType dtype) const { return Variable(random_tensor(GetParam().x, 1, dtype), true); }
  Variable w(DType dtype) const { return Variable(random_tensor(GetParam().w, 2, dtype), true); }
  Variable bias(DType dtype) const {
    if (!GetParam().bias) return {};
    return Variable(random_tensor({GetParam().w[0]}, 3, dtype), true);
  }
};

TEST_P(Conv2dOp, MatchesTheDefinition) {
  const Variable b = bias(DType::kF64);
  const Tensor y = conv2d(x(DType::kF64), w(DType::kF64), b, GetParam().geometry).value();
  const Tensor expected = reference(x(DType::kF64).value(), w(DType::kF64).value(),
                                    b.defined() ? b.value() : Tensor(), GetParam().geometry);
  EXPECT_TRUE(all_close(y, expected, 1e-12, 1e-12));
}

TEST_P(Conv2dOp, Gradients) {
  const Variable vx = x(DType::kF64), vw = w(DType::kF64), vb = bias(DType::kF64);
  std::vector<Variable> leaves{vx, vw};
  if (vb.defined()) leaves.push_back(vb);
  EXPECT_TRUE(gradcheck([&] { return conv2d(vx, vw, vb, GetParam().geometry); }, leaves));
}

// f32 on the default backend against f64, which always runs on Eigen: value and all gradients.
TEST_P(Conv2dOp, F32AgreesWithF64) {
  const auto run = [&](DType dtype) {
    const Variable vx = x(dtype), vw = w(dtype), vb = bias(dtype);
    const Variable y = conv2d(vx, vw, vb, GetParam().geometry);
    y.backward(random_tensor(y.shape(), 4, dtype));
    std::vector<Tensor> all{y.value(), vx.grad(), vw.grad()};
    if (vb.defined()) all.push_back(vb.grad());
    return all;
  };
  const auto narrow = run(DType::kF32);
  const auto wide = run(DType::kF64);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_TRUE(all_close(narrow[i], wide[i], 1e-5, 1e-5)) << "tensor " << i;
  }
}

TEST_P(Conv2dOp, EveryBackendAgreesWithTheOp) {
  const Variable vx = x(DType::kF32), vw = w(DType::kF32), vb = bias(DType::kF32);
  const Tensor y = conv2d(vx, vw, vb, GetParam().geometry).value();
  const auto shape = conv2d_shape(GetParam().x, GetParam().w, GetParam().geometry);
  for (const kernels::Backend backend : kernels::available_backends()) {
    const Tensor other = Tensor::empty(y.shape());
    kernels::run(kernels::Conv2d<float>{.shape = shape,
                                        .x = vx.value().data<float>(),
                                        .w = vw.value().data<float>(),
                                        .bias = vb.defined() ? vb.value().data<float>() : nullptr,
                                        .y = other.data<float>(),
                                        .products = backend});
    EXPECT_TRUE(all_close(other, y, 1e-5, 1e-5)) << kernels::backend_name(backend);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Conv2dOp, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

TEST(Conv2dGradients, OnlyWhereTheyAreWanted) {
  const Variable x = random_leaf({1, 3, 3, 2}, 1);
  const Variable w(random_tensor({2, 2, 2, 2}, 2));
  const Variable b = random_leaf({2}, 3);
  EXPECT_TRUE(gradcheck([&] { return conv2d(x, w, b); }, {x, b}));
  EXPECT_FALSE(w.grad().defined());
  const Variable fixed_x(x.value());
  const Variable free_w(w.value(), true);
  EXPECT_TRUE(gradcheck([&] { return conv2d(fixed_x, free_w, {}); }, {free_w}));
}

TEST(Conv2dErrors, NameTheArgument) {
  const auto error = [](Shape x, Shape w, Conv2dGeometry g, Shape bias = {}) {
    return message_of<std::invalid_argument>([&] {
      conv2d(Variable(Tensor::zeros(x)), Variable(Tensor::zeros(w)),
             bias.empty() ? Variable() : Variable(Tensor::zeros(bias)), g);
    });
  };
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 4, 3, 3}, {}),
            "[conv2d] expected weight [O, C/groups, KH, KW] with C/groups = 3, got [8, 4, 3, 3]");
  EXPECT_EQ(error({5, 5, 3}, {8, 3, 3, 3}, {}),
            "[conv2d] expected input [N, H, W, C], got [5, 5, 3]");
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 3, 3}, {}),
            "[conv2d] expected weight [O, C/groups, KH, KW], got [8, 3, 3]");
  EXPECT_EQ(error({1, 5, 5, 0}, {8, 0, 3, 3}, {}),
            "[conv2d] expected weight [O, C/groups, KH, KW], got [8, 0, 3, 3]");
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 3, 3, 3}, {}, {7}), "[conv2d] expected bias [8], got [7]");
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 3, 3, 3}, {.groups = 2}),
            "[conv2d] expected groups that divide C = 3 and O = 8, got 2");
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 3, 3, 3}, {.stride = {1, 0}}),
            "[conv2d] expected stride of at least 1, got 1,0");
  EXPECT_THAT(error({1, 5, 5, 3}, {8, 3, 3, 3}, {.padding = {std::int64_t{1} << 62, 0}}),
              ::testing::StartsWith("[conv2d] expected stride, padding and dilation of at most "));
  EXPECT_EQ(error({1, 2, 9, 3}, {8, 3, 3, 3}, {}),
            "[conv2d] expected a padded input of at least 3x3 (the dilated kernel), got 2x9");
  EXPECT_EQ(error({1, 5, 5, 3}, {8, 3, 3, 3}, {.padding = {-1, 0}}),
            "[conv2d] expected padding of at least 0, got -1,0");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              conv2d(Variable(Tensor::zeros({1, 3, 3, 1})),
                     Variable(Tensor::zeros({1, 1, 1, 1}, DType::kF64)), {});
            }),
            "[conv2d] expected weight of dtype f32, got f64");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              conv2d({}, Variable(Tensor::zeros({1, 1, 1, 1})), {});
            }),
            "[conv2d] expected an input, got an undefined variable");
}

}  // namespace
}  // namespace steelyard
