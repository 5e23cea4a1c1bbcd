// The interpreter against training's forward, on every tensor of small networks.
#include "steelyard/runtime/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "steelyard/export/verify.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/layers/elementwise.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::quantized_model;
using testing::w8a8;

struct InterpreterCase {
  const char* name;
  std::shared_ptr<Module> (*network)(Rng&);
  qat::QuantizeConfig config;
};

void PrintTo(const InterpreterCase& c, std::ostream* out) { *out << c.name; }

std::vector<InterpreterCase> cases() {
  return {{"every_layer", testing::every_layer, w8a8()},
          {"every_layer_w4", testing::every_layer, w8a8(4)},
          {"every_layer_w2", testing::every_layer, w8a8(2)},
          {"every_layer_signed", testing::every_layer, w8a8(8, /*symmetric=*/true)},
          {"every_layer_affine_weights", testing::every_layer, testing::affine_weights(8)},
          {"residual_affine_weights", testing::residual_net, testing::affine_weights(4)},
          {"every_layer_groups", testing::every_layer, testing::groups_of_codes(4)},
          {"residual_groups", testing::residual_net, testing::groups_of_codes(8)},
          {"residual", testing::residual_net, w8a8()},
          {"residual_w4", testing::residual_net, w8a8(4)},
          {"residual_signed", testing::residual_net, w8a8(8, /*symmetric=*/true)},
          {"means", testing::means_net, w8a8()},
          {"means_a16", testing::means_net, testing::wide_activations(16)},
          {"upsampling", testing::upsampling_net, testing::and_transposed(w8a8())},
          {"upsampling_signed", testing::upsampling_net, testing::and_transposed(w8a8(4, true))},
          {"upsampling_affine_weights", testing::upsampling_net,
           testing::and_transposed(testing::affine_weights(8))},
          {"upsampling_groups", testing::upsampling_net,
           testing::and_transposed(testing::groups_of_codes(4))},
          {"upsampling_a16", testing::upsampling_net,
           testing::and_transposed(testing::wide_activations(16))},
          {"upsampling_tensorrt", testing::upsampling_net,
           testing::and_transposed(testing::tensorrt(8))},
          {"every_layer_tensorrt", testing::every_layer, testing::tensorrt(8)},
          {"residual_tensorrt", testing::residual_net, testing::tensorrt(8)},
          {"every_layer_a16", testing::every_layer, testing::wide_activations(16)},
          {"every_layer_a16_signed", testing::every_layer, testing::wide_activations(16, true)},
          {"every_layer_mixed", testing::every_layer, testing::mixed_activations(false)},
          {"residual_a16", testing::residual_net, testing::wide_activations(16)},
          {"residual_a11", testing::residual_net, testing::wide_activations(11)},
          {"residual_mixed", testing::residual_net, testing::mixed_activations(true)},
          {"concat_a16", testing::concat_net, testing::wide_activations(16)},
          {"concat", testing::concat_net, w8a8()},
          {"concat_w4", testing::concat_net, w8a8(4)},
          {"concat_signed", testing::concat_net, w8a8(8, /*symmetric=*/true)},
          {"concat_tensorrt", testing::concat_net, testing::tensorrt(8)},
          {"residual_tensorrt_w4", testing::residual_net, testing::tensorrt(4)},
          {"fixed_point", testing::fixed_point_net, testing::tflm(8)},
          {"fixed_point_w4", testing::fixed_point_net, testing::tflm(4)},
          {"fixed_point_once", testing::fixed_point_net,
           testing::tflm(8, qat::Profile::kTflmSingleRounding)},
          {"residual_fixed_point", testing::residual_net, testing::tflm(8)},
          {"fixed_functions", testing::fixed_functions_net, testing::tflm(8)},
          {"fixed_functions_once", testing::fixed_functions_net,
           testing::tflm(8, qat::Profile::kTflmSingleRounding)},
          {"fixed_lstm", testing::fixed_lstm_net, testing::tflm(8)},
          {"fixed_lstm_w3", testing::fixed_lstm_net, testing::tflm(3)},
          {"fixed_lstm_once", testing::fixed_lstm_net,
           testing::tflm(8, qat::Profile::kTflmSingleRounding)},
          {"residual_fixed_point_once", testing::residual_net,
           testing::tflm(8, qat::Profile::kTflmSingleRounding)}};
}

Dataset dataset_of(const Tensor& inputs) {
  Tensor targets = Tensor::zeros({inputs.dim(0)}, DType::kI64);
  for (std::int64_t i = 0; i < targets.size(); ++i) targets.data<std::int64_t>()[i] = i % 5;
  return {inputs, targets, 5};
}

class Interpreting : public ::testing::TestWithParam<InterpreterCase> {};

TEST_P(Interpreting, GivesTrainingsCodesWithBothEngines) {
  Rng rng(2);
  const auto model = quantized_model(GetParam().network(rng), GetParam().config);
  const Tensor inputs = images(33, 7);
  const Graph graph = trace(*model, images(2, 8), "test").graph;
  for (const Engine engine : {Engine::kReference, Engine::kFast}) {
    const Verification result =
        verify(*model, Interpreter(graph, engine), dataset_of(inputs), 33, 8);
    EXPECT_EQ(result.first_mismatch(), nullptr) << to_string(result);
    EXPECT_EQ(result.samples, 33);
    EXPECT_EQ(result.trained_top1, result.deployed_top1);
    std::int64_t quantized = 0;
    for (const ValueComparison& value : result.values) {
      EXPECT_EQ(value.differing, 0) << value.name;
      quantized += value.quantized;
    }
    // Scaled sums of groups are floats, and what is between them and their quantizer.
    const auto& weights = GetParam().config.groups[0].config.weights->scheme;
    const bool groups = weights.granularity == kernels::Granularity::kGroup;
    if (GetParam().config.profile == qat::Profile::kOrt && !groups) {
      EXPECT_EQ(quantized + 1, std::ssize(graph.values)) << "all but the input carry codes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, Interpreting, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Interpreter, RunsWhatTheModelComputes) {
  Rng rng(2);
  const auto model = quantized_model(testing::residual_net(rng), w8a8());
  const Tensor inputs = images(5, 9);
  const Interpreter interpreter(trace(*model, inputs, "test").graph, Engine::kFast);
  ForwardContext context;
  const Tensor expected = model->forward(Variable(inputs), context).value();
  EXPECT_TRUE(testing::all_close(interpreter.run(inputs), expected, 0, 0));
}

// The first run packs the weights, for all.
TEST(Interpreter, SeveralThreadsMayRunItFirst) {
  Rng rng(2);
  const auto model = quantized_model(testing::residual_net(rng), w8a8());
  const Tensor inputs = images(5, 9);
  const Graph graph = trace(*model, inputs, "test").graph;
  const Tensor expected = Interpreter(graph).run(inputs);
  for (int turn = 0; turn < 20; ++turn) {
    const Interpreter interpreter(graph, Engine::kFast);
    std::array<Tensor, 4> outputs;
    std::vector<std::thread> threads;
    for (Tensor& output : outputs) {
      threads.emplace_back([&] { output = interpreter.run(inputs); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& output : outputs) {
      EXPECT_TRUE(testing::all_close(output, expected, 0, 0)) << turn;
    }
  }
}

TEST(Interpreter, FloatPartsAgreeUpToRounding) {
  Rng rng(2);
  qat::QuantizeConfig config = w8a8();
  config.ignore = {"fc2", "conv2"};
  const auto model = quantized_model(testing::every_layer(rng), config);
  const Tensor inputs = images(6, 9);
  const Interpreter interpreter(trace(*model, inputs, "test").graph);
  ForwardContext context;
  EXPECT_TRUE(testing::all_close(interpreter.run(inputs),
                                 model->forward(Variable(inputs), context).value(), 1e-4, 1e-4));
}

TEST(Interpreter, RefusesOtherInputs) {
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), w8a8());
  const Interpreter interpreter(trace(*model, images(1, 1), "test").graph);
  EXPECT_THROW(interpreter.run(Tensor::zeros({1, 8, 8, 3})), std::invalid_argument);
  EXPECT_THROW(interpreter.run(Tensor::zeros({1, 9, 8, 3}, DType::kF64)), std::invalid_argument);
  EXPECT_EQ(interpreter.run(Tensor::zeros({0, 9, 8, 3})).shape(), (Shape{0, 5}));
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { interpreter.run(Tensor()); }),
            "[interpreter] expected inputs, got an undefined tensor");
}

// As docs/cpp.md says; ThreadSanitizer reads it too (the preset tsan).
TEST(Interpreter, RunsANodeOfItsGraphOnItsValues) {
  Graph graph;
  graph.values = {{"x", {2}, {}}, {"y", {2}, {}}};
  graph.output = 1;
  Node flatten;
  flatten.op = Op::kFlatten;
  flatten.name = "n";
  flatten.inputs = {0};
  flatten.output = 1;
  graph.nodes = {flatten};
  const Interpreter interpreter(graph);
  const std::vector<Tensor> values{Tensor::zeros({1, 2}), Tensor()};
  const auto refusal = [&](const Node& node, const std::vector<Tensor>& of) {
    return testing::message_of<std::invalid_argument>([&] { interpreter.run_node(node, of); });
  };
  const Node& node = graph.nodes[0];
  EXPECT_EQ(interpreter.run_node(node, values).shape(), (Shape{1, 2}));
  EXPECT_EQ(refusal(node, {}), "[interpreter] expected the 2 values of the graph, got 0");
  EXPECT_EQ(refusal(node, {2, Tensor()}),
            "[graph] n (flatten): expected inputs that have a tensor, got value 0");
  const auto changed = [&](auto change) {
    Node other = node;
    change(other);
    return refusal(other, values);
  };
  EXPECT_EQ(changed([](Node& n) { n.inputs = {7}; }),
            "[graph] n (flatten): expected inputs that have a tensor, got value 7");
  EXPECT_EQ(changed([](Node& n) { n.inputs = {}; }), "[graph] n (flatten): wrong number of inputs");
  EXPECT_EQ(changed([](Node& n) { n.output = 7; }),
            "[graph] n (flatten): expected one of 2 values as output, got 7");
  EXPECT_THAT(changed([](Node& n) { n.op = static_cast<Op>(9999); }),
              ::testing::StartsWith("[graph] expected one of "));
}

TEST(Interpreter, SeveralThreadsMayRunIt) {
  Rng rng(2);
  const auto float_model = testing::every_layer(rng);
  const auto model = quantized_model(testing::every_layer(rng), w8a8());
  const Interpreter interpreter(trace(*model, images(1, 1), "test").graph, Engine::kFast);
  constexpr std::size_t kThreads = 4;
  std::vector<Tensor> integers(kThreads), floats(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const NoGradGuard no_grad;
      for (int repeat = 0; repeat < 10; ++repeat) {
        integers[i] = interpreter.run(images(3, i));
        floats[i] = (*float_model)(Variable(images(3, i)), {}).value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(testing::all_close(integers[i], interpreter.run(images(3, i)), 0, 0));
    const Tensor alone = (*float_model)(Variable(images(3, i)), {}).value();
    EXPECT_TRUE(testing::all_close(floats[i], alone, 1e-6, 1e-6));
  }
}

TEST(Interpreter, ANanAmongTheInputsIsAnError) {
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), w8a8());
  for (const Engine engine : {Engine::kReference, Engine::kFast}) {
    Interpreter interpreter(trace(*model, images(1, 1), "test").graph, engine);
    const Tensor inputs = images(2, 1);
    inputs.span<float>()[7] = std::numeric_limits<float>::infinity();
    EXPECT_NO_THROW(interpreter.run(inputs)) << "it has the largest code";
    inputs.span<float>()[8] = inputs.span<float>()[300] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { interpreter.run(inputs); }),
              "[interpreter] expected numbers, got 2 NaN among the 432 values of input");
    EXPECT_THROW(interpreter.run_raw(inputs), std::invalid_argument);
    interpreter.set_fault_errors(false);
    EXPECT_NO_THROW(interpreter.run(inputs));
  }
}

// The logarithm stays in float, and of a negative number it is a NaN.
TEST(Interpreter, ANanThatBecomesACodeNamesItsValue) {
  Rng rng(2);
  const auto net = sequential(
      {{"log", make_module<Elementwise>(kernels::UnaryFunction::kLog)}, {"fc", linear(4, 3, rng)}});
  const auto model = qat::prepare(net, qat::w8a8({"Linear"})).model;
  const Tensor inputs = Tensor::from<float>({1, 2, 3, 4}, {1, 4});
  model(Variable(inputs), {.training = true});
  const Interpreter interpreter(trace(*model, inputs, "test").graph);
  EXPECT_NO_THROW(interpreter.run(inputs));
  inputs.span<float>()[1] = -2;
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { interpreter.run(inputs); }),
            "[interpreter] expected numbers, got 1 NaN among the 4 values of log");
  EXPECT_EQ(testing::message_of<TrainingDiverged>([&] { model(Variable(inputs), {}); }),
            "evaluation: 1 non-finite values reached the quantizer fc.input_quantizer")
      << "as the model that it was traced from";
  EXPECT_TRUE(std::isnan(interpreter.run_all(inputs)[1].span<float>()[1])) << "shows every value";
}

}  // namespace
}  // namespace steelyard::deploy
