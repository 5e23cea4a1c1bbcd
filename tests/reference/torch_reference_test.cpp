// Our models with PyTorch's weights against PyTorch's logits and training steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/trained_weights.h"
#include "steelyard/layers/init.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/ptq/adaround.h"
#include "steelyard/qat/quantizers/soft_rounding.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

std::filesystem::path folder;  // the program's argument

struct Twin {
  const char* name;
  const char* model;
};
const Twin kTwins[] = {
    {"mlp", "{type: mlp, hidden: [30, 20], classes: 5}"},
    {"cnn", "{type: cnn, channels: [6, 8], hidden: 16, classes: 5}"},
    {"resnet", "{type: resnet, depth: 14, width: 4, classes: 5}"},
    {"mobilenet",
     "{type: mobilenet, stem: 4, channels: [6, 8, 8], strides: [1, 2, 1], activation: relu6, "
     "classes: 5}"},
    {"layers",
     "{classes: 5, layers: ["
     "{type: Conv2d, name: a, out_channels: 6, kernel_size: 3, padding: 2, dilation: 2}, "
     "{type: ReLU6}, "
     "{type: Conv2d, name: b, out_channels: 9, kernel_size: [3, 2], stride: [1, 2], "
     "padding: [1, 0], groups: 3}, "
     "{type: AvgPool2d, kernel_size: 2}, {type: Flatten}, "
     "{type: Linear, name: fc, out_features: 5}]}"},
};

void PrintTo(const Twin& twin, std::ostream* out) { *out << twin.name; }

class TorchTwin : public ::testing::TestWithParam<Twin> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().name;
    if (!std::filesystem::exists(folder / (name + ".case.safetensors"))) {
      GTEST_SKIP() << "no files: torch is not installed";
    }
    const Registries& registries = builtin_registries();
    const Recipe recipe = parse_recipe(
        std::string("version: 1\nname: twin\ndata: {dataset: none}\nmodel: ") + GetParam().model +
            "\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.1}}\n",
        "twin", {}, registries);
    Rng rng(1);
    model_ = build_model(recipe.model, {10, 12, 2}, 5, rng, registries.models);
    const auto weights = folder / (name + ".model.safetensors");
    load_into(*model_, load_tensors(weights).tensors, weights.string());
    for (const auto& t : load_tensors(folder / (name + ".case.safetensors")).tensors) {
      case_[t.name] = t.tensor;
    }
  }

  std::shared_ptr<Module> model_;
  std::map<std::string, Tensor> case_;
};

TEST_P(TorchTwin, SameLogits) {
  ForwardContext evaluation;
  const Variable logits = model_->forward(Variable(case_.at("inputs")), evaluation);
  EXPECT_TRUE(testing::all_close(logits.value(), case_.at("logits"), 1e-4, 1e-4));
}

TEST_P(TorchTwin, SameTrainingSteps) {
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  Sgd optimizer(model_->named_parameters(),
                {.momentum = 0.9,
                 .nesterov = true,
                 .weight_decay = 0.01,
                 .no_decay = [](const NamedParameter&) { return false; }});
  for (int step = 0; step < 2; ++step) {
    clear_gradients(*model_);
    const Variable loss = cross_entropy(model_->forward(Variable(case_.at("inputs")), training),
                                        case_.at("labels"), 0.1);
    loss.backward();
    optimizer.step(0.05);
    EXPECT_NEAR(loss.value().item(), case_.at("loss" + std::to_string(step)).item(), 1e-4);
  }
  for (const NamedTensor& t : module_state(*model_)) {
    EXPECT_TRUE(testing::all_close(t.tensor, case_.at("after." + t.name), 1e-3, 1e-4)) << t.name;
  }
}

// torchvision's architectures, with files of torch.save().
class TorchArchitecture : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchArchitecture, SameLogitsAndStatistics) {
  const std::string name = GetParam();
  const std::filesystem::path weights = folder / (name + ".pt");
  if (!std::filesystem::exists(weights)) GTEST_SKIP() << "no files: torch is not installed";
  const Registries& registries = builtin_registries();
  const bool drops = !name.starts_with("resnet");
  const Recipe recipe =
      parse_recipe("version: 1\nname: twin\ndata: {dataset: none}\nmodel: {type: " + name +
                       (drops ? ", dropout: 0}" : "}") +
                       "\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.1}}\n",
                   "twin", {}, registries);
  Rng rng(1);
  const auto model = [&] {
    const WeightCount no_values(std::int64_t{1} << 40);
    return build_model(recipe.model, {64, 64, 3}, 10, rng, registries.models);
  }();
  load_trained_weights(*model, weights);
  std::map<std::string, Tensor> expected;
  for (const auto& t : load_tensors(folder / (name + ".case.safetensors")).tensors) {
    expected[t.name] = t.tensor;
  }
  // The largest difference, relative to the largest value.
  const auto error = [](const Tensor& a, const Tensor& b) {
    float difference = 0, largest = 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      difference = std::max(difference, std::abs(a.data<float>()[i] - b.data<float>()[i]));
      largest = std::max(largest, std::abs(b.data<float>()[i]));
    }
    return difference / largest;
  };
  const NoGradGuard no_grad;
  ForwardContext evaluation, training{.training = true, .rng = &rng};
  const Variable inputs(expected.at("inputs"));
  EXPECT_LE(error(model->forward(inputs, evaluation).value(), expected.at("logits")), 1e-5);
  EXPECT_LE(error(model->forward(inputs, training).value(), expected.at("training")), 1e-4);
  for (const NamedTensor& t : module_state(*model)) {
    if (t.name.ends_with("num_batches_tracked")) {
      EXPECT_EQ(t.tensor.item(), expected.at("after." + t.name).item());
    } else if (t.name.find("running_") != std::string::npos) {
      EXPECT_LE(error(t.tensor, expected.at("after." + t.name)), 1e-4) << t.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TorchArchitecture,
                         ::testing::Values("resnet18", "resnet50", "mobilenet_v2",
                                           "mobilenet_v3_small", "mobilenet_v3_large",
                                           "efficientnet_b0"),
                         [](const auto& p) { return std::string(p.param); });

class TorchLosses : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = folder / "losses.case.safetensors";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no files: torch is not installed";
    for (const auto& t : load_tensors(path).tensors) case_[t.name] = t.tensor;
  }

  // In double, and in float from the same numbers.
  void expect_equal(const std::string& name, const Tensor& x,
                    const std::function<Variable(const Variable&, DType)>& loss) const {
    for (const auto& [dtype, near] : {std::pair(DType::kF64, 1e-9), std::pair(DType::kF32, 1e-6)}) {
      const Variable input(x.to(dtype), true);
      const Variable value = loss(input, dtype);
      value.backward();
      EXPECT_TRUE(
          testing::all_close(value.value().reshape({1}), case_.at(name + ".loss"), near, near))
          << name;
      EXPECT_TRUE(testing::all_close(input.grad(), case_.at(name + ".grad"), near, near)) << name;
    }
  }

  Tensor first_rows(const std::string& name, std::int64_t rows) const {
    const Tensor& all = case_.at(name);
    Shape shape = all.shape();
    shape[0] = rows;
    Tensor first = Tensor::empty(shape, all.dtype());
    std::memcpy(first.raw(), all.raw(), static_cast<std::size_t>(first.bytes()));
    return first;
  }

  std::map<std::string, Tensor> case_;
};

TEST_F(TorchLosses, CrossEntropyWithWeightsAndOfProbabilities) {
  const Tensor weights = case_.at("weights"), chances = case_.at("chances");
  for (const double smoothing : {0.0, 0.3}) {
    const std::string end = smoothing == 0 ? ".0.0" : ".0.3";
    expect_equal("plain" + end, case_.at("logits"), [&](const Variable& x, DType) {
      return cross_entropy(x, case_.at("labels"), smoothing);
    });
    expect_equal("weighted" + end, case_.at("logits"), [&](const Variable& x, DType) {
      return cross_entropy(x, case_.at("labels"), smoothing, {weights});
    });
    expect_equal("soft" + end, case_.at("logits"), [&](const Variable& x, DType dtype) {
      return cross_entropy(x, chances.to(dtype), smoothing);
    });
    expect_equal("soft_weighted" + end, case_.at("logits"), [&](const Variable& x, DType dtype) {
      return cross_entropy(x, chances.to(dtype), smoothing, {weights});
    });
  }
}

TEST_F(TorchLosses, MeanSquaredErrorAndHuber) {
  const Tensor logits = case_.at("logits"), numbers = case_.at("chances");
  expect_equal("mse", logits,
               [&](const Variable& x, DType dtype) { return mse_loss(x, numbers.to(dtype)); });
  for (const double delta : {0.5, 1.0}) {  // differences are on both sides of it
    expect_equal(
        delta == 0.5 ? "huber.0.5" : "huber.1.0", logits,
        [&](const Variable& x, DType dtype) { return huber_loss(x, numbers.to(dtype), delta); });
  }
}

TEST_F(TorchLosses, BinaryCrossEntropyAndCosine) {
  const Tensor logits = case_.at("logits"), chances = case_.at("chances");
  expect_equal("binary", logits, [&](const Variable& x, DType dtype) {
    return binary_cross_entropy(x, chances.to(dtype));
  });
  expect_equal("binary_weighted", logits, [&](const Variable& x, DType dtype) {
    return binary_cross_entropy(x, chances.to(dtype), case_.at("weights"));
  });
  expect_equal("cosine", logits,
               [&](const Variable& x, DType dtype) { return cosine_loss(x, chances.to(dtype)); });
}

TEST_F(TorchLosses, Ctc) {
  expect_equal("ctc", first_rows("scores", 3), [&](const Variable& x, DType) {
    return ctc_loss(x, first_rows("texts", 3), {.frames = first_rows("frames", 3)});
  });
  expect_equal("ctc_zero_infinity", case_.at("scores"), [&](const Variable& x, DType) {
    return ctc_loss(x, case_.at("texts"), {.zero_infinity = true, .frames = case_.at("frames")});
  });
}

INSTANTIATE_TEST_SUITE_P(Models, TorchTwin, ::testing::ValuesIn(kTwins),
                         [](const auto& p) { return std::string(p.param.name); });

// Soft weights, the objective and its gradient with respect to V; 4 bits, beta 6, lambda 0.3.
TEST(TorchAdaRound, SameObjectiveAndGradient) {
  const std::filesystem::path path = folder / "adaround.case.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no files: torch is not installed";
  std::map<std::string, Tensor> of_torch;
  for (const auto& t : load_tensors(path).tensors) of_torch[t.name] = t.tensor;
  qat::QConfig config = qat::default_w8a8();
  config.weights->scheme.bits = 4;
  config.activations.reset();
  Conv2dOptions options{.in_channels = 4, .out_channels = 6, .kernel_size = {3, 3}};
  options.padding = {1, 1};
  options.groups = 2;
  qat::QatConv2d layer(options, of_torch.at("weight"), of_torch.at("bias"), config,
                       kernels::Activation::kRelu);
  ForwardContext calibrating{.calibrating = true};
  const Variable x(of_torch.at("x"));
  layer.forward(x, calibrating);
  const qat::SoftRounding rounding(layer.deployed_weight(), layer.evaluated_weights(x),
                                   layer.weight_quantizer()->code_range());
  EXPECT_TRUE(testing::all_close(rounding.weight().value(), layer.deployed_weight(), 1e-5, 1e-6))
      << "the weights begin as they are";
  rounding.variable().value().copy_from(of_torch.at("v"));
  EXPECT_TRUE(testing::all_close(rounding.weight().value(), of_torch.at("soft"), 1e-5, 1e-6));
  const Variable objective =
      qat::reconstruction_error(layer, rounding.weight(), x.value(), of_torch.at("wanted")) +
      0.3 * rounding.regularizer(6);
  EXPECT_NEAR(objective.value().item(), of_torch.at("objective").item(), 1e-4);
  objective.backward();
  EXPECT_TRUE(testing::all_close(rounding.variable().grad(), of_torch.at("gradient"), 1e-4, 1e-5));
}

}  // namespace
}  // namespace steelyard

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  steelyard::folder = argv[1];
  return RUN_ALL_TESTS();
}
