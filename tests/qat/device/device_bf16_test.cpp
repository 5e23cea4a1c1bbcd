// Training steps on a GPU at the precision of bfloat16: the same codes, and gradients that differ
// by what rounding their operands does.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/tensor/on_device.h"
#include "tests/qat/device/device_networks.h"

namespace steelyard::qat {
namespace {

using kernels::Granularity;
using testing::kCudaDevice;

struct Step {
  std::vector<Tensor> computed;
  std::vector<NamedTensor> gradients;
};

Step step(const QuantizeConfig& config, std::int64_t width, const char* precision) {
  const MatmulPrecisionGuard guard(kCudaDevice, precision);
  const auto model = network(config, width);
  move_to(*model, kCudaDevice);
  Variable output;
  Step step;
  step.computed = computed(*model, images(1), {.training = true}, &output);
  output.backward(testing::random_tensor(output.shape(), 9, DType::kF32).to(kCudaDevice));
  for (const NamedParameter& p : model->named_parameters()) {
    const Tensor& grad = p.variable.grad();
    if (grad.defined()) step.gradients.push_back({p.name, grad.to(Device{})});
  }
  return step;
}

// |a - b| / |b|.
double distance(const Tensor& a, const Tensor& b) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    const double of_a = a.data<float>()[i], of_b = b.data<float>()[i];
    difference += (of_a - of_b) * (of_a - of_b);
    norm += of_b * of_b;
  }
  return std::sqrt(difference / std::fmax(norm, 1e-12));
}

void check(const QuantizeConfig& config, const std::vector<std::int64_t>& widths) {
  for (const std::int64_t width : widths) {
    SCOPED_TRACE(::testing::Message() << width << " channels");
    const Step expected = step(config, width, "float32"), actual = step(config, width, "bf16");
    expect_same_bits(actual.computed, expected.computed);
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      const Tensor& grad = actual.gradients[i].tensor;
      EXPECT_EQ(grad.dtype(), DType::kF32) << expected.gradients[i].name;
      EXPECT_LT(distance(grad, expected.gradients[i].tensor), 0.03) << expected.gradients[i].name;
    }
  }
}

class Bf16OnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
  QuantizerConfig per_channel_ = weight_scheme(8, Granularity::kChannel);
  QuantizerConfig average_ = activation_scheme(8, "moving_average");
};

TEST_F(Bf16OnCuda, GradientsOfCodesAreClose) { check(both(per_channel_, average_), {6, 8, 24}); }

TEST_F(Bf16OnCuda, GradientsOfLearnedScalesAreClose) {
  check(both(weight_scheme(4, Granularity::kChannel, "min_max", Learning::kScale),
             activation_scheme(4, "min_max", Learning::kScaleAndZeroPoint)),
        {6, 8, 24});
}

// Weights whose codes no kernel of gradients reads, and wide codes.
TEST_F(Bf16OnCuda, GradientsOfOtherCodesAreClose) {
  QuantizerConfig affine = weight_scheme(4, Granularity::kChannel);
  affine.scheme.symmetric = affine.scheme.narrow_range = false;
  check(both(affine, average_), {6, 8});
  check(both(weight_scheme(4, Granularity::kGroup), average_), {6, 24});
  check(both(per_channel_, activation_scheme(16, "moving_average")), {6, 8});
}

}  // namespace
}  // namespace steelyard::qat
