// What other quantization-aware training gets wrong in deployment, each as a test: a simulation
// that differs from the integers, ranges that move behind the user's back, sums whose operands lose
// their scales.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/export/graph_text.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/quantized_value.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::quantized_model;
using testing::w8a8;

// Deployed biases are int32 multiples of s_x * s_w. With few bits that step is coarse, and a float
// bias in the simulation would give other codes.
TEST(KnownPains, TrainingSimulatesTheIntegerBias) {
  Rng rng(1);
  qat::QuantizeConfig config;
  config.groups.push_back({{"Linear"}, qat::default_w8a8()});
  config.groups[0].config.weights->scheme.bits = 2;
  config.groups[0].config.activations->scheme.bits = 4;
  auto linear = std::make_shared<Linear>(LinearOptions{6, 8}, rng);
  const auto prepared = qat::prepare(linear, config);
  ForwardContext training{.training = true, .rng = &rng};
  const Tensor inputs = testing::random_tensor({200, 6}, 3, DType::kF32);
  prepared.model->forward(Variable(inputs), training);

  const Trace traced = trace(*prepared.model, inputs, "net");
  const Node& node = traced.graph.nodes.at(1);
  const Quantization& x = *traced.graph.values[node.inputs[0]].quantization;
  const Quantization& y = *traced.graph.values[node.output].quantization;
  const auto codes = qat::quantized(traced.values[node.inputs[0]]);
  const auto outputs = qat::quantized(traced.values[node.output]);
  const float* bias = prepared.model->named_parameters().at(1).variable.value().data<float>();
  std::int64_t with_integer_bias = 0;
  std::int64_t with_float_bias = 0;
  for (std::int64_t i = 0; i < outputs->codes.size(); ++i) {
    const std::int64_t row = i / 8;
    const std::int64_t o = i % 8;
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < 6; ++k) {
      sum += (codes->codes.data<std::uint8_t>()[row * 6 + k] - x.zero_point) *
             node.weights->weight.data<std::int8_t>()[o * 6 + k];
    }
    const double scale =
        static_cast<double>(x.scale * node.weights->scales[static_cast<std::size_t>(o)]);
    const auto code = [&](double real) {
      const double unclamped = std::nearbyint(real / y.scale) + y.zero_point;
      return static_cast<int>(std::clamp<double>(unclamped, y.range.qmin, y.range.qmax));
    };
    const int got = outputs->codes.data<std::uint8_t>()[i];
    const std::int64_t bias_code = node.weights->bias.data<std::int32_t>()[o];
    with_integer_bias += got != code(static_cast<double>(sum + bias_code) * scale);
    with_float_bias += got != code(static_cast<double>(sum) * scale + bias[o]);
  }
  EXPECT_EQ(with_integer_bias, 0);
  EXPECT_GT(with_float_bias, 20) << "the data must tell the two apart";
}

// A sum of operands whose scales differ a hundredfold: each keeps its own, and the sum is as near
// to the sum of the operands' values as its own step allows.
TEST(KnownPains, ResidualOperandsKeepTheirScales) {
  Rng rng(3);
  const auto model = quantized_model(testing::residual_net(rng), w8a8());
  // Ranges of the main branch's last convolution and of the shortcut, a hundred times apart.
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(*model)) {
    if (entry.name == "block1.conv2.output_quantizer") entry.quantizer->set_qparams(0, 0.05F, 128);
    if (entry.name == "block1.output_quantizer") entry.quantizer->set_qparams(0, 0.05F, 0);
    if (entry.name == "conv1.output_quantizer") entry.quantizer->set_qparams(0, 0.0005F, 0);
  }
  const Trace traced = trace(*model, images(4, 9), "net");
  const Graph& graph = traced.graph;
  const Node& sum = graph.nodes.at(4);
  ASSERT_EQ(sum.op, Op::kAdd);
  const Tensor& a = traced.values[sum.inputs[0]].value();
  const Tensor& b = traced.values[sum.inputs[1]].value();
  const Tensor& y = traced.values[sum.output].value();
  const Quantization& q = *graph.values[sum.output].quantization;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double real = std::max(0.0, static_cast<double>(a.data<float>()[i]) + b.data<float>()[i]);
    const double largest = static_cast<double>(q.scale) * (q.range.qmax - q.zero_point);
    EXPECT_NEAR(y.data<float>()[i], std::min(real, largest), 0.5001 * q.scale);
  }
}

// One quantizer per tensor: the convolution and the shortcut that read a block's input read the
// same codes, and pooling and flattening share their input's parameters.
TEST(KnownPains, ReadersOfATensorShareItsQuantizer) {
  Rng rng(3);
  const auto residual = quantized_model(testing::residual_net(rng), w8a8());
  const Graph graph = trace(*residual, images(1, 9), "net").graph;
  EXPECT_EQ(graph.nodes[2].name, "block1.conv1");
  EXPECT_EQ(graph.nodes[2].inputs[0], graph.nodes[4].inputs[1]);

  const auto plain = quantized_model(testing::every_layer(rng), w8a8());
  const Trace traced = trace(*plain, images(1, 9), "net");
  for (const Node& node : traced.graph.nodes) {
    if (node.op != Op::kMaxPool2d && node.op != Op::kFlatten && node.op != Op::kRelu) continue;
    EXPECT_EQ(traced.graph.values[node.inputs[0]].quantization,
              traced.graph.values[node.output].quantization)
        << node.name;
  }
}

// Evaluating, tracing and exporting observe nothing: ranges are those of training, however often
// and on whatever data the model runs afterwards.
TEST(KnownPains, EvaluationNeverMovesARange) {
  Rng rng(3);
  const auto model = quantized_model(testing::residual_net(rng), w8a8());
  const std::string before = to_string(trace(*model, images(1, 9), "net").graph);
  ForwardContext evaluation;
  Tensor large = images(4, 10);
  for (float& value : large.span<float>()) value *= 1000;
  for (int i = 0; i < 3; ++i) model->forward(Variable(large), evaluation);
  EXPECT_EQ(to_string(trace(*model, images(1, 9), "net").graph), before);
}

}  // namespace
}  // namespace steelyard::deploy
