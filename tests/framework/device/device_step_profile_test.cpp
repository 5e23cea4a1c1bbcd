// Profiles of steps: which kernel belongs to which layer and kind of work.
#include "steelyard/framework/autograd/step_profile.h"

#include <gmock/gmock.h>

#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using StepProfileOn = ::testing::TestWithParam<Device>;

// A convolution of [2, 5, 5, 3] images with 4 filters of 3 x 3, a ReLU, and 6 outputs.
class SmallNet {
 public:
  explicit SmallNet(Device device) : device_(device) {
    Rng rng(1);
    model_ = std::make_shared<Sequential>(Sequential::NamedChildren{
        {"conv",
         std::make_shared<Conv2d>(
             Conv2dOptions{.in_channels = 3, .out_channels = 4, .kernel_size = {3, 3}}, rng)},
        {"relu", std::make_shared<ReLU>()},
        {"flatten", std::make_shared<Flatten>()},
        {"fc",
         std::make_shared<Linear>(LinearOptions{.in_features = 36, .out_features = 6}, rng)}});
    move_to(*model_, device);
  }

  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const NamedParameter& p : model_->named_parameters()) all.push_back(p.variable.value());
    return all;
  }
  Variable loss() const {
    const Tensor x = random_tensor({2, 5, 5, 3}, 2, DType::kF32).to(device_);
    const Tensor targets = Tensor::zeros({2}, DType::kI64, device_);
    ForwardContext context{.training = true};
    return cross_entropy(model_->forward(Variable(x), context), targets);
  }

 private:
  Device device_;
  std::shared_ptr<Sequential> model_;
};

const LayerProfile& layer(const StepProfile& profile, const std::string& name) {
  static const LayerProfile none;
  for (const LayerProfile& one : profile.layers()) {
    if (one.layer == name) return one;
  }
  ADD_FAILURE() << "no layer " << name;
  return none;
}

// The sum of a layer's products in a pass, or of its other kernels.
KernelSum total(const LayerProfile& layer, StepPass pass, bool products, bool over_rows = false) {
  KernelSum sum{.kernel = typeid(void), .pass = pass};
  if (products) sum.product.emplace();
  for (const KernelSum& one : layer.kernels) {
    if (one.pass != pass || one.product.has_value() != products) continue;
    if (products && one.product->over_rows != over_rows) continue;
    sum.seconds += one.seconds;
    sum.count += one.count;
    if (products) sum.product->multiply_adds += one.product->multiply_adds;
  }
  return sum;
}

TEST_P(StepProfileOn, KernelsBelongToTheirLayerAndPass) {
  if (GetParam() == kCudaDevice && !has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const SmallNet net(GetParam());
  StepProfile profile(net.parameters());
  profile.begin();
  const Variable loss = net.loss();
  loss.backward();
  {
    const ProfiledUpdate update;
    Tensor::zeros({3}, DType::kF32, GetParam()).fill(2);
  }
  profile.end();
  net.loss().backward();  // nobody listens

  constexpr std::int64_t kConv = 2 * 3 * 3 * 4 * 3 * 3 * 3, kLinear = 2 * 36 * 6;
  const LayerProfile& conv = layer(profile, "conv");
  EXPECT_EQ(total(conv, StepPass::kForward, true).product->multiply_adds, kConv);
  EXPECT_EQ(total(conv, StepPass::kForward, true).count, 1);
  EXPECT_EQ(total(conv, StepPass::kBackward, true, true).product->multiply_adds, kConv);
  EXPECT_EQ(total(conv, StepPass::kBackward, true, false).count, 0) << "images need no gradient";
  const LayerProfile& fc = layer(profile, "fc");
  for (const StepPass pass : {StepPass::kForward, StepPass::kBackward}) {
    EXPECT_EQ(total(fc, pass, true).product->multiply_adds, kLinear);
    EXPECT_FALSE(total(fc, pass, true).product->in_integers);
  }
  EXPECT_EQ(total(fc, StepPass::kBackward, true, true).product->multiply_adds, kLinear);
  EXPECT_GT(total(fc, StepPass::kForward, true).seconds, 0);
  EXPECT_GT(total(layer(profile, "relu"), StepPass::kForward, false).count, 0);
  EXPECT_GT(total(layer(profile, "relu"), StepPass::kBackward, false).count, 0);
  EXPECT_GT(total(layer(profile, ""), StepPass::kForward, false).count, 0) << "the loss";
  EXPECT_GT(total(layer(profile, ""), StepPass::kUpdate, false).count, 0);

  std::int64_t saved = 0;
  for (const LayerProfile& one : profile.layers()) saved += one.saved_bytes;
  EXPECT_EQ(saved, saved_bytes(loss, net.parameters()));
  // x, w and bias are read and y is written.
  EXPECT_EQ(fc.forward_bytes, 4 * (2 * 36 + 36 * 6 + 6 + 2 * 6));
}

TEST_P(StepProfileOn, WhatAKernelRunsInsideCountsOnce) {
  if (GetParam() == kCudaDevice && !has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  struct Counts : kernels::KernelWatcher {
    void ran(const std::type_info&, const kernels::ProductWork*, double) override { ++kernels; }
    int kernels = 0;
  } counts;
  struct Outer {};
  kernels::kernel_watcher = &counts;
  kernels::run_watched(Outer(), [&] { Tensor::zeros({3}, DType::kF32, GetParam()).fill(2); });
  EXPECT_THROW(kernels::run_watched(Outer(), [] { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(kernels::kernel_watcher, &counts);
  kernels::kernel_watcher = nullptr;
  EXPECT_EQ(counts.kernels, 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, StepProfileOn, ::testing::Values(kCpuDevice, kCudaDevice),
                         [](const auto& param) { return device_word(param.param); });

}  // namespace
}  // namespace steelyard::testing
