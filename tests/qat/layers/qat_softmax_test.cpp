// Softmax on codes: ONNX Runtime's rule, its error, gradients, and where prepare() puts it.
#include "steelyard/qat/layers/qat_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;
using testing::values;

QuantizeConfig config(bool is_signed, bool symmetric) {
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  config.groups[0].config.activations->scheme.is_signed = is_signed;
  config.groups[0].config.activations->scheme.symmetric = symmetric;
  return config;
}

PreparedModel model(const QuantizeConfig& config) {
  Rng rng(1);
  return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                     {"fc", std::make_shared<Linear>(LinearOptions{6, 10}, rng)},
                     {"shares", std::make_shared<Softmax>()}}),
                 config);
}

TEST(SoftmaxCodes, FollowTheIntegerRuleAndStayNearTheFloatOne) {
  for (const int mix : {0, 1, 2}) {
    const PreparedModel prepared = model(config(mix > 0, mix == 2));
    Variable x(random_tensor({40, 6}, 2, DType::kF32), true);
    for (float& v : x.value().span<float>()) v *= 9;
    ForwardContext training{.training = true};
    const Variable y = prepared.model->forward(x, training);
    const auto out = quantized(y);
    ASSERT_TRUE(out);
    EXPECT_EQ(out->host_scale(), mix == 2 ? 0x1p-7F : 0x1p-8F);
    EXPECT_EQ(out->host_zero_point(), mix == 1 ? -128 : 0);
    Sequential& chain = dynamic_cast<Sequential&>(*prepared.model->children()[0]->module());
    ForwardContext evaluation;
    const Variable logits =
        chain.slot("fc")((*prepared.model->children()[1])(x, evaluation), evaluation);
    const auto in = quantized(logits);
    const std::vector<double> q = values(in->codes), got = values(out->codes);
    const std::vector<double> shares = values(softmax(Variable(logits.value())).value());
    const double steps = mix == 2 ? 128 : 256;
    for (std::size_t row = 0; row < 40; ++row) {
      const auto first = q.begin() + static_cast<std::ptrdiff_t>(row * 10);
      const double largest = *std::max_element(first, first + 10);
      std::uint64_t table[10], sum = 0;
      for (std::size_t c = 0; c < 10; ++c) {
        const double e = std::exp((q[row * 10 + c] - largest) * double{in->host_scale()});
        sum += table[c] = static_cast<std::uint64_t>(std::rint(8388607.0 * e));
      }
      for (std::size_t c = 0; c < 10; ++c) {
        const auto share =
            static_cast<double>((table[c] * static_cast<std::uint64_t>(steps) + sum / 2) / sum);
        const double code = std::min<double>(share + out->host_zero_point(), out->range.qmax);
        EXPECT_EQ(got[row * 10 + c], code);
        EXPECT_NEAR(code - out->host_zero_point(), shares[row * 10 + c] * steps, 1.01);
      }
    }
    y.backward(random_tensor(y.shape(), 3, DType::kF32));
    for (const NamedParameter& p : prepared.model->named_parameters()) {
      EXPECT_TRUE(p.variable.grad().defined()) << p.name;
    }
  }
}

TEST(SoftmaxCodes, TheGradientIsThatOfTheSharesGiven) {
  ActivationQuantizer input(*default_w8a8().activations);
  QuantizerConfig shares = *default_w8a8().activations;
  softmax_form().output(shares);
  ActivationQuantizer output(shares);
  ForwardContext training{.training = true};
  const Variable leaf(random_tensor({5, 7}, 1, DType::kF32), true);
  const Variable y = softmax_codes(input.forward(leaf, training), output, training);
  const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
  y.backward(grad);
  const auto p = values(y.value()), g = values(grad), got = values(leaf.grad());
  for (std::size_t row = 0; row < 5; ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < 7; ++c) sum += p[row * 7 + c] * g[row * 7 + c];
    for (std::size_t c = 0; c < 7; ++c) {
      EXPECT_NEAR(got[row * 7 + c], p[row * 7 + c] * (g[row * 7 + c] - sum), 1e-6);
    }
  }
}

TEST(PrepareSoftmax, ThePlanSaysWhatItsGridIsAndWhereItStaysInFloat) {
  const auto row_of = [](const PreparedModel& prepared) {
    const PlanRow& row = prepared.plan.rows.back();
    return row.module + ": " + row.quantized + ", " + row.observer + ", " + row.note;
  };
  EXPECT_EQ(row_of(model(config(false, false))),
            "shares: uint8 affine, per tensor, fixed, probabilities");
  QuantizeConfig narrow = config(false, false);
  narrow.groups[0].config.activations->scheme.bits = 4;
  EXPECT_EQ(row_of(model(narrow)), "shares: float, -, its quantized form has codes of 8 bits");
}

}  // namespace
}  // namespace steelyard::qat
