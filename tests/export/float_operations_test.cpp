// Operations that stay in float, or only move codes: traced, computed again by plain loops, written
// to a file and read again.
#include <gtest/gtest.h>

#include <functional>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"
#include "tests/export/float_nets.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::w8a8;

struct Network {
  std::string name;
  std::shared_ptr<Module> (*make)(Rng&);
  std::vector<std::string> targets = {};  // that are quantized

  std::shared_ptr<Module> model() const {
    Rng rng(3);
    if (targets.empty()) return make(rng);
    qat::QuantizeConfig config = w8a8();
    config.groups[0].targets = targets;
    return quantized_model(make(rng), config);
  }
};

class FloatOperations : public ::testing::TestWithParam<Network> {};

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a.data<float>()[i]} - double{b.data<float>()[i]}));
  }
  return largest;
}

TEST_P(FloatOperations, GiveWhatTheModelGives) {
  const auto model = GetParam().model();
  const Tensor x = images(3, 4);
  const Trace traced = trace(*model, x, "net");
  for (const Engine engine : {Engine::kReference, Engine::kFast}) {
    const std::vector<Tensor> values = Interpreter(traced.graph, engine).run_all(x);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (traced.graph.values[i].quantization) continue;  // verify() compares codes
      EXPECT_LT(largest_difference(values[i], traced.values[i].value()),
                GetParam().targets.empty() ? 1e-5 : 0.1)
          << traced.graph.values[i].name;
    }
  }
}

TEST_P(FloatOperations, ComeBackFromAFile) {
  const auto model = GetParam().model();
  const Graph graph = trace(*model, images(2, 4), "net").graph;
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  save_graph(path, graph);
  const Graph again = load_graph(path);
  EXPECT_EQ(to_string(again), to_string(graph));
  EXPECT_TRUE(holds_graph(path, again));
  // A reader that does not know an operation must not take the file for its own.
  const int version = std::stoi(load_checkpoint(path).metadata.at("graph_version"));
  for (const Node& node : graph.nodes) EXPECT_GE(version, op_info(node.op).graph_version.number);
  const Tensor x = images(2, 5);
  EXPECT_EQ(largest_difference(Interpreter(again).run(x), Interpreter(graph).run(x)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, FloatOperations,
    ::testing::Values(
        Network{"Images", testing::image_operations}, Network{"Attention", testing::attention},
        Network{"SeveralInputs", testing::several_inputs},
        Network{"SeveralOutputs", testing::several_outputs},
        Network{"QuantizedSeveralOutputs", testing::several_outputs, {"Conv2d", "Linear"}},
        Network{"Gated", testing::gated}, Network{"QuantizedGated", testing::gated, {"Linear"}},
        Network{"PaddedPools", testing::padded_pools}, Network{"Recurrent", testing::recurrent},
        Network{"QuantizedRecurrent", testing::recurrent, {"Linear"}},
        Network{"QuantizedImages", testing::image_operations, {"Conv2d"}},
        Network{"QuantizedAttention", testing::attention, {"Conv2d", "Linear"}}),
    [](const auto& test) { return test.param.name; });

// Calls f on its input.
class Calls : public Module {
 public:
  explicit Calls(std::function<Variable(const Variable&)> f) : f_(std::move(f)) {}
  Variable forward(const Variable& x, ForwardContext&) override { return f_(x); }
  std::string type_name() const override { return "Calls"; }

 private:
  std::function<Variable(const Variable&)> f_;
};

// A deployed model takes any number of samples.
TEST(Trace, RefusesWhatChangesTheBatch) {
  struct Case {
    std::string operation;
    std::function<Variable(const Variable&)> f;
  };
  const std::vector<Case> cases{{"reshape",
                                 [](const Variable& x) {
                                   return reshape(x, {4, 9, 4, 3});
                                 }},
                                {"permute",
                                 [](const Variable& x) {
                                   return permute(x, {1, 0, 2, 3});
                                 }},
                                {"slice",
                                 [](const Variable& x) {
                                   return slice(x, {{1, 1, 1}, {0, 9, 1}, {0, 8, 1}, {0, 3, 1}});
                                 }},
                                {"pad",
                                 [](const Variable& x) {
                                   return pad(x, {1, 0, 0, 0}, {0, 0, 0, 0});
                                 }},
                                {"sum",
                                 [](const Variable& x) {
                                   return sum(x, {0, 1}, ReducedAxes::kKeep);
                                 }},
                                {"amax",
                                 [](const Variable& x) {
                                   return amax(x, {0, 1}, ReducedAxes::kKeep);
                                 }},
                                {"expand",
                                 [](const Variable& x) {
                                   return expand(x, {5, 2, 9, 8, 3});
                                 }},
                                {"concat", [](const Variable& x) {
                                   return concat({x, x}, 0);
                                 }}};
  for (const Case& one : cases) {
    Calls model(one.f);
    const std::string said = message_of<InputError>([&] { trace(model, images(2, 1), "net"); });
    EXPECT_TRUE(said.starts_with("export: the model: the operation " + one.operation)) << said;
    EXPECT_TRUE(said.ends_with("the batch has no deployed form")) << said;
  }
}

// A node of the image network, damaged.
struct Damage {
  Op op;
  void (*damage)(Node&);
  std::string said;
};

TEST(Validate, NamesOperationsOfFloatsThatDoNotFit) {
  const std::vector<Damage> damages{
      {Op::kPad, [](Node& n) { n.as<Border>().before[1] = 99; }, "its border does not fit"},
      {Op::kPad, [](Node& n) { n.as<Border>().before.pop_back(); }, "expected a border of"},
      {Op::kSlice, [](Node& n) { n.as<Positions>().first[0] = 99; }, "takes positions outside of"},
      {Op::kSlice, [](Node& n) { n.as<Positions>().steps[0] = INT64_MAX; },
       "takes positions outside of"},
      {Op::kSlice, [](Node& n) { n.as<Positions>().steps.clear(); },
       "expected positions in each dimension"},
      {Op::kClamp, [](Node& n) { n.as<Bounds>().lo = 7; }, "expected bounds in order"},
      {Op::kLeakyRelu, [](Node& n) { n.as<NegativeSlope>().slope = NAN; },
       "expected a finite slope"},
      {Op::kResize,
       [](Node& n) {
         n.as<Repeats>().repeats = {1, 1};
       },
       "wrong number of weights"},
      {Op::kResize, [](Node& n) { n.constants.clear(); }, "expected weights [outputs, inputs]"},
      {Op::kConvTranspose2d,
       [](Node& n) {
         n.as<ConvTranspose2dGeometry>().conv.stride = {0, 1};
       },
       "expected stride"},
      {Op::kConvTranspose2d, [](Node& n) { n.as<ConvTranspose2dGeometry>().conv.groups = 3; },
       "its weight does not fit"},
      {Op::kConvTranspose2d, [](Node& n) { n.weights.reset(); }, "weights belong to"},
      {Op::kScaleShift, [](Node& n) { n.constants[1].value = Tensor::zeros({3}); },
       "expected two constants of 4 numbers"},
      {Op::kMul, [](Node& n) { n.constants[0].value = Tensor::zeros({3}); }, "do not broadcast"},
      {Op::kMul,
       [](Node& n) {
         n.constants[0].value = Tensor::zeros({2, 9, 8, 4});
       },
       "a constant differs from sample to sample"},
      {Op::kMul, [](Node& n) { n.constants[0].place = 7; }, "its constants are f32 operands"},
      {Op::kMul, [](Node& n) { n.constants[0].value = Tensor::zeros({4}, DType::kF64); },
       "its constants are f32 operands"},
      {Op::kConcat, [](Node& n) { n.as<JoinedAxis>().axis = 5; },
       "its dimension is not one of its inputs'"},
      {Op::kReshape, [](Node& n) { n.as<NewShape>().shape[0] = 99; }, "cannot give"},
      {Op::kPermute, [](Node& n) { n.as<AxisOrder>().order[0] = n.as<AxisOrder>().order[1]; },
       "expected a permutation"},
      {Op::kSum,
       [](Node& n) {
         n.as<ReducedDims>().dims = {1, 0};
       },
       "expected dimensions of its input, in order"},
      {Op::kReduceMax,
       [](Node& n) {
         n.as<ReducedDims>().dims = {1, 0};
       },
       "expected dimensions of its input, in order"},
      {Op::kExpand, [](Node& n) { n.as<NewShape>().shape[0] = 99; }, "cannot repeat"},
      {Op::kExpand, [](Node& n) { n.as<NewShape>().shape.pop_back(); }, "cannot repeat"},
      {Op::kPow, [](Node& n) { n.as<Exponent>().exponent = INFINITY; }, "expected a finite number"},
      {Op::kMaximum, [](Node& n) { n.constants[0].value = Tensor::zeros({7}); },
       "do not broadcast"},
      {Op::kEmbedding, [](Node& n) { n.constants[0].value = Tensor::zeros({7}); },
       "expected numbers of rows and a constant table"},
      {Op::kLstm,
       [](Node& n) {
         n.constants[1].value = Tensor::zeros({20, 4});
       },
       "expected constant recurrent weights [4 H, H]"},
      {Op::kLstm,
       [](Node& n) {
         n.constants[0].value = Tensor::zeros({20, 7});
       },
       "expected a constant [20, 6] as operand 1"},
      {Op::kGru,
       [](Node& n) {
         n.constants[1].value = Tensor::zeros({18, 4});
       },
       "expected constant recurrent weights [3 H, H]"},
      {Op::kGru, [](Node& n) { n.constants[3].value = Tensor::zeros({7}); },
       "expected a constant [6] as operand 4"},
      {Op::kInputPart, [](Node& n) { n.as<PartOfInput>().first[0] = 190; },
       "takes values outside of its input's 216"},
      {Op::kInputPart, [](Node& n) { n.as<PartOfInput>().shape = {217}; },
       "takes values outside of its input's 216"},
      {Op::kOutputParts, [](Node& n) { n.inputs.pop_back(); }, "expected the output [869]"},
      {Op::kMatmul, [](Node& n) { n.inputs[1] = n.inputs[0]; }, "do not fit"},
      {Op::kLayerNorm, [](Node& n) { n.as<NormEpsilon>().eps = -1; },
       "expected an eps of at least 0"}};
  Rng rng(3);
  const auto image_model = testing::image_operations(rng), attention = testing::attention(rng),
             inputs = testing::several_inputs(rng), outputs = testing::several_outputs(rng),
             recurrent = testing::recurrent(rng), gated = testing::gated(rng);
  const Graph graphs[] = {
      trace(*image_model, images(1, 1), "net").graph, trace(*attention, images(1, 1), "net").graph,
      trace(*inputs, images(1, 1), "net").graph,      trace(*outputs, images(1, 1), "net").graph,
      trace(*recurrent, images(1, 1), "net").graph,   trace(*gated, images(1, 1), "net").graph};
  for (const Damage& damage : damages) {
    bool found = false;
    for (Graph graph : graphs) {
      for (Node& node : graph.nodes) {
        if (node.op != damage.op || found) continue;
        found = true;
        damage.damage(node);
        const std::string said = message_of<std::invalid_argument>([&] { validate(graph); });
        EXPECT_NE(said.find(damage.said), std::string::npos) << op_name(damage.op) << ": " << said;
      }
    }
    EXPECT_TRUE(found) << op_name(damage.op);
  }
}

}  // namespace
}  // namespace steelyard::deploy
