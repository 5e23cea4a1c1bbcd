// Every shipped model, quantized as its recipe says and otherwise: the deployed graph gives
// training's codes. benchmarks/verify_presets does the same with trained weights and all images.
#include <gtest/gtest.h>

#include "steelyard/export/verify.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/recipes/runs/deployment.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::message_of;

struct Preset {
  const char* name;
  const char* preset;
  std::vector<std::string> overrides;
};

void PrintTo(const Preset& c, std::ostream* out) { *out << c.name; }

const std::vector<std::string> kOrt{};
const std::vector<std::string> kW4{"quantize.groups.0.weights.num_bits=4"};
const std::vector<std::string> kTensorrt{"export.profile=tensorrt",
                                         "quantize.groups.0.activations.symmetric=true"};
const std::vector<std::string> kTflm{"export.profile=tflm"};
const std::vector<std::string> kTflmOnce{"export.profile=tflm_single_rounding"};

Experiment make_experiment(const Preset& c) {
  std::vector<std::string> overrides = c.overrides;
  overrides.emplace_back("data.batch_size=64");
  const Registries registries;
  Recipe recipe = load_recipe(c.preset, overrides, registries);
  recipe.init_checkpoint.reset();
  return Experiment(std::move(recipe), registries, InitialWeights::kRecipe);
}

// Lets observers see data, as training would; the weights stay random.
void observe(Experiment& experiment) {
  const NoGradGuard no_grad;
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  for (std::int64_t i = 0; i < 2; ++i) {
    const Batch batch = make_batch(experiment.train(), experiment.loader_options(), 0, i);
    experiment.model().forward(Variable(batch.inputs), training);
  }
}

class Presets : public ::testing::TestWithParam<Preset> {};

TEST_P(Presets, DeployWhatTheyTrain) {
  Experiment experiment = make_experiment(GetParam());
  observe(experiment);
  const deploy::Graph graph = deployed_graph(experiment);
  EXPECT_EQ(graph.preprocessing.dtype, DType::kU8);
  EXPECT_EQ(graph.preprocessing.normalization.mean.size(), 1U);
  for (const auto engine : {deploy::Engine::kReference, deploy::Engine::kFast}) {
    const deploy::Verification result = deploy::verify(
        experiment.model(), deploy::Interpreter(graph, engine), experiment.test(), 70, 32);
    EXPECT_EQ(result.samples, 70);
    for (const auto& value : result.values) EXPECT_EQ(value.differing, 0) << value.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Presets,
    ::testing::Values(Preset{"mlp", "fashion-mnist-mlp-w8a8", kOrt},
                      Preset{"mlp_w4a8", "fashion-mnist-mlp-w8a8", kW4},
                      Preset{"mlp_tensorrt", "fashion-mnist-mlp-w8a8", kTensorrt},
                      Preset{"cnn", "fashion-mnist-cnn-w8a8", kOrt},
                      Preset{"cnn_w4a8", "fashion-mnist-cnn-w8a8", kW4},
                      Preset{"cnn_tensorrt", "fashion-mnist-cnn-w8a8", kTensorrt},
                      Preset{"resnet", "fashion-mnist-resnet-w8a8", kOrt},
                      Preset{"resnet_w4a8", "fashion-mnist-resnet-w8a8", kW4},
                      Preset{"resnet_tensorrt", "fashion-mnist-resnet-w8a8", kTensorrt},
                      Preset{"cnn_w4a4_lsq", "fashion-mnist-cnn-w4a4-lsq", kOrt},
                      Preset{"cnn_w4a8_progressive", "fashion-mnist-cnn-w4a8-progressive", kOrt},
                      Preset{"mobilenet", "fashion-mnist-mobilenet-w8a8", kOrt},
                      Preset{"mobilenet_w4a8", "fashion-mnist-mobilenet-w8a8", kW4},
                      Preset{"mobilenet_tensorrt", "fashion-mnist-mobilenet-w8a8", kTensorrt},
                      Preset{"mlp_tflm", "fashion-mnist-mlp-w8a8", kTflm},
                      Preset{"cnn_tflm", "fashion-mnist-cnn-w8a8", kTflm},
                      Preset{"cnn_tflm_once", "fashion-mnist-cnn-w8a8", kTflmOnce},
                      Preset{"resnet_tflm", "fashion-mnist-resnet-w8a8", kTflm},
                      Preset{"mobilenet_tflm", "fashion-mnist-mobilenet-w8a8", kTflm}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(DeployedGraph, RefusesWhatIsNotReady) {
  const auto message = [](const Preset& c, const auto& prepare) {
    Experiment experiment = make_experiment(c);
    prepare(experiment);
    return message_of<InputError>([&] { deployed_graph(experiment); });
  };
  const Preset mlp{"mlp", "fashion-mnist-mlp-w8a8", kOrt};
  EXPECT_EQ(message(mlp, [](Experiment&) {}),
            "export: the quantizer input_quantizer never observed anything");
  EXPECT_NE(message(mlp,
                    [](Experiment& e) {
                      observe(e);
                      qat::named_quantizers(e.model())[0].quantizer->set_quantizing(false);
                    })
                .find("is off in this checkpoint"),
            std::string::npos);
  EXPECT_EQ(message(mlp,
                    [](Experiment& e) {
                      observe(e);
                      const auto quantizers = qat::named_quantizers(e.model());
                      for (const std::size_t i : {0, 1}) quantizers[i].quantizer->set_bits(4 - i);
                      EXPECT_EQ(difference_from_plan(e),
                                "not quantized as planned yet: the quantizer fc1.weight_quantizer "
                                "has 4 bits in this checkpoint, 8 in the plan: schedule.bits ends "
                                "later (2 of " +
                                    std::to_string(quantizers.size()) + " quantizers)");
                    }),
            "export: the quantizer fc1.weight_quantizer has 4 bits in this checkpoint, 8 in the "
            "plan: schedule.bits ends later");
  EXPECT_NE(
      message(mlp,
              [](Experiment& e) {
                observe(e);
                e.model().named_parameters()[0].variable.value().data<float>()[5] = NAN;
              })
          .find("fc1: the operation quantized_linear has a weight or bias that is not finite"),
      std::string::npos);
}

TEST(Recipes, TheTensorrtProfileNeedsSymmetricActivations) {
  EXPECT_NE(message_of<InputError>([] {
              make_experiment({"t", "fashion-mnist-mlp-w8a8", {"export.profile=tensorrt"}});
            }).find("profile tensorrt needs symmetric activations"),
            std::string::npos);
}

}  // namespace
}  // namespace steelyard
