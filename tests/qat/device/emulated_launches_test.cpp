// What quantizers queue on a GPU: a step of a small network takes as long as its launches.
#include <gtest/gtest.h>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "steelyard/qat/quantizers/weight_quantizer.h"
#include "tests/support/cuda_emulation/queued_work.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::kCudaDevice;
using testing::random_tensor;

// The kernels, products and copies that `work` queues, none of which is run.
template <typename F>
emulation::Work work_of(F&& work) {
  emulation::begin_recording(cuda_queue(testing::kCudaDevice).stream);
  work();
  return emulation::end_recording();
}
template <typename F>
std::size_t queued_by(F&& work) {
  return work_of(work).size();
}

class QuantizerLaunches : public ::testing::Test {
 protected:
  // Quantizers on the GPU in their second step.
  std::shared_ptr<WeightQuantizer> of_weights(const QuantizerConfig& config,
                                              std::int64_t channels) {
    auto made = std::make_shared<WeightQuantizer>(config, channels);
    move_to(*made, kCudaDevice);
    cuda_queue(kCudaDevice);
    made->quantize_weights(weight_, &behind_, true, training_);
    return made;
  }
  std::shared_ptr<ActivationQuantizer> of_activations(const QuantizerConfig& config) {
    auto made = std::make_shared<ActivationQuantizer>(config);
    move_to(*made, kCudaDevice);
    cuda_queue(kCudaDevice);
    made->parameters(made->observe(x_), training_);
    return made;
  }
  std::size_t weight_launches(WeightQuantizer& weights) {
    return queued_by([&] { weights.quantize_weights(weight_, &behind_, true, training_); });
  }

  const Tensor x_ = random_tensor({300, 8}, 1, DType::kF32).to(kCudaDevice);
  const Tensor weight_ = random_tensor({16, 8, 3, 3}, 2, DType::kF32).to(kCudaDevice);
  const Tensor bias_ = random_tensor({16}, 3, DType::kF32).to(kCudaDevice);
  const WeightBias behind_{{Tensor::full({1}, 0.02, DType::kF32, kCudaDevice),
                            Tensor::zeros({1}, DType::kI32, kCudaDevice)},
                           {0, 255},
                           bias_,
                           bias_};
  ForwardContext training_{.training = true};
};

TEST_F(QuantizerLaunches, WeightsOfChannelsAreOne) {
  for (const char* observer : {"min_max", "moving_average"}) {
    QuantizerConfig config = *default_w8a8().weights;
    config.observer.type = observer;
    const auto weights = of_weights(config, 16);
    EXPECT_EQ(weight_launches(*weights), 1U) << observer;
    weights->set_observing(false);
    EXPECT_EQ(weight_launches(*weights), 1U) << observer << ", frozen";
  }
}

TEST_F(QuantizerLaunches, WeightsWithLearnedScalesAreOne) {
  QuantizerConfig config = *default_w8a8().weights;
  config.learning = Learning::kScale;
  config.observer.type = "mse";
  for (const std::int64_t scales : {16, 1}) {
    const auto weights = of_weights(config, scales);
    ASSERT_TRUE(weights->learns(training_));
    EXPECT_EQ(weight_launches(*weights), 1U) << scales;
  }
}

TEST_F(QuantizerLaunches, RangesOfActivationsAreOne) {
  for (const char* observer : {"min_max", "moving_average"}) {
    QuantizerConfig config = *default_w8a8().activations;
    config.observer.type = observer;
    const auto activations = of_activations(config);
    EXPECT_EQ(queued_by([&] { activations->parameters(activations->observe(x_), training_); }), 1U);
    activations->set_observing(false);
    EXPECT_EQ(queued_by([&] { activations->parameters({}, training_); }), 0U);
  }
}

// What nobody else holds is the parameter's gradient as it is.
TEST_F(QuantizerLaunches, GradientsAreNotCopied) {
  const Variable x(x_);
  Variable weight(random_tensor({5, 8}, 4, DType::kF32).to(kCudaDevice));
  Variable bias(random_tensor({5}, 5, DType::kF32).to(kCudaDevice));
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  const Tensor grad = Tensor::full({300, 5}, 1.0, DType::kF32, kCudaDevice);
  const auto work = work_of([&] { linear(x, weight, bias).backward(grad); });
  for (const auto& item : work) EXPECT_STRNE(item.what, "copy");
  EXPECT_TRUE(weight.grad().defined() && bias.grad().defined());
}

}  // namespace
}  // namespace steelyard::qat
