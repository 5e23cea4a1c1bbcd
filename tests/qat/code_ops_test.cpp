// Operations on codes against scalar loops and the float operations' gradients.
#include "steelyard/qat/layers/code_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/qat/layers/pass_through.h"
#include "steelyard/qat/layers/qat_add.h"
#include "steelyard/qat/layers/qat_pool.h"
#include "steelyard/qat/quantizers/code_function.h"
#include "tests/qat/activation_config.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;
using testing::values;

// A variable with codes over a leaf that collects its gradient.
struct Quantized {
  Quantized(Shape shape, std::uint64_t seed, bool is_signed = false, float gain = 2)
      : quantizer(activations(is_signed)),
        leaf(random_tensor(std::move(shape), seed, DType::kF32), true) {
    for (float& v : leaf.value().span<float>()) v = gain * v + 0.3F;
    ForwardContext training{.training = true};
    x = quantizer.forward(leaf, training);
    codes = quantized(x);
  }
  ActivationQuantizer quantizer;
  Variable leaf;
  Variable x;
  std::shared_ptr<const QuantizedValue> codes;
};

// The gradient that reaches the leaf when y gets `grad`.
std::vector<double> gradient(const Variable& y, Variable leaf, const Tensor& grad) {
  leaf.clear_grad();
  y.backward(grad);
  return values(leaf.grad());
}

TEST(CodeOps, MaxPoolAndFlattenCommuteWithDequantization) {
  for (const bool is_signed : {false, true}) {
    const Quantized q({2, 5, 6, 3}, 1, is_signed);
    const Pool2dGeometry geometry{.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 0}};
    const Variable plain(q.x.value(), true);
    const Variable pooled = max_pool2d_codes(q.x, geometry);
    const Variable expected = max_pool2d(plain, geometry);
    EXPECT_EQ(values(pooled.value()), values(expected.value()));
    EXPECT_EQ(quantized(pooled)->host_scale(), q.codes->host_scale());
    const Tensor grad = random_tensor(pooled.shape(), 2, DType::kF32);
    EXPECT_EQ(gradient(pooled, q.leaf, grad), gradient(expected, plain, grad));

    const Variable flat = flatten_codes(q.x);
    const Variable expected_flat = flatten(plain);
    EXPECT_EQ(values(flat.value()), values(expected_flat.value()));
    const Tensor flat_grad = random_tensor(flat.shape(), 3, DType::kF32);
    EXPECT_EQ(gradient(flat, q.leaf, flat_grad), gradient(expected_flat, plain, flat_grad));
  }
}

// Places in a window are kept in 16 bits.
TEST(CodeOps, LargeWindowsAreRefused) {
  const Quantized q({1, 257, 256, 1}, 1, false);
  const Pool2dGeometry geometry{.kernel = {257, 256}, .stride = {1, 1}};
  EXPECT_THROW(max_pool2d_codes(q.x, geometry), std::invalid_argument);
  EXPECT_THROW(max_pool2d(Variable(q.x.value()), geometry), std::invalid_argument);
}

// Images of one channel, or of one pixel: their codes are the rows already.
TEST(CodeOps, FlattenCopiesNothingWhereTheOrderIsTheSame) {
  for (const Shape& shape : {Shape{2, 5, 6, 1}, Shape{3, 1, 1, 4}}) {
    const Quantized q(shape, 1, false);
    const Variable plain(q.x.value(), true);
    const Variable flat = flatten_codes(q.x), expected = flatten(plain);
    EXPECT_EQ(values(flat.value()), values(expected.value()));
    EXPECT_EQ(quantized(flat)->codes.data<std::uint8_t>(), q.codes->codes.data<std::uint8_t>());
    const Tensor grad = random_tensor(flat.shape(), 2, DType::kF32);
    EXPECT_EQ(gradient(flat, q.leaf, grad), gradient(expected, plain, grad));
  }
}

TEST(CodeOps, FlattenKnowsTheFeaturesOfNoSamples) {
  const Quantized full({2, 3, 4, 5}, 1, false);
  const Variable none =
      make_variable(with_codes(*full.codes, Tensor::empty({0, 3, 4, 5}, DType::kU8)));
  EXPECT_EQ(flatten_codes(none).shape(), (Shape{0, 60}));
}

// A sequence is an image of one row.
TEST(CodeOps, FlattenTakesSequences) {
  const Quantized q({2, 5, 3}, 1, false);
  const Variable plain(q.x.value(), true);
  const Variable flat = flatten_codes(q.x), expected = flatten(plain);
  EXPECT_EQ(values(flat.value()), values(expected.value()));
  const Tensor grad = random_tensor(flat.shape(), 2, DType::kF32);
  EXPECT_EQ(gradient(flat, q.leaf, grad), gradient(expected, plain, grad));
}

// There is no order of channels to go by.
TEST(CodeOps, FlattenRefusesWhatIsNoImage) {
  const Quantized q({2, 1, 5, 1, 3}, 1, false);
  EXPECT_THROW(flatten_codes(q.x), std::invalid_argument);
  EXPECT_THROW(flatten(Variable(q.x.value())), std::invalid_argument);
}

TEST(CodeOps, ActivationsClampTheCodes) {
  const Quantized q({100}, 4, true, 20);
  for (const auto activation : {kernels::Activation::kRelu, kernels::Activation::kRelu6}) {
    const bool capped = activation == kernels::Activation::kRelu6;
    const Variable y = activation_codes(q.x, activation);
    const auto x = values(q.x.value());
    const auto got = values(y.value());
    const Tensor ones = Tensor::full({100}, 1.0);
    const auto grad = gradient(y, q.leaf, ones);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = std::clamp(x[i], 0.0, capped ? 6.0 : 1e9);
      EXPECT_NEAR(got[i], expected, capped ? 0.5 * q.codes->host_scale() : 0);
      if (x[i] <= 0 || (capped && x[i] > 6.1)) {
        EXPECT_EQ(grad[i], 0) << x[i];
      } else if (!capped || x[i] < 5.8) {
        EXPECT_EQ(grad[i], 1) << x[i];
      }
    }
  }
}

TEST(CodeOps, DropoutScalesWhatItKeeps) {
  const Quantized q({4000}, 5);
  Rng rng(9);
  const Variable y = dropout_codes(q.x, {0.25}, rng);
  const auto x = values(q.x.value());
  const auto got = values(y.value());
  const auto grad = gradient(y, q.leaf, Tensor::full({4000}, 3.0));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (grad[i] == 0) {
      EXPECT_EQ(got[i], 0);
    } else {
      ++kept;
      EXPECT_NEAR(got[i], x[i] / 0.75, 1e-5);
      EXPECT_NEAR(grad[i], 4.0, 1e-6);
    }
  }
  EXPECT_NEAR(static_cast<double>(kept), 3000, 150);
  for (const double p : {1.0, -0.1, std::nan("")}) {
    EXPECT_THROW(dropout_codes(q.x, {p}, rng), std::invalid_argument) << p;
  }
  QatDropout layer({0.25});
  ForwardContext evaluation, no_rng{.training = true};
  EXPECT_EQ(layer.forward(q.x, evaluation).node(), q.x.node());
  EXPECT_THROW(layer.forward(q.x, no_rng), std::invalid_argument);
}

// docs/numerics.md: y = clamp(rint((z_y - (r_a*z_a + r_b*z_b)) + a*r_a + b*r_b)).
TEST(CodeOps, SumsFollowTheRequantizationFormula) {
  for (const int mix : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const Quantized a({2, 3, 3, 4}, 6, (mix & 1) != 0), b({2, 3, 3, 4}, 7, (mix & 2) != 0, 5);
    for (const bool relu : {false, true}) {
      ActivationQuantizer output(activations((mix & 4) != 0));
      ForwardContext training{.training = true};
      const Variable y =
          add_codes(a.x, b.x, relu ? kernels::Activation::kRelu : kernels::Activation::kNone,
                    output, training);
      const auto out = quantized(y);
      const float ra = a.codes->host_scale() / out->host_scale(),
                  rb = b.codes->host_scale() / out->host_scale();
      const auto za = static_cast<float>(a.codes->host_zero_point());
      const auto zb = static_cast<float>(b.codes->host_zero_point());
      const float base = static_cast<float>(out->host_zero_point()) - (ra * za + rb * zb);
      const auto qa = values(a.codes->codes), qb = values(b.codes->codes);
      const auto got = values(out->codes);
      const auto grad = gradient(y, a.leaf, Tensor::full(y.shape(), 1.0));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float sum = (base + static_cast<float>(qa[i]) * ra) + static_cast<float>(qb[i]) * rb;
        double code = std::clamp<double>(std::nearbyint(sum), out->range.qmin, out->range.qmax);
        if (relu) code = std::max<double>(code, out->host_zero_point());
        EXPECT_EQ(got[i], code) << "mix " << mix;
        const double real = (qa[i] - a.codes->host_zero_point()) * a.codes->host_scale() +
                            (qb[i] - b.codes->host_zero_point()) * b.codes->host_scale();
        if (relu && real < -1e-4) {
          EXPECT_EQ(grad[i], 0);
        }
        if (real > 1e-4 && std::nearbyint(sum) < out->range.qmax) {
          EXPECT_EQ(grad[i], 1);
        }
      }
    }
  }
}

// docs/numerics.md: y = clamp(rint(float(sum(q - z_x)) * (s_x / (n * s_y))) + z_y).
TEST(CodeOps, AveragesFollowTheRequantizationFormula) {
  for (const bool is_signed : {false, true}) {
    const Quantized q({2, 4, 6, 3}, 8, is_signed);
    ActivationQuantizer global(activations(is_signed));
    ActivationQuantizer windows(activations(is_signed));
    ForwardContext training{.training = true};
    const Variable whole = global_avg_pool_codes(q.x, global, training);
    EXPECT_EQ(whole.shape(), (Shape{2, 3}));
    const auto xq = values(q.codes->codes);
    const auto got = values(quantized(whole)->codes);
    for (std::size_t n = 0; n < 2; ++n) {
      for (std::size_t c = 0; c < 3; ++c) {
        std::int64_t sum = 0;
        for (std::size_t p = 0; p < 24; ++p) {
          sum += static_cast<std::int64_t>(xq[(n * 24 + p) * 3 + c]) - q.codes->host_zero_point();
        }
        const float multiplier = q.codes->host_scale() / (24.0F * global.host_scale()[0]);
        const double code =
            std::nearbyint(static_cast<float>(sum) * multiplier) + global.host_zero_point()[0];
        EXPECT_EQ(got[n * 3 + c],
                  std::clamp<double>(code, global.code_range().qmin, global.code_range().qmax));
      }
    }
    const Pool2dGeometry geometry{.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}};
    const Variable plain(q.x.value(), true);
    const Variable pooled = avg_pool2d_codes(q.x, geometry, windows, training);
    const Variable expected = avg_pool2d(plain, geometry);
    EXPECT_TRUE(
        testing::all_close(pooled.value(), expected.value(), 0, 0.51 * windows.host_scale()[0]));
    const Tensor grad = random_tensor(pooled.shape(), 12, DType::kF32);
    const auto expected_grad = gradient(expected, plain, grad);
    const auto got_grad = gradient(pooled, q.leaf, grad);
    for (std::size_t i = 0; i < got_grad.size(); ++i)
      EXPECT_NEAR(got_grad[i], expected_grad[i], 1e-6);
  }
}

TEST(CodeOps, FloatInputsTakeTheFloatOperation) {
  ForwardContext training{.training = true};
  const Variable x(random_tensor({2, 4, 4, 3}, 1, DType::kF32));
  QatMaxPool2d pool(Pool2dGeometry{});
  EXPECT_FALSE(quantized(pool.forward(x, training)));
  EXPECT_EQ(values(pool.forward(x, training).value()),
            values(max_pool2d(x, Pool2dGeometry{}).value()));
  QatAdd sum(kernels::Activation::kRelu, activations(false));
  const Variable y = sum.join({x, x}, training);
  ASSERT_TRUE(quantized(y));
  const auto in = values(x.value()), out = values(y.value());
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], std::max(0.0, 2 * in[i]), 0.005);
}

}  // namespace
}  // namespace steelyard::qat
