// Tracing: names, user-defined modules, and what is refused.
#include "steelyard/export/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/export/graph_text.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::w8a8;

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

TEST(Trace, NamesNodesAfterTheirModules) {
  Rng rng(1);
  const auto model = quantized_model(testing::residual_net(rng), w8a8());
  const Graph graph = trace(*model, images(2, 1), "net").graph;
  EXPECT_EQ(names_of(graph),
            (std::vector<std::string>{"input_quantizer", "conv1", "block1.conv1", "block1.conv2",
                                      "block1", "block2.conv1", "block2.conv2",
                                      "block2.downsample.0", "block2", "pool", "fc"}));
  EXPECT_EQ(graph.nodes[4].inputs.size(), 2U);
  EXPECT_EQ(graph.values[graph.nodes[4].inputs[1]].name, "conv1") << "the shortcut";
  EXPECT_EQ(graph.values[graph.output].name, "fc");
  EXPECT_NE(to_string(graph).find("block2.downsample.0"), std::string::npos);
}

// Profile tensorrt: what weighted layers read carries codes, what they write into a sum or out of
// the model does not; the sum's shortcut does.
TEST(Trace, PlacesQuantizersAsTensorrtExecutesThem) {
  Rng rng(1);
  const auto model = quantized_model(testing::residual_net(rng), testing::tensorrt(8));
  const Graph graph = trace(*model, images(2, 1), "net").graph;
  std::vector<std::string> floats;
  for (const Value& value : graph.values) {
    if (!value.quantization) {
      floats.push_back(value.name);
    } else {
      EXPECT_EQ(value.quantization->zero_point, 0) << value.name;
    }
  }
  EXPECT_EQ(floats, (std::vector<std::string>{"input", "block1.conv2", "block1", "block1#2",
                                              "block2.conv2", "block2", "block2#2", "fc"}));
}

// Between product and quantizer: two numbers for each channel.
TEST(Trace, KeepsABatchNormThatStaysInFloat) {
  Rng rng(1);
  qat::QuantizeConfig config = w8a8();
  config.bn_fold = qat::BatchNormFold::kNone;
  const auto model = quantized_model(testing::residual_net(rng), config);
  const Trace traced = trace(*model, images(2, 1), "net");
  const Node& norm = traced.graph.nodes[2];
  EXPECT_EQ(norm.op, Op::kScaleShift);
  EXPECT_EQ(norm.constants.size(), 2U);
  EXPECT_TRUE(testing::all_close(Interpreter(traced.graph).run(images(2, 1)),
                                 traced.values[traced.graph.output].value(), 0, 1e-5));
}

// Weights of codes in a float product stay codes.
TEST(Trace, KeepsABatchNormBehindWeightsOfCodes) {
  Rng rng(1);
  qat::QuantizeConfig config = w8a8();
  config.bn_fold = qat::BatchNormFold::kNone;
  config.groups[0].config.activations.reset();
  const auto model = quantized_model(testing::residual_net(rng), config);
  const Trace traced = trace(*model, images(2, 1), "net");
  EXPECT_TRUE(traced.graph.nodes[0].weights->has_codes());
  EXPECT_EQ(traced.graph.nodes[1].op, Op::kScaleShift);
  EXPECT_TRUE(testing::all_close(Interpreter(traced.graph).run(images(2, 1)),
                                 traced.values[traced.graph.output].value(), 1e-5, 1e-5));
}

TEST(Trace, TensorrtNeedsSymmetricActivations) {
  Rng rng(1);
  qat::QuantizeConfig config = w8a8();
  config.profile = qat::Profile::kTensorrt;
  EXPECT_THROW(qat::prepare(testing::residual_net(rng), config), std::invalid_argument);
}

// A user's container: two branches of one input, summed by the engine's own operation.
class TwoBranches : public Module {
 public:
  explicit TwoBranches(Rng& rng)
      : left_(register_child("left", testing::conv(3, 4, 3, 1, rng))),
        right_(register_child("right", testing::conv(3, 4, 1, 1, rng))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable left = left_(x, context);
    const Variable right = right_(x, context);
    return relu(add(left, right));
  }
  std::string type_name() const override { return "TwoBranches"; }

 private:
  Slot& left_;
  Slot& right_;
};

TEST(Trace, ReadsUserDefinedModules) {
  Rng rng(1);
  qat::QuantizeConfig config = w8a8();
  config.groups[0].targets = {"Conv2d"};
  const auto model = quantized_model(std::make_shared<TwoBranches>(rng), config);
  const Graph graph = trace(*model, images(2, 1), "net").graph;
  EXPECT_EQ(names_of(graph),
            (std::vector<std::string>{"left.input_quantizer", "left", "right.input_quantizer",
                                      "right", "add", "relu"}));
  EXPECT_FALSE(graph.values[graph.output].quantization);
}

TEST(Trace, CountsRepeatedCalls) {
  Rng rng(1);
  auto shared = std::make_shared<MaxPool2d>(Pool2dGeometry{{2, 2}, {1, 1}, {0, 0}});
  const auto model = std::make_shared<Sequential>(Sequential::NamedChildren{{"a", shared}});
  const auto twice = std::make_shared<Sequential>(Sequential::NamedChildren{{"m", model}});
  const Trace once = trace(*twice, images(1, 1), "net");
  EXPECT_EQ(names_of(once.graph), (std::vector<std::string>{"m.a"}));
}

// What `ignore` leaves in float can be deployed too.
TEST(Trace, FoldsTheNormOfAFloatLayer) {
  Rng rng(1);
  Sequential net({{"conv", testing::conv(3, 4, 3, 1, rng)}, {"bn", testing::norm(4, 1)}});
  const Graph graph = trace(net, images(1, 1), "net").graph;
  EXPECT_EQ(names_of(graph), (std::vector<std::string>{"conv"}));
  ForwardContext context;
  const Tensor inputs = images(3, 2);
  EXPECT_TRUE(testing::all_close(Interpreter(graph).run(inputs),
                                 net.forward(Variable(inputs), context).value(), 1e-5, 1e-5));
}

// A branch that reads the layer's output before its norm keeps both apart.
TEST(Trace, KeepsANormWhoseLayerOthersReadToo) {
  Rng rng(1);
  ::steelyard::Graph net(
      {{"conv", testing::conv(3, 4, 3, 1, rng)},
       {"bn", testing::norm(4, 1)},
       {"relu", std::make_shared<ReLU>(), {"conv"}},
       {"sum", std::make_shared<PairArithmetic>(Arithmetic::kAdd), {"bn", "relu"}}});
  const Graph graph = trace(net, images(1, 1), "net").graph;
  EXPECT_EQ(graph.nodes.size(), 4U);
  ForwardContext context;
  const Tensor inputs = images(3, 2);
  EXPECT_TRUE(testing::all_close(Interpreter(graph).run(inputs),
                                 net.forward(Variable(inputs), context).value(), 1e-5, 1e-5));
}

// A product with a mask that no operation records.
class Masked : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    const Tensor mask = x.value().clone();
    for (float& value : mask.span<float>()) value = value > 0.5F ? 1 : 0;
    return multiply(x, Variable(mask));
  }
  std::string type_name() const override { return "Masked"; }
};

// A layer whose weights are its input's values.
class MultipliesItself : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    return linear(x, Variable(x.value().clone()), {});
  }
  std::string type_name() const override { return "MultipliesItself"; }
};

class AppliesReluToSome : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    const Variable y = multiply(x, x);
    return x.value().span<float>()[0] > 0.5F ? relu(y) : y;
  }
  std::string type_name() const override { return "AppliesReluToSome"; }
};

TEST(Trace, RefusesValuesThatAreComputedBesideTheTape) {
  const auto refusal = [](Module&& module) {
    const Tensor inputs = Tensor::zeros({1, 4});
    const Graph graph = trace(module, inputs, "net").graph;
    return message_of<InputError>([&] { require_constants(graph, module, inputs); });
  };
  EXPECT_EQ(refusal(Masked()),
            "export: mul: the operation mul reads a value that is computed from the samples "
            "without being recorded, which has no deployed form");
  EXPECT_EQ(refusal(MultipliesItself()),
            "export: linear: the operation linear reads a value that is computed from the samples "
            "without being recorded, which has no deployed form");
  EXPECT_EQ(refusal(AppliesReluToSome()),
            "export: the number of the model's operations depends on the sample (1 for one, 2 for "
            "another), which has no deployed form");
}

// A sum of its input and a parameter, or a product whose weight is computed from the input.
class Captures : public Module {
 public:
  explicit Captures(bool sum) : sum_(sum), own_(Tensor::zeros({3, 4}), true) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    return sum_ ? add(x, own_) : linear(own_, x, Variable());
  }
  std::string type_name() const override { return "Captures"; }

 private:
  bool sum_;
  Variable own_;
};

TEST(Trace, RefusesConstantsOfTheBatchAndComputedWeights) {
  Captures sum(true);
  EXPECT_EQ(message_of<InputError>([&] {
              trace(sum, Tensor::zeros({3, 4}), "net");
            }),
            "export: [graph] add (add): a constant differs from sample to sample");
  Captures product(false);
  EXPECT_EQ(message_of<InputError>([&] {
              trace(product, Tensor::zeros({3, 4}), "net");
            }),
            "export: the model: the operation linear with computed weights has no deployed form");
}

// Their codes are 0 and saturated: nothing behind the trace could see them.
TEST(Trace, RefusesParametersThatAreNotFinite) {
  for (const char* name : {"weight", "bias"}) {
    Rng rng(1);
    const auto model = quantized_model(testing::every_layer(rng), w8a8());
    for (NamedParameter& parameter : model->named_parameters()) {
      if (parameter.name != std::string("conv2.") + name) continue;
      parameter.variable.value().data<float>()[1] = parameter.name.ends_with("t") ? NAN : INFINITY;
    }
    EXPECT_EQ(message_of<InputError>([&] { trace(*model, images(1, 1), "net"); }),
              "export: conv2: the operation quantized_conv2d has a weight or bias that is not "
              "finite");
  }
}

// Training cuts such a bias and stops (qat/model/schedule.h): an export must not take what was cut.
TEST(Trace, RefusesABiasThatInt32CannotHold) {
  Rng rng(1);
  const auto linear = std::make_shared<Linear>(LinearOptions{60000, 1}, rng);
  for (float& w : linear->weight().value().span<float>()) w = 1;
  linear->bias().value().fill(10000);
  qat::QuantizeConfig config;
  config.groups.push_back({{"Linear"}, qat::default_w8a8()});
  const auto model =
      qat::prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
          .model;
  ForwardContext training{.training = true};
  const Tensor x = Tensor::full({1, 60000}, 1.0);
  model->forward(Variable(x), training);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { trace(*model, x, "net"); }),
            "export: fc: the bias 10000 of channel 0 and its products can overflow int32");
}

class Choice : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override { return where(x > 0, x, 2 * x); }
  std::string type_name() const override { return "Choice"; }
};

TEST(Trace, RefusesWhatHasNoDeployedForm) {
  Sequential choice({{"choice", std::make_shared<Choice>()}});
  EXPECT_EQ(message_of<InputError>([&] { trace(choice, images(1, 1), "net"); }),
            "export: choice: the operation where has no deployed form");
  AvgPool2d uneven({{{2, 2}, {2, 2}, {1, 1}}, /*count_include_pad=*/false});
  EXPECT_THROW(trace(uneven, images(1, 1), "net"), InputError);
}

}  // namespace
}  // namespace steelyard::deploy
