// prepare() on graphs of modules, and with rows of one's own in the table of quantized forms.
#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::message_of;
using testing::random_tensor;
using testing::values;

std::shared_ptr<Conv2d> conv(std::int64_t in, std::int64_t out, Rng& rng) {
  return std::make_shared<Conv2d>(Conv2dOptions{.in_channels = in,
                                                .out_channels = out,
                                                .kernel_size = {3, 3},
                                                .stride = {1, 1},
                                                .padding = {1, 1}},
                                  rng);
}

std::shared_ptr<BatchNorm2d> plain_norm(std::int64_t channels) {
  return std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels});
}

QuantizeConfig graph_config(std::vector<std::string> targets, Profile profile = Profile::kOrt) {
  QuantizeConfig config;
  config.groups.push_back({std::move(targets), default_w8a8()});
  config.profile = profile;
  if (profile == Profile::kTensorrt) {
    config.groups[0].config.activations->scheme.symmetric = true;
    config.groups[0].config.activations->scheme.is_signed = true;
  }
  return config;
}

std::string note_of(const Plan& plan, const std::string& module, const std::string& tensor) {
  for (const PlanRow& row : plan.rows) {
    if (row.module == module && row.tensor == tensor) return row.quantized + ": " + row.note;
  }
  return "no row";
}

// A residual block as the container has it, and as a graph of named nodes.
std::shared_ptr<Module> block_of_containers() {
  Rng rng(1);
  auto main =
      std::make_shared<Sequential>(Sequential::NamedChildren{{"conv1", conv(3, 3, rng)},
                                                             {"bn1", plain_norm(3)},
                                                             {"relu1", std::make_shared<ReLU>()},
                                                             {"conv2", conv(3, 3, rng)},
                                                             {"bn2", plain_norm(3)}});
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"block", std::make_shared<Residual>(main, nullptr, std::make_shared<ReLU>())},
      {"pool", std::make_shared<GlobalAvgPool>()}});
}

std::shared_ptr<Module> block_as_graph() {
  Rng rng(1);
  return std::make_shared<Graph>(
      std::vector<Graph::NamedNode>{{"conv1", conv(3, 3, rng)},
                                    {"bn1", plain_norm(3)},
                                    {"relu1", std::make_shared<ReLU>()},
                                    {"conv2", conv(3, 3, rng)},
                                    {"bn2", plain_norm(3)},
                                    {"sum", std::make_shared<Add>(), {"bn2", "input"}},
                                    {"relu", std::make_shared<ReLU>()},
                                    {"pool", std::make_shared<GlobalAvgPool>()}});
}

TEST(PrepareGraph, AResidualBlockAndItsGraphAreOneThing) {
  for (const Profile profile : {Profile::kOrt, Profile::kTensorrt}) {
    const PreparedModel nested = prepare(block_of_containers(), graph_config({"Conv2d"}, profile));
    const PreparedModel flat = prepare(block_as_graph(), graph_config({"Conv2d"}, profile));
    ASSERT_EQ(nested.plan.rows.size(), flat.plan.rows.size());
    for (std::size_t i = 0; i < flat.plan.rows.size(); ++i) {
      EXPECT_EQ(nested.plan.rows[i].tensor, flat.plan.rows[i].tensor);
      EXPECT_EQ(nested.plan.rows[i].quantized, flat.plan.rows[i].quantized);
    }
    EXPECT_NE(note_of(flat.plan, "sum", "output").find("residual sum after relu"),
              std::string::npos);
    const Tensor x = random_tensor({2, 6, 6, 3}, 2, DType::kF32);
    ForwardContext a{.training = true}, b{.training = true};
    EXPECT_EQ(values(flat.model->forward(Variable(x), a).value()),
              values(nested.model->forward(Variable(x), b).value()));
  }
}

// Only by its exact path: types and patterns choose layers with weights.
TEST(PrepareGraph, AGroupThatNamesASumGivesItItsActivations) {
  const auto output_with = [](const std::string& target) {
    QuantizeConfig config = graph_config({"Conv2d"});
    config.groups.push_back({{target}, default_w8a8()});
    config.groups[1].config.activations->scheme.bits = 16;
    return note_of(prepare(block_as_graph(), config).plan, "sum", "output");
  };
  EXPECT_EQ(output_with("sum"), "uint16 affine, per tensor: residual sum after relu");
  EXPECT_NE(message_of<InputError>([&] { output_with("Add"); }).find("not quantized by itself"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([&] { output_with("re:su.*"); }).find("not quantized by itself"),
            std::string::npos);
}

// conv's output has two readers: neither may take it along, both read its codes.
// A layer without activations that reads codes multiplies them as integers.
TEST(PrepareGraph, ABiasBesideCodesIsInt32) {
  Rng rng(3);
  QuantizeConfig config = graph_config({"first"});
  config.groups.push_back({{"second", "third"}, default_w8a8()});
  config.groups[1].config.activations.reset();
  const PreparedModel prepared = prepare(
      std::make_shared<Sequential>(Sequential::NamedChildren{
          {"first", conv(3, 3, rng)}, {"second", conv(3, 3, rng)}, {"third", conv(3, 3, rng)}}),
      config);
  EXPECT_EQ(note_of(prepared.plan, "first", "bias"), "int32, scale s_x * s_w: ");
  EXPECT_EQ(note_of(prepared.plan, "second", "bias"), "int32, scale s_x * s_w: ");
  EXPECT_EQ(note_of(prepared.plan, "third", "bias"), "float: ");
}

TEST(PrepareGraph, WhatTwoNodesReadHasOneQuantizerAndFusesNothing) {
  Rng rng(3);
  const PreparedModel prepared = prepare(std::make_shared<Graph>(std::vector<Graph::NamedNode>{
                                             {"conv", conv(3, 3, rng)},
                                             {"relu", std::make_shared<ReLU>()},
                                             {"left", conv(3, 3, rng)},
                                             {"join", std::make_shared<Cat>(), {"left", "conv"}}}),
                                         graph_config({"Conv2d"}));
  EXPECT_EQ(note_of(prepared.plan, "relu", "output"), "as conv: ");
  EXPECT_EQ(note_of(prepared.plan, "left", "input"), "no row");
  EXPECT_EQ(note_of(prepared.plan, "join", "output"),
            "uint8 affine, per tensor: of the joined branches");
  EXPECT_EQ(named_quantizers(*prepared.model).size(), 2U + 2 + 1 + 1);
  ForwardContext training{.training = true};
  EXPECT_TRUE(quantized(
      prepared.model->forward(Variable(random_tensor({2, 4, 4, 3}, 1, DType::kF32)), training)));
}

TEST(PrepareGraph, TensorrtAsksEveryReader) {
  Rng rng(3);
  const auto graph = [&](bool read_by_a_layer) {
    std::vector<Graph::NamedNode> nodes{{"conv", conv(3, 3, rng)},
                                        {"other", conv(3, 3, rng), {"input"}}};
    if (read_by_a_layer) nodes[1].inputs = {"conv"};
    nodes.push_back({"sum", std::make_shared<Add>(), {"conv", "other"}});
    return prepare(std::make_shared<Graph>(nodes), graph_config({"Conv2d"}, Profile::kTensorrt))
        .plan;
  };
  EXPECT_EQ(note_of(graph(false), "conv", "output"), "float: a sum reads it (profile tensorrt)");
  EXPECT_EQ(note_of(graph(true), "conv", "output"), "int8 symmetric, full range, per tensor: ");
  EXPECT_EQ(note_of(graph(true), "sum", "output"), "float: the model's output (profile tensorrt)");
}

// Linear under another name, as a user's module would be.
class OwnLinear : public Linear {
 public:
  using Linear::Linear;
  std::string type_name() const override { return "OwnLinear"; }
};

class QatOwnLinear : public QuantizedLayer {
 public:
  explicit QatOwnLinear(const FormRequest& request)
      : QuantizedLayer(linear_product(), request.weight, request.bias, request.activation,
                       request.config) {}
  std::string type_name() const override { return "QatOwnLinear"; }
};

TEST(PrepareForms, ARowOfOnesOwnComesFirstAndIsNamedInMessages) {
  const QuantizedForms forms{form_of<OwnLinear>(
      "OwnLinear", FormKind::kWeighted,
      [](const OwnLinear&, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatOwnLinear>(request);
      })};
  Rng rng(1);
  const auto model = [&] {
    return std::make_shared<Sequential>(
        Sequential::NamedChildren{{"fc", std::make_shared<OwnLinear>(LinearOptions{4, 3}, rng)},
                                  {"relu", std::make_shared<ReLU>()}});
  };
  const PreparedModel prepared = prepare(model(), graph_config({"OwnLinear"}), forms);
  EXPECT_EQ(prepared.model->slot("fc")->type_name(), "QatOwnLinear");
  EXPECT_EQ(note_of(prepared.plan, "fc", "output"), "uint8 affine, per tensor: after relu");
  EXPECT_EQ(prepare(model(), graph_config({"fc"})).model->slot("fc")->type_name(), "QatLinear");
  EXPECT_EQ(message_of<InputError>([&] { prepare(model(), graph_config({"ReLU"}), forms); }),
            "quantize.groups.0.targets: 'ReLU' names relu (ReLU), which is not quantized by itself "
            "(Linear, Conv2d, Conv1d, ConvTranspose2d, Embedding, LSTM and OwnLinear are)");
}

TEST(PrepareForms, AWeightedFormIsAQuantizedLayer) {
  const QuantizedForms forms{
      form_of<Linear>("Linear", FormKind::kWeighted,
                      [](const Linear&, const FormRequest&) -> std::shared_ptr<Module> {
                        return std::make_shared<ReLU>();
                      })};
  Rng rng(1);
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              prepare(std::make_shared<Linear>(LinearOptions{4, 3}, rng), graph_config({"Linear"}),
                      forms);
            }),
            "[prepare] the quantized form of Linear is expected to be a QuantizedLayer");
}

}  // namespace
}  // namespace steelyard::qat
