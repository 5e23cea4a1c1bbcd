// The profiles of fixed point in prepare(): what they fix, and what they refuse by name.
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/output_parts.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::fixed_point_profile_test {
namespace {

using testing::message_of;
using testing::random_tensor;

QuantizeConfig fixed_config(Profile profile = Profile::kTflm) {
  QuantizeConfig config = w8a8({"Conv2d", "Linear"});
  config.profile = profile;
  return config;
}

// [N, 6, 6, 2]: a convolution, the layer, and a linear layer of as many features as it leaves.
std::shared_ptr<Module> net_with(std::shared_ptr<Module> layer, std::int64_t features = 144) {
  Rng rng(1);
  Conv2dOptions options{.in_channels = 2, .out_channels = 4, .kernel_size = {3, 3}};
  options.padding = {1, 1};
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv", std::make_shared<Conv2d>(options, rng)},
                                {"layer", std::move(layer)},
                                {"flatten", std::make_shared<Flatten>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{features, 3}, rng)}});
}

std::string refusal_of(std::shared_ptr<Module> layer) {
  return message_of<InputError>([&] { prepare(net_with(std::move(layer)), fixed_config()); });
}

TEST(FixedPointProfile, FixesTheCodesAndSaysSo) {
  for (const Profile profile : {Profile::kTflm, Profile::kTflmSingleRounding}) {
    QuantizeConfig config = fixed_config(profile);
    config.groups[0].config.weights->scheme.narrow_range = false;
    ASSERT_FALSE(config.groups[0].config.activations->scheme.is_signed);
    const PreparedModel prepared = prepare(net_with(std::make_shared<ReLU>()), config);
    for (const NamedQuantizer& entry : named_quantizers(*prepared.model)) {
      const kernels::CodeRange expected = entry.quantizer->of_weights()
                                              ? kernels::CodeRange{-127, 127}
                                              : kernels::CodeRange{-128, 127};
      EXPECT_EQ(entry.quantizer->code_range(), expected) << entry.name;
    }
    ASSERT_FALSE(prepared.plan.notes.empty());
    EXPECT_NE(prepared.plan.notes[0].find("activations have the codes -128 to 127"),
              std::string::npos);
  }
}

TEST(FixedPointProfile, AnAveragePoolSharesItsInputsQuantizer) {
  const auto pool = std::make_shared<AvgPool2d>(AvgPool2dOptions{{{2, 2}, {2, 2}, {0, 0}}});
  const PreparedModel prepared = prepare(net_with(pool, 36), fixed_config());
  std::string row;
  for (const PlanRow& one : prepared.plan.rows) {
    if (one.module == "layer") row = one.quantized;
  }
  EXPECT_EQ(row, "as conv");
  // Its gradient is that of an average.
  Rng rng(3);
  ForwardContext training{.training = true, .rng = &rng};
  const Variable x(random_tensor({2, 6, 6, 2}, 1, DType::kF32), /*requires_grad=*/true);
  const Variable y = prepared.model->forward(x, training);
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
}

TEST(FixedPointProfile, TanhHasCodesAroundZero) {
  const auto tanh = std::make_shared<Elementwise>(kernels::UnaryFunction::kTanh);
  for (const Profile profile : {Profile::kTflm, Profile::kTflmSingleRounding}) {
    const PreparedModel prepared = prepare(net_with(tanh), fixed_config(profile));
    Rng rng(3);
    ForwardContext training{.training = true, .rng = &rng};
    const Variable x(random_tensor({2, 6, 6, 2}, 1, DType::kF32), /*requires_grad=*/true);
    const Variable y = prepared.model->forward(x, training);
    int tanhs = 0;
    for (const NamedQuantizer& entry : named_quantizers(*prepared.model)) {
      if (entry.name.find("layer.") == std::string::npos) continue;
      EXPECT_EQ(entry.quantizer->host_scale()[0], 0x1p-7F) << entry.name;
      EXPECT_EQ(entry.quantizer->host_zero_point()[0], 0) << entry.name;
      ++tanhs;
    }
    EXPECT_EQ(tanhs, 1);
    y.backward(Tensor::full(y.shape(), 1.0));
    for (const NamedParameter& p : prepared.model->named_parameters()) {
      EXPECT_TRUE(p.variable.grad().defined()) << p.name;
    }
  }
}

TEST(FixedPointProfile, RefusesByNameWhatTfliteMicroHasNot) {
  EXPECT_EQ(refusal_of(std::make_shared<SiLU>()),
            "layer: the profile tflm has no such SiLU: SiLU has no quantized form");
  EXPECT_EQ(refusal_of(std::make_shared<LeakyReLU>(-0.1)),
            "layer: the profile tflm has no such LeakyReLU: its slope is negative");
  EXPECT_EQ(refusal_of(std::make_shared<AvgPool2d>(AvgPool2dOptions{{{3, 3}, {1, 1}, {1, 1}}})),
            "layer: the profile tflm has no such AvgPool2d: with padding");
  Rng rng(1);
  QuantizeConfig transposed = fixed_config();
  transposed.groups[0].targets.emplace_back("ConvTranspose2d");
  const auto groups = std::make_shared<ConvTranspose2d>(
      ConvTranspose2dOptions{
          .in_channels = 4, .out_channels = 4, .kernel_size = {1, 1}, .groups = 2},
      rng);
  EXPECT_EQ(message_of<InputError>([&] { prepare(net_with(groups), transposed); }),
            "layer: the profile tflm has no such ConvTranspose2d: with groups or dilation");
  const auto twice = std::make_shared<Sequential>(Sequential::NamedChildren{
      {"pool", std::make_shared<MaxPool2d>(Pool2dGeometry{{1, 1}, {1, 1}, {0, 0}})},
      {"six", std::make_shared<ReLU6>()}});
  EXPECT_EQ(refusal_of(twice),
            "layer.six: the profile tflm has no such ReLU6: expected it alone after a layer or a "
            "sum, which computes it");
  QuantizeConfig config = fixed_config();
  config.ignore = {"fc"};
  const std::string ignored =
      message_of<InputError>([&] { prepare(net_with(std::make_shared<ReLU>()), config); });
  EXPECT_EQ(ignored.find("fc: the profile tflm has no such Linear: "), 0U) << ignored;
}

TEST(FixedPointProfile, RefusesWithWhatWorksInstead) {
  Rng rng(1);
  EXPECT_EQ(refusal_of(std::make_shared<Conv1d>(Conv1dOptions{4, 4, 3}, rng)),
            "layer: the profile tflm has no such Conv1d: Conv1d has no quantized form here; Conv2d "
            "with a kernel of [k, 1] computes the same of samples [length, 1, channels]");
  QuantizeConfig norm_in_float = fixed_config();
  norm_in_float.bn_fold = BatchNormFold::kNone;
  EXPECT_EQ(message_of<InputError>([&] {
              prepare(net_with(std::make_shared<BatchNorm2d>(BatchNorm2dOptions{4})),
                      norm_in_float);
            }),
            "layer: the profile tflm has no such BatchNorm2d: quantize.bn_fold: none leaves it in "
            "float; expected frozen, batch_corrected or one_convolution");
  const auto outputs = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"a", std::make_shared<Conv2d>(Conv2dOptions{2, 2, {1, 1}}, rng)},
      {"b", std::make_shared<Conv2d>(Conv2dOptions{2, 2, {1, 1}}, rng), {"a"}},
      {"outputs", std::make_shared<OutputParts>(), {"a", "b"}}});
  EXPECT_EQ(message_of<InputError>([&] { prepare(outputs, fixed_config()); }),
            "the model has several outputs: the profile tflm has models of one");
}

// Symmetric activations, too, which have other grids for such functions elsewhere.
TEST(FixedPointProfile, FunctionsHaveTheirCodesWhateverTheRecipeSays) {
  QuantizeConfig symmetric = fixed_config();
  observers::QScheme& scheme = symmetric.groups[0].config.activations->scheme;
  scheme.is_signed = scheme.symmetric = true;
  const auto tanh = std::make_shared<Elementwise>(kernels::UnaryFunction::kTanh);
  const auto sigmoid = std::make_shared<Sigmoid>();
  const auto softmax = std::make_shared<Softmax>();
  for (const std::shared_ptr<Module>& layer :
       {std::shared_ptr<Module>(tanh), std::shared_ptr<Module>(sigmoid),
        std::shared_ptr<Module>(softmax)}) {
    const PreparedModel prepared = prepare(net_with(layer), symmetric);
    Rng rng(3);
    ForwardContext training{.training = true, .rng = &rng};
    prepared.model->forward(Variable(random_tensor({2, 6, 6, 2}, 1, DType::kF32)), training);
    const bool around_zero = layer == tanh;
    int found = 0;
    for (const NamedQuantizer& entry : named_quantizers(*prepared.model)) {
      if (entry.name.find("layer.") == std::string::npos) continue;
      EXPECT_EQ(entry.quantizer->host_scale()[0], around_zero ? 0x1p-7F : 0x1p-8F) << entry.name;
      EXPECT_EQ(entry.quantizer->host_zero_point()[0], around_zero ? 0 : -128) << entry.name;
      ++found;
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(FixedPointProfile, RefusesConfigsThatItCannotExecute) {
  const auto message = [](const auto& change) {
    QConfig config = default_w8a8();
    change(config);
    return message_of<std::invalid_argument>([&] { validate(config, Profile::kTflm); });
  };
  EXPECT_EQ(message([](QConfig& c) { c.activations->scheme.bits = 16; }),
            "the profile tflm has activations of 8 bits, got 16");
  EXPECT_EQ(message([](QConfig& c) { c.activations.reset(); }),
            "the profile tflm is for integers alone: expected weights and activations");
  EXPECT_EQ(message([](QConfig& c) {
              c.weights->scheme.symmetric = false;
              c.weights->scheme.narrow_range = false;
            }),
            "the profile tflm needs symmetric weights: they have no zero points");
  EXPECT_EQ(message([](QConfig& c) {
              c.weights->scheme.granularity = kernels::Granularity::kGroup;
              c.weights->scheme.group_size = 8;
            }),
            "the profile tflm has weights with a scale per channel or per tensor, not per group");
  EXPECT_NO_THROW(validate(default_w8a8(), Profile::kTflm));
}

}  // namespace
}  // namespace steelyard::qat::fixed_point_profile_test
