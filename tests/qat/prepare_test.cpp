#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::message_of;
using testing::random_tensor;

QuantizeConfig config_for(std::vector<std::string> targets, std::vector<std::string> ignore = {}) {
  QuantizeConfig config;
  config.groups.push_back({std::move(targets), default_w8a8()});
  config.ignore = std::move(ignore);
  return config;
}

std::shared_ptr<Conv2d> conv3x3(std::int64_t in, std::int64_t out, Rng& rng) {
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = out;
  options.kernel_size = {3, 3};
  options.padding = {1, 1};
  options.bias = false;
  return std::make_shared<Conv2d>(options, rng);
}

std::shared_ptr<BatchNorm2d> norm(std::int64_t channels, std::uint64_t seed) {
  auto bn = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels});
  const auto fill = [&](const Tensor& t, float lo, float hi, std::uint64_t s) {
    const Tensor r = random_tensor(t.shape(), s, DType::kF32);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      t.data<float>()[i] = lo + (hi - lo) * 0.5F * (r.data<float>()[i] + 1);
    }
  };
  fill(bn->weight().value(), 0.5F, 1.5F, seed);
  fill(bn->bias().value(), -0.5F, 0.5F, seed + 1);
  fill(bn->running_mean(), -0.5F, 0.5F, seed + 2);
  fill(bn->running_var(), 0.2F, 2.0F, seed + 3);
  return bn;
}

// conv-bn-relu, residual block, pooling, dropout, linear on [N, 8, 8, 3].
std::shared_ptr<Sequential> small_net(std::uint64_t seed = 1) {
  Rng rng(seed);
  auto main = std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv1", conv3x3(6, 6, rng)},
      {"bn1", norm(6, 11)},
      {"relu1", std::make_shared<ReLU>()},
      {"conv2", conv3x3(6, 6, rng)},
      {"bn2", norm(6, 12)},
  });
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", conv3x3(3, 6, rng)},
      {"bn", norm(6, 10)},
      {"relu", std::make_shared<ReLU>()},
      {"block", std::make_shared<Residual>(main, nullptr, std::make_shared<ReLU>())},
      {"pool", std::make_shared<MaxPool2d>(Pool2dGeometry{})},
      {"drop", std::make_shared<Dropout>(0.1)},
      {"gap", std::make_shared<GlobalAvgPool>()},
      {"fc", std::make_shared<Linear>(LinearOptions{.in_features = 6, .out_features = 4}, rng)},
  });
}

const PlanRow& find_row(const Plan& plan, const std::string& module, const std::string& tensor) {
  const auto found = std::find_if(plan.rows.begin(), plan.rows.end(), [&](const PlanRow& row) {
    return row.module == module && row.tensor == tensor;
  });
  if (found == plan.rows.end()) throw std::out_of_range(module + " " + tensor);
  return *found;
}

TEST(Prepare, PlanNamesEveryModuleAndTensor) {
  const auto model = small_net();
  std::vector<std::string> paths;
  for (const auto& m : model->named_modules()) {
    if (m.module->children().empty() && m.name != "block.downsample") paths.push_back(m.name);
  }
  const PreparedModel prepared = prepare(model, config_for({"Linear", "Conv2d"}));
  for (const std::string& path : paths) {
    EXPECT_TRUE(std::any_of(prepared.plan.rows.begin(), prepared.plan.rows.end(),
                            [&](const PlanRow& row) {
                              return row.module == path || row.note.find(path) != std::string::npos;
                            }))
        << path;
  }
  EXPECT_EQ(find_row(prepared.plan, "(input)", "output").quantized, "uint8 affine, per tensor");
  EXPECT_EQ(find_row(prepared.plan, "conv", "weight").note, "bn folded in");
  EXPECT_EQ(find_row(prepared.plan, "pool", "output").quantized, "as block");
  EXPECT_EQ(find_row(prepared.plan, "drop", "output").quantized, "as block");
  EXPECT_EQ(find_row(prepared.plan, "block", "output").note, "residual sum after block.relu");
  const std::string text = to_string(prepared.plan);
  EXPECT_NE(text.find("block.conv2"), std::string::npos);
}

TEST(Prepare, NamesOfParametersStay) {
  const auto model = small_net();
  std::vector<std::string> before;
  for (const auto& p : model->named_parameters()) {
    if (p.name.find("bn") == std::string::npos) before.push_back(p.name);
  }
  const PreparedModel prepared = prepare(model, config_for({"Linear", "Conv2d"}));
  std::vector<std::string> after;
  for (const auto& p : prepared.model->named_parameters()) after.push_back(p.name);
  for (const std::string& name : before) {
    EXPECT_EQ(std::count(after.begin(), after.end(), name), 1) << name;
  }
}

TEST(Prepare, FoldedFloatModelIsTheSameFunction) {
  const Tensor x = random_tensor({4, 8, 8, 3}, 3, DType::kF32);
  ForwardContext evaluation;
  const Tensor expected = small_net()->forward(Variable(x), evaluation).value();
  const PreparedModel prepared = prepare(small_net(), config_for({"Linear", "Conv2d"}));
  for (const auto& q : named_quantizers(*prepared.model)) q.quantizer->set_quantizing(false);
  EXPECT_TRUE(
      all_close(prepared.model->forward(Variable(x), evaluation).value(), expected, 1e-4, 1e-5));
}

TEST(Prepare, QuantizedModelStaysCloseAndTrains) {
  const Tensor x = random_tensor({16, 8, 8, 3}, 3, DType::kF32);
  ForwardContext evaluation;
  const Tensor expected = small_net()->forward(Variable(x), evaluation).value();
  const PreparedModel prepared = prepare(small_net(), config_for({"Linear", "Conv2d"}));
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  const Variable y = prepared.model->forward(Variable(x), training);
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const auto& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
  }
  const Variable quantized_y = prepared.model->forward(Variable(x), evaluation);
  ASSERT_TRUE(quantized(quantized_y));
  double amax = 0;
  for (const double v : testing::values(expected)) amax = std::max(amax, std::abs(v));
  EXPECT_TRUE(all_close(quantized_y.value(), expected, 0, 0.1 * amax));
}

TEST(Prepare, EntriesThatNameNothingAreErrors) {
  EXPECT_NE(message_of<InputError>([] {
              prepare(small_net(), config_for({"Conv2d", "Convv2d"}));
            }).find("'Convv2d' matches no module"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              prepare(small_net(), config_for({"Linear", "ConvTranspose2d"}));
            }).find("'ConvTranspose2d' matches no module: the model has Conv2d (3), Linear (1)"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              prepare(small_net(), config_for({"Linear"}, {"head"}));
            }).find("quantize.ignore: 'head' matches no module"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              prepare(small_net(), config_for({"BatchNorm2d"}));
            }).find("bn (BatchNorm2d), which is not quantized by itself"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              prepare(small_net(), config_for({"re:block[("}));
            }).find("bad regular expression"),
            std::string::npos);
}

TEST(Prepare, EntriesThatCouldNotHaveAnEffectAreErrors) {
  const auto rejection = [](const QuantizeConfig& config) {
    return message_of<InputError>([&] { prepare(small_net(), config); });
  };
  EXPECT_EQ(rejection(config_for({"Linear"}, {"relu"})),
            "quantize.ignore: 'relu' names relu (ReLU), which is not quantized by itself");
  EXPECT_EQ(
      rejection(config_for({"Linear"}, {"MaxPool2d"})),
      "quantize.ignore: 'MaxPool2d' names pool (MaxPool2d), which is not quantized by itself");
  EXPECT_EQ(rejection(config_for({"re:"})),
            "quantize.groups.0.targets: 're:' names the model (Sequential), which is not quantized "
            "by itself (Linear, Conv2d, Conv1d, ConvTranspose2d, Embedding and LSTM are)");
  QuantizeConfig shadowed = config_for({"Conv2d", "Linear"});
  shadowed.groups.push_back({{"fc"}, default_w8a8()});
  EXPECT_EQ(rejection(shadowed),
            "quantize.groups.1.targets: 'fc' names only layers that a group before it quantizes");
  EXPECT_EQ(rejection(config_for({"Linear", "Conv2d"}, {"Sequential"})),
            "quantize.groups.0.targets: 'Linear' names only layers that quantize.ignore leaves in "
            "float; quantize.groups.0.targets: 'Conv2d' names only layers that quantize.ignore "
            "leaves in float");
  EXPECT_NO_THROW(prepare(small_net(), config_for({"Linear", "conv"}, {"fc"})))
      << "a target that is ignored beside one that is not";
}

// 255 * 127 products of 8 bits fit int32 66,311 times, of 4-bit weights 1,203,072 times.
TEST(Prepare, RowsWhoseSumsInt32CannotHoldAreErrors) {
  const auto net = [](std::int64_t features) {
    Rng rng(1);
    return std::make_shared<Sequential>(
        std::vector<std::pair<std::string, std::shared_ptr<Module>>>{
            {"a", std::make_shared<Linear>(LinearOptions{features, 1, false}, rng)}});
  };
  QuantizeConfig config = config_for({"Conv2d", "Linear"});
  config.groups[0].targets.erase(config.groups[0].targets.begin());
  config.groups[0].target_places = {"r.yaml:3:9"};
  EXPECT_NO_THROW(prepare(net(66311), config));
  EXPECT_EQ(message_of<InputError>([&] { prepare(net(66312), config); }),
            "r.yaml:3:9: quantize.groups.0.targets: a: expected at most 66311 products per output, "
            "so that their sum fits int32 (weights of 8 bits, inputs of 8), got 66312");
  config.groups[0].config.weights->scheme.bits = 4;
  EXPECT_NO_THROW(prepare(net(66312), config));
  config.groups[0].config.weights->scheme.bits = 8;
  config.groups[0].config.activations.reset();
  EXPECT_NO_THROW(prepare(net(66312), config)) << "products in float";
}

std::vector<Module*> modules_of(Module& model) {
  std::vector<Module*> modules;
  for (const NamedModule& entry : model.named_modules()) modules.push_back(entry.module);
  return modules;
}

TEST(Prepare, AModelIsAsItWasAfterAnError) {
  for (const BatchNormFold fold : {BatchNormFold::kFrozen, BatchNormFold::kBatchCorrected}) {
    const auto net = small_net();
    const std::vector<Module*> before = modules_of(*net);
    QuantizeConfig config = config_for({"Conv2d"});
    config.bn_fold = fold;
    config.groups.push_back({{"fc"}, default_w8a8()});
    QuantizedForms failing{form_of<Linear>(
        "Linear", FormKind::kWeighted,
        [](const Linear&, const FormRequest&) -> std::shared_ptr<Module> { return nullptr; })};
    EXPECT_THROW(prepare(net, config, failing), std::invalid_argument);
    EXPECT_EQ(modules_of(*net), before);
    config.ignore = {"nothing"};
    EXPECT_THROW(prepare(net, config), InputError);
    EXPECT_EQ(modules_of(*net), before);
    config.ignore.clear();
    EXPECT_NO_THROW(prepare(net, config));
    EXPECT_NE(modules_of(*net), before);
  }
  Rng rng(1);
  EXPECT_THROW(prepare(std::make_shared<Linear>(LinearOptions{66312, 1, false}, rng),
                       config_for({"Linear"})),
               InputError)
      << "a slot that is gone with the error";
}

TEST(Prepare, AModelIsPreparedOnce) {
  const auto net = small_net();
  const PreparedModel prepared = prepare(net, config_for({"Linear"}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { prepare(net, config_for({"Linear"})); }),
            "[prepare] expected a model in float, got one that is prepared already: fc is a "
            "QatLinear");
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { prepare(prepared.model, config_for({"Conv2d"})); }),
      "[prepare] expected a model in float, got one that is prepared already: it is a "
      "QatModel");
}

TEST(Prepare, NamesAParameterThatIsNotFloat32) {
  const auto net = small_net();
  Variable weight = net->named_parameters()[0].variable;
  weight.set_value(weight.value().to(DType::kF64));
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { prepare(net, config_for({"Linear"})); }),
      "[prepare] expected parameters in f32, got f64 of '" + net->named_parameters()[0].name + "'");
}

TEST(Prepare, AGroupHasTargets) {
  QuantizeConfig config = config_for({"Linear"});
  config.groups.push_back({{}, default_w8a8()});
  EXPECT_EQ(message_of<InputError>([&] { prepare(small_net(), config); }),
            "quantize.groups.1.targets: expected a type, a path or a pattern, got none");
}

TEST(Prepare, AFormHasItsFunctions) {
  const auto refusal = [](const QuantizedForm& form) {
    return message_of<std::invalid_argument>(
        [&] { prepare(small_net(), config_for({"Linear"}), {form}); });
  };
  QuantizedForm own;
  own.type = "Own";
  EXPECT_EQ(refusal(own),
            "[quantized_form] Own: expected the functions matches and make, got no matches");
  own.matches = [](const Module&) { return false; };
  EXPECT_EQ(refusal(own),
            "[quantized_form] Own: expected the functions matches and make, got no make");
}

TEST(Prepare, ATrainableFactorInTwoPlacesIsAnError) {
  const auto scaled = [](bool trainable) {
    Rng rng(1);
    const ConstantArithmeticOptions options{.operation = Arithmetic::kMultiply,
                                            .trainable = trainable};
    const auto shared = std::make_shared<ConstantArithmetic>(options, Tensor::full({4}, 0.5));
    return std::make_shared<Sequential>(
        Sequential::NamedChildren{{"a", std::make_shared<Linear>(LinearOptions{4, 4}, rng)},
                                  {"m", shared},
                                  {"b", std::make_shared<Linear>(LinearOptions{4, 4}, rng)},
                                  {"n", shared}});
  };
  EXPECT_NO_THROW(prepare(scaled(false), config_for({"Linear"})));
  EXPECT_EQ(message_of<InputError>([&] { prepare(scaled(true), config_for({"Linear"})); }),
            "m and n are the same layer: expected a layer for each place (quantize.ignore leaves "
            "it in float)");
}

TEST(Prepare, MessagesAboutEntriesNameTheirPlaceAndANearName) {
  QuantizeConfig config = config_for({"Conv2D"}, {"blok"});
  config.groups[0].target_places = {"r.yaml:3:9"};
  config.ignore_places = {"r.yaml:4:9"};
  EXPECT_EQ(message_of<InputError>([&] { prepare(small_net(), config); }),
            "r.yaml:4:9: quantize.ignore: 'blok' matches no module (did you mean 'block'?); "
            "r.yaml:3:9: quantize.groups.0.targets: 'Conv2D' matches no module (did you mean "
            "'Conv2d'?): the model has Conv2d (3), Linear (1)");
  config.groups[0].targets = {"re:("};
  EXPECT_EQ(message_of<InputError>([&] {
              prepare(small_net(), config);
            }).find("r.yaml:3:9: quantize.groups.0.targets: 're:(': bad regular expression"),
            0u);
}

TEST(Prepare, AnIgnoredContainerStaysInFloatWithAllBeneathIt) {
  for (const std::string entry : {"block", "Residual", "re:bl.*k"}) {
    const PreparedModel prepared =
        prepare(small_net(), config_for({"Linear", "Conv2d"}, {entry, "re:block.*"}));
    for (const char* conv : {"block.conv1", "block.conv2"}) {
      EXPECT_EQ(find_row(prepared.plan, conv, "-").note, "ignored by '" + entry + "'");
    }
    EXPECT_EQ(find_row(prepared.plan, "block", "output").quantized, "float");
    EXPECT_EQ(find_row(prepared.plan, "block", "output").note, "ignored by '" + entry + "'");
    for (const auto& q : named_quantizers(*prepared.model)) {
      EXPECT_NE(q.name.find("block"), 0u) << q.name;
    }
  }
}

TEST(Prepare, AnIgnoredAverageStaysInFloat) {
  const PreparedModel prepared =
      prepare(small_net(), config_for({"Linear", "Conv2d"}, {"GlobalAvgPool"}));
  EXPECT_EQ(find_row(prepared.plan, "gap", "output").note, "ignored by 'GlobalAvgPool'");
}

TEST(Prepare, FirstMatchDecidesAndIgnoreWins) {
  QuantizeConfig config = config_for({"re:block\\..*"}, {"fc"});
  config.groups[0].config.weights->scheme.bits = 4;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  const PreparedModel prepared = prepare(small_net(), config);
  EXPECT_EQ(find_row(prepared.plan, "block.conv1", "weight").quantized,
            "int4 symmetric, per channel");
  EXPECT_EQ(find_row(prepared.plan, "conv", "weight").quantized, "int8 symmetric, per channel");
  EXPECT_EQ(find_row(prepared.plan, "fc", "-").quantized, "float");
  EXPECT_NE(find_row(prepared.plan, "fc", "-").note.find("ignored"), std::string::npos);
}

TEST(Prepare, AFloatLayerInTheMiddleGetsAnInputQuantizerBehindIt) {
  const PreparedModel prepared =
      prepare(small_net(), config_for({"Linear", "Conv2d"}, {"block.conv1"}));
  EXPECT_EQ(find_row(prepared.plan, "block.conv2", "input").note, "its producer is in float");
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  const Variable x(random_tensor({2, 8, 8, 3}, 1, DType::kF32));
  EXPECT_TRUE(quantized(prepared.model->forward(x, training)));
}

TEST(Prepare, AnActivationWithoutFormStaysInFloatAndItsReaderQuantizes) {
  for (const std::shared_ptr<Module>& module :
       {std::shared_ptr<Module>(std::make_shared<Elementwise>(kernels::UnaryFunction::kTanh)),
        std::shared_ptr<Module>(std::make_shared<Clamp>(-1, 1))}) {
    Rng rng(1);
    const PreparedModel prepared =
        prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                    {"a", conv3x3(3, 6, rng)}, {"act", module}, {"b", conv3x3(6, 6, rng)}}),
                config_for({"Conv2d"}));
    EXPECT_EQ(find_row(prepared.plan, "act", "-").quantized, "float");
    EXPECT_EQ(find_row(prepared.plan, "act", "-").note,
              module->type_name() + " has no quantized form");
    EXPECT_EQ(find_row(prepared.plan, "b", "input").note, "its producer is in float");
    ForwardContext training{.training = true, .rng = &rng};
    const Variable x(random_tensor({2, 8, 8, 3}, 1, DType::kF32));
    EXPECT_TRUE(quantized(prepared.model->forward(x, training)));
  }
}

class OwnModule : public Module {
 public:
  explicit OwnModule(Rng& rng)
      : a_(register_child("a", std::make_shared<Linear>(LinearOptions{6, 5}, rng))),
        b_(register_child("b", std::make_shared<Linear>(LinearOptions{5, 4}, rng))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    return b_(relu(a_(x, context)), context);
  }
  std::string type_name() const override { return "OwnModule"; }

 private:
  Slot& a_;
  Slot& b_;
};

TEST(Prepare, ChildrenOfOwnModulesAreSwappedInTheirSlots) {
  Rng rng(4);
  const PreparedModel prepared = prepare(std::make_shared<OwnModule>(rng), config_for({"Linear"}));
  EXPECT_EQ(prepared.model->slot("a")->type_name(), "QatLinear");
  ForwardContext training{.training = true};
  const Variable y =
      prepared.model->forward(Variable(random_tensor({3, 6}, 1, DType::kF32), true), training);
  EXPECT_TRUE(quantized(y));  // the relu between them handed floats to b's own input quantizer
}

TEST(Prepare, ARootThatIsALayer) {
  Rng rng(4);
  const PreparedModel prepared =
      prepare(std::make_shared<Linear>(LinearOptions{6, 5}, rng), config_for({"Linear"}));
  ForwardContext training{.training = true};
  EXPECT_TRUE(quantized(
      prepared.model->forward(Variable(random_tensor({3, 6}, 1, DType::kF32)), training)));
  EXPECT_EQ(prepared.model->named_parameters()[0].name, "weight");
}

// pytorch#50868, #38587: per-channel shapes and calibration state must survive a checkpoint.
TEST(Prepare, SavedStateLoadsIntoAFreshlyPreparedModel) {
  const auto make = [](std::uint64_t seed) {
    return prepare(small_net(seed), config_for({"Linear", "Conv2d"})).model;
  };
  const auto trained = make(1);
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng}, evaluation;
  const Variable x(random_tensor({8, 8, 8, 3}, 3, DType::kF32));
  trained->forward(x, training);
  const auto fresh = make(2);
  load_into(*fresh, module_state(*trained), "state");
  EXPECT_EQ(testing::values(fresh->forward(x, evaluation).value()),
            testing::values(trained->forward(x, evaluation).value()));
}

// pytorch#85744: gamma = 0 gave NaN.
TEST(Fold, AZeroGammaGivesAZeroChannelWithBiasBeta) {
  Rng rng(1);
  const auto conv = conv3x3(2, 3, rng);
  const auto bn = norm(3, 5);
  bn->weight().value().data<float>()[1] = 0;
  bn->running_var().data<float>()[2] = 1e-30F;
  const FoldedWeights folded = fold_batch_norm(conv->weight().value(), Tensor(), *bn);
  for (std::int64_t i = 18; i < 36; ++i) EXPECT_EQ(folded.weight.data<float>()[i], 0);
  EXPECT_EQ(folded.bias.data<float>()[1], bn->bias().value().data<float>()[1]);
  for (const double v : testing::values(folded.weight)) EXPECT_TRUE(std::isfinite(v));

  const auto model = std::make_shared<Sequential>(Sequential::Children{conv, bn});
  const PreparedModel prepared = prepare(model, config_for({"Conv2d"}));
  ForwardContext training{.training = true};
  const Variable x(random_tensor({2, 4, 4, 2}, 3, DType::kF32), true);
  const Variable y = prepared.model->forward(x, training);
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const auto& p : prepared.model->named_parameters()) {
    for (const double g : testing::values(p.variable.grad())) EXPECT_TRUE(std::isfinite(g));
  }
}

}  // namespace
}  // namespace steelyard::qat
