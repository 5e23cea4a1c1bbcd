// Layers and operations that the other tests on a GPU do not have: the same training as on the CPU.
#include <gtest/gtest.h>

#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/lstm.h"
#include "tests/export/export_support.h"
#include "tests/qat/device/device_networks.h"
#include "tests/support/attention_net.h"

namespace steelyard::qat {
namespace {

using kernels::Granularity;
using testing::all_close;
using testing::kCudaDevice;

class LayersOnCuda : public testing::WithCudaDevice {
 protected:
  const QuantizeConfig config_ =
      both(weight_scheme(8, Granularity::kChannel), activation_scheme(8, "moving_average"));
};

// A training pass, its gradients and an evaluation.
void expect_same_training(Module& cpu, Module& gpu, const Shape& shape) {
  const Tensor x = testing::random_tensor(shape, 1, DType::kF32);
  move_to(gpu, kCudaDevice);
  Rng of_cpu(3), of_gpu(3);
  Variable y, there;
  const auto expected = computed(cpu, x, {.training = true, .rng = &of_cpu}, &y);
  const auto actual = computed(gpu, x, {.training = true, .rng = &of_gpu}, &there);
  expect_same_bits(actual, expected);
  expect_same_state(gpu, cpu);
  y.backward(Tensor::full(y.shape(), 1));
  there.backward(Tensor::full(y.shape(), 1, DType::kF32, kCudaDevice));
  const auto a = gpu.named_parameters(), b = cpu.named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!b[i].variable.grad().defined()) continue;
    EXPECT_TRUE(all_close(a[i].variable.grad().to(Device{}), b[i].variable.grad(), 2e-5, 2e-5))
        << a[i].name;
  }
  const Tensor other = testing::random_tensor(shape, 2, DType::kF32);
  expect_same_bits(computed(gpu, other, {}), computed(cpu, other, {}));
}

TEST_F(LayersOnCuda, DoTheSameInBranches) {
  const QuantizeConfig learning =
      both(weight_scheme(4, Granularity::kChannel, "min_max", Learning::kScale),
           activation_scheme(4, "min_max", Learning::kScaleAndZeroPoint));
  for (const QuantizeConfig& config : {config_, learning}) {
    expect_same_training(*branches(config), *branches(config), {4, 8, 8, 3});
  }
}

TEST_F(LayersOnCuda, MoveAndMultiplyCodesAsTheCpuDoes) {
  const auto attention = [&] {
    Rng rng(9);
    return prepare(testing::attention_net(rng), config_).model;
  };
  expect_same_training(*attention(), *attention(), {4, 9, 8, 3});
}

TEST_F(LayersOnCuda, ComputeWithConstantsAndShapesThatBroadcastAsTheCpuDoes) {
  const auto model = [&] {
    Rng rng(9);
    return prepare(testing::arithmetic_net(rng), config_).model;
  };
  expect_same_training(*model(), *model(), {4, 9, 8, 3});
}

// Two of them, with and without phases; codes, zero points and groups of weights, wide codes.
TEST_F(LayersOnCuda, TransposeConvolutionsAsTheCpuDoes) {
  QuantizerConfig affine = weight_scheme(4, Granularity::kChannel);
  affine.scheme.symmetric = affine.scheme.narrow_range = false;
  const QuantizerConfig average = activation_scheme(8, "moving_average");
  for (QuantizeConfig config :
       {config_, both(affine, average), both(weight_scheme(4, Granularity::kGroup), average),
        both(affine, activation_scheme(16, "moving_average"))}) {
    config.groups[0].targets = {"ConvTranspose2d"};
    const auto model = [&] {
      Rng rng(9);
      const auto up = [&](const ConvTranspose2dOptions& options) {
        return std::make_shared<ConvTranspose2d>(options, rng);
      };
      return prepare(std::make_shared<Sequential>(Sequential::Children{
                         up({.in_channels = 3, .out_channels = 4, .kernel_size = {3, 3}}),
                         std::make_shared<ReLU>(),
                         up({.in_channels = 4,
                             .out_channels = 6,
                             .kernel_size = {3, 3},
                             .stride = {2, 2},
                             .padding = {1, 1},
                             .output_padding = {1, 0},
                             .groups = 2})}),
                     config)
          .model;
    };
    expect_same_training(*model(), *model(), {2, 4, 5, 3});
  }
}

// One in each direction; the last output alone, and those of all steps.
TEST_F(LayersOnCuda, ComputeLstmsAsTheCpuDoes) {
  QuantizeConfig config = config_;
  config.groups[0].targets = {"LSTM", "Linear"};
  const auto model = [&] {
    Rng rng(9);
    const auto layer = [&](std::int64_t inputs, bool reverse, bool return_sequences) {
      return std::make_shared<LSTM>(LstmLayerOptions{.inputs = inputs,
                                                     .units = 4,
                                                     .pass = {.reverse = reverse},
                                                     .return_sequences = return_sequences},
                                    rng);
    };
    return prepare(std::make_shared<Sequential>(
                       Sequential::Children{layer(3, false, true), layer(4, true, false),
                                            std::make_shared<Linear>(LinearOptions{4, 2}, rng)}),
                   config)
        .model;
  };
  expect_same_training(*model(), *model(), {4, 5, 3});
}

}  // namespace
}  // namespace steelyard::qat
