// A training step on a GPU never waits for it: nothing is copied to the host. On the emulated GPU,
// which counts.
#include <gtest/gtest.h>

#include "qat/oscillations.h"
#include "tests/qat/device_networks.h"
#include "tests/support/cuda_emulation/copies.h"

namespace steelyard::qat {
namespace {

using observers::Strategy;

std::vector<Scheme> schemes() {
  const QuantizerConfig weights = weight_scheme(8, Strategy::kChannel);
  const QuantizerConfig average = activation_scheme(8, "moving_average");
  return {{"w8a8", both(weights, average)},
          {"w8a8_per_tensor",
           both(weight_scheme(8, Strategy::kTensor), activation_scheme(8, "min_max"))},
          {"lsq", both(weight_scheme(4, Strategy::kChannel, "min_max", Learning::kScale),
                       activation_scheme(4, "min_max", Learning::kScaleAndZeroPoint))},
          {"pact", both(weights, activation_scheme(4, "min_max", Learning::kClipping))},
          {"bn_none", both(weights, average, BatchNormFold::kNone)},
          {"bn_corrected", both(weights, average, BatchNormFold::kBatchCorrected)},
          {"bn_one_convolution", both(weights, average, BatchNormFold::kOneConvolution)}};
}

class TrainingStep : public ::testing::TestWithParam<Scheme> {};
INSTANTIATE_TEST_SUITE_P(Schemes, TrainingStep, ::testing::ValuesIn(schemes()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TrainingStep, CopiesNothingToTheHost) {
  const auto model = network(GetParam().config);
  move_to(*model, testing::kCudaDevice);
  const Tensor x = images(1).to(testing::kCudaDevice);
  const auto step = [&] {
    ForwardContext context{.training = true};
    const Variable y = model->forward(Variable(x), context);
    y.backward(Tensor::full(y.shape(), 1, DType::kF32, testing::kCudaDevice));
  };
  const std::int64_t before = emulation::copies_to_host();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(emulation::copies_to_host(), before);
  EXPECT_EQ(named_quantizers(*model)[0].quantizer->take_non_finite_count(), 0);
  EXPECT_GT(emulation::copies_to_host(), before) << "asked for, it is counted";
}

TEST(OscillationStep, CopiesNothingToTheHost) {
  const auto model =
      network(both(weight_scheme(4, Strategy::kChannel), activation_scheme(8, "moving_average")));
  move_to(*model, testing::kCudaDevice);
  OscillationCallback oscillations(*model, {.damping = CosineSchedule{1e-3, 1e-3},
                                            .freeze_threshold = CosineSchedule{0.2, 0.2}});
  const Tensor x = images(1).to(testing::kCudaDevice);
  const std::int64_t before = emulation::copies_to_host();
  for (std::int64_t i = 0; i < 2; ++i) {
    ForwardContext context{.training = true};
    const Variable y = model->forward(Variable(x), context);
    y.backward(Tensor::full(y.shape(), 1, DType::kF32, testing::kCudaDevice));
    oscillations.on_gradients(i, 2);
    oscillations.on_step_end({});
  }
  EXPECT_EQ(emulation::copies_to_host(), before);
}

}  // namespace
}  // namespace steelyard::qat
