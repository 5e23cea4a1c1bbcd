// Joined branches: the rule for codes, gradients, and where prepare() puts the quantizer.
#include "steelyard/qat/layers/qat_concat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/activation_config.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;
using testing::values;

struct QuantizedInput {
  QuantizedInput(Shape shape, std::uint64_t seed, bool is_signed, float gain)
      : leaf(random_tensor(std::move(shape), seed, DType::kF32), true) {
    for (float& v : leaf.value().span<float>()) v = gain * v + 0.3F;
    ActivationQuantizer quantizer(activations(is_signed));
    ForwardContext training{.training = true};
    x = quantizer.forward(leaf, training);
    codes = quantized(x);
  }
  Variable leaf;
  Variable x;
  std::shared_ptr<const QuantizedValue> codes;
};

TEST(ConcatCodes, EachInputFollowsTheRequantizationRule) {
  constexpr std::int64_t kInputRows = 60, kWidths[] = {5, 3};
  for (const int mix : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const QuantizedInput a({2, 5, 6, 5}, 1, (mix & 1) != 0, 1),
        b({2, 5, 6, 3}, 2, (mix & 2) != 0, 3);
    ActivationQuantizer output(activations((mix & 4) != 0));
    output.set_qparams(0, 0.0123F, (mix & 4) != 0 ? -9 : 101);
    ForwardContext evaluation;
    const Variable y = concat_codes({a.x, b.x}, output, evaluation);
    ASSERT_EQ(y.shape(), (Shape{2, 5, 6, 8}));
    const auto out = quantized(y);
    const std::vector<double> got = values(out->codes);
    const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
    y.backward(grad);
    std::int64_t first = 0, clamped = 0;
    for (const QuantizedInput* part : {&a, &b}) {
      const std::int64_t width = kWidths[part == &b];
      const std::vector<double> in = values(part->codes->codes),
                                reached = values(part->leaf.grad());
      for (std::int64_t i = 0; i < kInputRows * width; ++i) {
        const auto to = static_cast<std::size_t>(i / width * 8 + first + i % width);
        const float real =
            part->codes->host_scale() *
            static_cast<float>(in[static_cast<std::size_t>(i)] - part->codes->host_zero_point());
        const float code =
            std::nearbyint(real / out->host_scale()) + static_cast<float>(out->host_zero_point());
        const bool inside = code >= static_cast<float>(out->range.qmin) &&
                            code <= static_cast<float>(out->range.qmax);
        EXPECT_EQ(got[to], std::clamp<double>(code, out->range.qmin, out->range.qmax));
        EXPECT_EQ(reached[static_cast<std::size_t>(i)], inside ? values(grad)[to] : 0);
        clamped += !inside;
      }
      first += width;
    }
    EXPECT_GT(clamped, 0) << "the grid of the output is too wide to test the mask";
  }
}

TEST(ConcatCodes, CopiesWhereTheGridIsTheOutputs) {
  const QuantizedInput a({40, 7}, 4, false, 2);
  ActivationQuantizer output(activations(false));
  output.set_qparams(0, a.codes->host_scale(), a.codes->host_zero_point());
  ForwardContext evaluation;
  const auto out = quantized(concat_codes({a.x, a.x}, output, evaluation));
  const std::vector<double> in = values(a.codes->codes), got = values(out->codes);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], in[i / 14 * 7 + i % 7]);
}

std::shared_ptr<Module> branches(std::shared_ptr<Module> last) {
  Rng rng(1);
  Conv2dOptions options{.in_channels = 3, .out_channels = 4};
  const auto conv = [&] { return std::make_shared<Conv2d>(options, rng); };
  auto join = std::make_shared<Concat>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<Sequential>(Sequential::Children{conv(), std::make_shared<ReLU>()}),
      std::move(last)});
  options.in_channels = 7;
  return std::make_shared<Sequential>(Sequential::NamedChildren{{"join", join}, {"conv", conv()}});
}

QuantizeConfig config(Profile profile = Profile::kOrt) {
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  config.profile = profile;
  if (profile == Profile::kTensorrt) {
    config.groups[0].config.activations->scheme.symmetric = true;
    config.groups[0].config.activations->scheme.is_signed = true;
  }
  return config;
}

std::string rows_of(const Plan& plan, const std::string& module) {
  std::string text;
  for (const PlanRow& row : plan.rows) {
    if (row.module == module) text += row.tensor + ": " + row.quantized + " (" + row.note + ")\n";
  }
  return text;
}

TEST(PrepareConcat, OneQuantizerForTheJoin) {
  const PreparedModel prepared = prepare(branches(std::make_shared<Identity>()), config());
  EXPECT_EQ(rows_of(prepared.plan, "join"),
            "output: uint8 affine, per tensor (of the joined branches)\n");
  EXPECT_EQ(rows_of(prepared.plan, "conv").find("input"), std::string::npos);
  ForwardContext training{.training = true};
  const Tensor x = random_tensor({2, 4, 4, 3}, 1, DType::kF32);
  const Variable y = prepared.model->forward(Variable(x), training);
  EXPECT_TRUE(quantized(y));
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const NamedParameter& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
  }
}

TEST(PrepareConcat, AFloatBranchMakesAFloatJoinThatItsReaderQuantizes) {
  auto unknown = std::make_shared<Sequential>(
      Sequential::Children{std::make_shared<AvgPool2d>(AvgPool2dOptions{{{1, 1}, {1, 1}}, false})});
  const PreparedModel prepared = prepare(branches(std::move(unknown)), config());
  EXPECT_EQ(rows_of(prepared.plan, "join"), "output: float (a branch is in float)\n");
  EXPECT_NE(rows_of(prepared.plan, "conv").find("input: uint8 affine"), std::string::npos);
}

TEST(PrepareConcat, TensorrtJoinsFloatsAndQuantizesWhatALayerReads) {
  const PreparedModel prepared =
      prepare(branches(std::make_shared<Identity>()), config(Profile::kTensorrt));
  EXPECT_NE(rows_of(prepared.plan, "join.branch1.0")
                .find("output: float (a concat reads it (profile tensorrt))"),
            std::string::npos);
  EXPECT_EQ(rows_of(prepared.plan, "join"),
            "output: int8 symmetric, full range, per tensor (of the joined branches)\n");
}

TEST(PrepareConcat, IgnoredItStaysInFloat) {
  QuantizeConfig ignoring = config();
  ignoring.ignore = {"join"};
  const PreparedModel prepared = prepare(branches(std::make_shared<Identity>()), ignoring);
  EXPECT_NE(rows_of(prepared.plan, "join").find("float"), std::string::npos);
}

}  // namespace
}  // namespace steelyard::qat
