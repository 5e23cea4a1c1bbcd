// Normalizations, pools, activations and a small network on a GPU against the CPU.
#include <cstring>
#include <limits>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/norm/norm.h"
#include "tests/framework/device/device_cases.h"

namespace steelyard::testing {
namespace {

using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

Tensor scaled(const Tensor& t, double factor, double offset) {
  for (double& value : t.span<double>()) value = value * factor + offset;
  return t;
}

// Rows far from zero, with a spread that differs from column to column.
DeviceCase batch_norm_case(const std::string& name, const Shape& shape, bool batch_statistics) {
  const std::int64_t channels = shape.back();
  return {.name = name,
          .inputs = {scaled(random_tensor(shape, 1), 3.0, 20.0), random_tensor({channels}, 2),
                     random_tensor({channels}, 3)},
          .op =
              [batch_statistics](const Vs& v, const Place&) {
                return batch_norm(v[0], v[1], v[2],
                                  {.running_mean = v[3].value(),
                                   .running_var = v[4].value(),
                                   .batch_statistics = batch_statistics});
              },
          .state = {random_tensor({channels}, 4), scaled(random_tensor({channels}, 5), 0.4, 1.0)},
          .rtol = 1e-4,
          .atol = 1e-4};
}

DeviceCase layer_norm_case(const std::string& name, const Shape& shape) {
  return {.name = name,
          .inputs = {scaled(random_tensor(shape, 1), 2.0, 3.0), random_tensor({shape.back()}, 2),
                     random_tensor({shape.back()}, 3)},
          .op = [](const Vs& v, const Place&) { return layer_norm(v[0], v[1], v[2], 1e-5); },
          .rtol = 1e-4,
          .atol = 1e-4};
}

DeviceCase max_pool_case(const std::string& name, const Shape& shape, Pool2dGeometry geometry) {
  return {name, {random_tensor(shape, 1)}, [geometry](const Vs& v, const Place&) {
            return max_pool2d(v[0], geometry);
          }};
}

DeviceCase avg_pool_case(const std::string& name, const Shape& shape, Pool2dGeometry geometry,
                         bool count_include_pad) {
  return {name, {random_tensor(shape, 1)}, [=](const Vs& v, const Place&) {
            return avg_pool2d(v[0], geometry, count_include_pad);
          }};
}

DeviceCase global_pool_case(const std::string& name, const Shape& shape) {
  return {name, {random_tensor(shape, 1)}, [](const Vs& v, const Place&) {
            return global_avg_pool(v[0]);
          }};
}

DeviceCase activation_case(const std::string& name, Variable (*activation)(const Variable&)) {
  return {name,
          {scaled(random_tensor({700, 3}, 1), 5.0, 0.0)},
          [activation](const Vs& v, const Place&) { return activation(v[0]); }};
}

// A small network from images to its loss: convolution, batch norm, relu, depthwise convolution,
// max pooling, linear layer. Gradients of the images and of every parameter.
DeviceCase network_case() {
  return {.name = "network",
          .inputs = {random_tensor({6, 8, 8, 3}, 1), random_tensor({8, 3, 3, 3}, 2),
                     random_tensor({8}, 3), random_tensor({8}, 4), random_tensor({8, 1, 3, 3}, 5),
                     random_tensor({10, 128}, 6), random_tensor({10}, 7)},
          .op =
              [](const Vs& v, const Place& place) {
                const Tensor labels = Tensor::from<std::int64_t>({3, 0, 9, 3, 5, 1}, {6});
                const Variable none;
                Variable x = conv2d(v[0], v[1], none, {.padding = {1, 1}});
                x = relu(batch_norm(x, v[2], v[3],
                                    {.running_mean = v[7].value(),
                                     .running_var = v[8].value(),
                                     .batch_statistics = true}));
                x = conv2d(x, v[4], none, {.padding = {1, 1}, .groups = 8});
                x = linear(flatten(max_pool2d(x, {})), v[5], v[6]);
                return cross_entropy(x, place(labels));
              },
          .state = {Tensor::zeros({8}, DType::kF64), Tensor::full({8}, 1.0, DType::kF64)},
          .rtol = 1e-4};
}

const Pool2dGeometry kOverlapping{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
const Pool2dGeometry kUneven{.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}};

std::vector<DeviceCase> norm_and_pool_cases() {
  return {
      batch_norm_case("batch_norm", {4, 5, 5, 16}, true),
      batch_norm_case("batch_norm_33_channels", {3, 50, 33}, true),
      batch_norm_case("batch_norm_one_channel", {5000, 1}, true),
      batch_norm_case("batch_norm_many_chunks", {3001, 3}, true),
      batch_norm_case("batch_norm_few_rows", {5, 70}, true),
      batch_norm_case("batch_norm_frozen", {4, 5, 5, 20}, false),
      batch_norm_case("batch_norm_frozen_empty", {0, 7}, false),
      layer_norm_case("layer_norm", {37, 48}),
      layer_norm_case("layer_norm_wide", {3, 1100}),
      layer_norm_case("layer_norm_narrow", {300, 3}),
      layer_norm_case("layer_norm_one_row", {1, 33}),
      layer_norm_case("layer_norm_no_rows", {0, 5}),
      max_pool_case("max_pool", {2, 6, 8, 5}, {}),
      max_pool_case("max_pool_overlapping", {2, 7, 9, 33}, kOverlapping),
      max_pool_case("max_pool_overlapping_four_channels_at_once", {2, 7, 9, 12}, kOverlapping),
      max_pool_case("max_pool_uneven", {1, 7, 9, 3}, kUneven),
      max_pool_case("max_pool_empty", {0, 4, 4, 3}, {}),
      avg_pool_case("avg_pool", {2, 6, 8, 5}, {}, true),
      avg_pool_case("avg_pool_overlapping", {2, 7, 9, 33}, kOverlapping, true),
      avg_pool_case("avg_pool_padding_not_counted", {2, 7, 9, 4}, kOverlapping, false),
      avg_pool_case("avg_pool_uneven", {1, 7, 9, 3}, kUneven, false),
      global_pool_case("global_avg_pool", {3, 5, 7, 40}),
      global_pool_case("global_avg_pool_large_image", {1, 60, 50, 3}),
      global_pool_case("global_avg_pool_one_pixel", {2, 1, 1, 7}),
      global_pool_case("global_avg_pool_empty", {0, 2, 2, 7}),
      activation_case("sigmoid", sigmoid),
      activation_case("gelu", gelu),
      activation_case("silu", silu),
      activation_case("hardswish", hardswish),
      network_case(),
  };
}

using NormsAndPoolsOnCuda = OnCuda;
TEST_P(NormsAndPoolsOnCuda, MatchTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(NormsAndPoolsOnCuda, MatchTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Ops, NormsAndPoolsOnCuda, ::testing::ValuesIn(norm_and_pool_cases()),
                         device_case_name);

using NormKernelsOnCuda = WithCudaDevice;

// A mean of 1e6 and a deviation of 1: sums of squares about zero would lose all digits of float's
// variance and half of double's.
TEST_F(NormKernelsOnCuda, TheVarianceSurvivesALargeMean) {
  const std::int64_t rows = 4000, channels = 3;
  const Tensor x = scaled(random_tensor({rows, channels}, 1), 1.0, 1e6);
  Tensor mean = Tensor::empty({channels}, DType::kF64, kCudaDevice);
  Tensor variance = Tensor::empty({channels}, DType::kF64, kCudaDevice);
  const Tensor there = x.to(kCudaDevice);
  kernels::run(cuda_queue(kCudaDevice),
               kernels::BatchMoments<double>{.rows = rows,
                                             .channels = channels,
                                             .x = there.data<double>(),
                                             .mean = mean.data<double>(),
                                             .variance = variance.data<double>()});
  for (std::int64_t c = 0; c < channels; ++c) {
    long double sum = 0, squares = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += x.data<double>()[r * channels + c];
    const long double centre = sum / rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      const long double d = x.data<double>()[r * channels + c] - centre;
      squares += d * d;
    }
    EXPECT_NEAR(values(mean.to(kCpuDevice))[static_cast<std::size_t>(c)], double(centre), 1e-9);
    EXPECT_NEAR(values(variance.to(kCpuDevice))[static_cast<std::size_t>(c)],
                double(squares / rows), 1e-10);
  }
}

using PoolKernelsOnCuda = WithCudaDevice;

template <typename T>
Tensor max_pool_values(Device device, const Tensor& x, const kernels::Conv2dShape& shape,
                       Tensor* argmax) {
  const Tensor there = x.to(device);
  Tensor y = Tensor::empty({shape.output_size()}, x.dtype(), device);
  *argmax = Tensor::empty({shape.output_size(), 2}, DType::kU8, device);
  run(device, kernels::MaxPool<T>{.shape = shape,
                                  .x = there.data<T>(),
                                  .y = y.data<T>(),
                                  .argmax = static_cast<std::uint16_t*>(argmax->raw())});
  *argmax = argmax->to(kCpuDevice);
  return y.to(kCpuDevice);
}

template <typename T>
void expect_equal_max_pools(const Tensor& x) {
  const kernels::Conv2dShape shape = pool2d_shape("max_pool2d", x.shape(), kOverlapping);
  Tensor winners, expected_winners;
  const Tensor y = max_pool_values<T>(kCudaDevice, x, shape, &winners);
  const Tensor expected = max_pool_values<T>(kCpuDevice, x, shape, &expected_winners);
  const auto bytes = static_cast<std::size_t>(y.bytes());
  EXPECT_EQ(std::memcmp(y.raw(), expected.raw(), bytes), 0);
  EXPECT_EQ(values(winners), values(expected_winners));
}

TEST_F(PoolKernelsOnCuda, MaximaOfCodesAndTheirWinnersAreTheCpus) {
  for (const std::int64_t channels : {11, 12}) {
    const Tensor x = scaled(random_tensor({2, 9, 7, channels}, 1), 8.0, 0.0);  // many equals
    expect_equal_max_pools<std::int8_t>(x.to(DType::kI8));
    expect_equal_max_pools<std::uint8_t>(scaled(x, 1.0, 8.0).to(DType::kU8));
  }
}

TEST_F(PoolKernelsOnCuda, TheFirstNanWinsAMaximum) {
  for (const std::int64_t channels : {3, 4}) {
    Tensor x = random_tensor({1, 9, 9, channels}, 1, DType::kF32);
    for (std::int64_t i = 0; i < x.size(); i += 7) {
      x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    }
    expect_equal_max_pools<float>(x);
  }
}

}  // namespace
}  // namespace steelyard::testing
