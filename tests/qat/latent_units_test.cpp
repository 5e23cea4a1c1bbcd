#include "steelyard/qat/prepare/latent_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/train/optimizer.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/learned_scale.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::latent_units_test {
namespace {

// A Linear of three outputs with learned scales, 4 bits, and learned offsets of activations.
std::shared_ptr<Module> learned_layer() {
  QConfig config = default_w8a8();
  for (std::optional<QuantizerConfig>* side : {&config.weights, &config.activations}) {
    (*side)->learning = Learning::kScaleAndZeroPoint;
    (*side)->scheme.bits = 4;
  }
  QuantizeConfig quantize;
  quantize.groups.push_back({{"Linear"}, config});
  Rng rng(1);
  return prepare(sequential({{"fc", linear(5, 3, rng)}}), quantize).model;
}

Tensor value_of(Module& model, const std::string& name) {
  for (const NamedParameter& p : model.named_parameters()) {
    if (p.name == name) return p.variable.value();
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(LatentUnits, AreTheFirstScalesOfAllLatents) {
  const auto model = learned_layer();
  const auto units = latent_units(*model);
  std::size_t latents = 0;
  for (const NamedParameter& p : model->named_parameters()) {
    if (!is_latent(p.name)) continue;
    ++latents;
    ASSERT_TRUE(units(p).size.defined()) << p.name;
    EXPECT_EQ(units(p).size.shape(), p.variable.shape());
    EXPECT_EQ(units(p).count, p.name.ends_with(kLearnedOffset) ? 150 : 10) << p.name;
  }
  EXPECT_EQ(latents, 5U);  // weights; scale and offset of the input and of the output
  // They are the quantizers' own: set when learning begins.
  ForwardContext training{.training = true};
  model->forward(Variable(testing::random_tensor({8, 5}, 3, DType::kF32)), training);
  const std::string name = "fc.weight_quantizer.learned_scale";
  const Tensor size = units({name, {}}).size;
  EXPECT_EQ(testing::values(size), testing::values(value_of(*model, name)));
  EXPECT_LT(testing::values(size)[0], 0.5);
  EXPECT_FALSE(units({"fc.weight", {}}).size.defined());
}

// Scales near 1e-4 beside a learning rate of 1e-3: Adam's own step would be ten of them.
TEST(LatentUnits, MakeStepsOfAdamRelativeToScales) {
  const auto model = learned_layer();
  const auto units = latent_units(*model);
  AdamW adamw(*model, {.weight_decay = 0, .step_units = units});
  ForwardContext training{.training = true};
  const Tensor x = testing::random_tensor({8, 5}, 3, DType::kF32);
  for (float& value : x.span<float>()) value *= 1e-3F;
  const auto step = [&] {
    Variable y = model->forward(Variable(x), training);
    for (NamedParameter p : model->named_parameters()) p.variable.clear_grad();
    y.backward(Tensor::full(y.shape(), 1.0));
    adamw.step(0.001);
  };
  step();
  const std::string name = "input_quantizer.learned_scale";
  const double first = testing::values(units({name, {}}).size)[0];
  EXPECT_LT(first, 1e-3);
  for (int i = 0; i < 20; ++i) {
    const double before = testing::values(value_of(*model, name))[0];
    step();
    const double moved = std::abs(testing::values(value_of(*model, name))[0] - before);
    EXPECT_LT(moved, 0.02 * first);
  }
}

}  // namespace
}  // namespace steelyard::qat::latent_units_test
