// torchvision's architectures: names, shapes, numbers and initial values. What they compute is
// compared with PyTorch in tests/reference/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/layers/init.h"
#include "steelyard/recipes/models/models.h"
#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

// `states` and `digest` are those of torchvision 0.29.2 for 1000 classes, by
// tests/reference/torchvision_digests.py; `parameters` is in its documentation.
struct Architecture {
  const char* name;
  std::size_t states;
  std::int64_t parameters;
  const char* digest;
};
const Architecture kArchitectures[] = {
    {"resnet18", 122, 11'689'512,
     "6cb439dd8789c9fec30db85cd20f9566cb04693ea278e4348cdd110fa0388db6"},
    {"resnet34", 218, 21'797'672,
     "306c4e9d557830ce13b79a2bd03e436c69d7fb702e8e488289a1ffeeae3bda3f"},
    {"resnet50", 320, 25'557'032,
     "98fcefba1b06f509a0fbf50757db13659d4fb3dc3b1f43aef4ed2da77b133fbe"},
    {"mobilenet_v2", 314, 3'504'872,
     "901b1733fa105c1c6815788deca0b9fcdf753ede8cd3e9819e5ca20a34aaf79a"},
    {"mobilenet_v3_small", 244, 2'542'856,
     "9116f09c07de7c571c995f5e1e3a8f6a9c3c68f3e14df64442bb17a3001ea19b"},
    {"mobilenet_v3_large", 312, 5'483'032,
     "9be702a63b689480dca5c20035c79899bf024857045fec815707d220b82fc66a"},
    {"efficientnet_b0", 360, 5'288'548,
     "533e07ad1a0211b15369a5242721c77d3c2bac42221944805c5b7c79d028bd03"},
};

void PrintTo(const Architecture& a, std::ostream* out) { *out << a.name; }

std::shared_ptr<Module> build(const std::string& name, std::int64_t classes, const Shape& sample) {
  const Registries& registries = builtin_registries();
  const Recipe recipe =
      parse_recipe(with(kSmallRecipe, "{type: mlp, hidden: [8]}", "{type: " + name + "}"), "r.yaml",
                   {}, registries);
  Rng rng(1);
  return build_model(recipe.model, sample, classes, rng, registries.models);
}

class Torchvision : public ::testing::TestWithParam<Architecture> {};

TEST_P(Torchvision, NamesAndShapes) {
  const WeightCount no_values(std::int64_t{1} << 40);
  const auto model = build(GetParam().name, 1000, {224, 224, 3});
  std::vector<std::string> lines;
  for (const NamedTensor& t : module_state(*model)) {
    lines.push_back(t.name + " " + shape_string(t.tensor.shape()) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  EXPECT_EQ(lines.size(), GetParam().states);
  EXPECT_EQ(sha256_of(text), GetParam().digest) << text;
  std::int64_t parameters = 0;
  for (const auto& p : model->named_parameters()) parameters += p.variable.value().size();
  EXPECT_EQ(parameters, GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, Torchvision, ::testing::ValuesIn(kArchitectures),
                         [](const auto& p) { return std::string(p.param.name); });

double deviation(const Tensor& values) {
  double squares = 0;
  for (const float v : values.span<float>()) squares += static_cast<double>(v) * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

std::map<std::string, Tensor> state_of(const Module& model) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& t : module_state(model)) state[t.name] = t.tensor;
  return state;
}

TEST(TorchvisionModels, InitialValues) {
  auto v3 = state_of(*build("mobilenet_v3_small", 10, {32, 32, 3}));
  // Normal, of variance 2 / fan_out, which PyTorch counts over all groups.
  EXPECT_NEAR(deviation(v3["features.12.0.weight"]), std::sqrt(2.0 / 576), 0.002);
  EXPECT_NEAR(deviation(v3["features.9.block.1.0.weight"]), std::sqrt(2.0 / (288 * 25)), 0.001);
  EXPECT_EQ(deviation(v3["features.4.block.2.fc1.bias"]), 0);
  EXPECT_NEAR(deviation(v3["classifier.0.weight"]), 0.01, 0.001);
  EXPECT_EQ(deviation(v3["classifier.3.bias"]), 0);
  EXPECT_EQ(v3["features.0.1.weight"].span<float>()[0], 1);
  // Uniform within 1 / sqrt(outputs).
  auto b0 = state_of(*build("efficientnet_b0", 4, {32, 32, 1}));
  EXPECT_NEAR(deviation(b0["classifier.1.weight"]), 0.5 / std::sqrt(3.0), 0.02);
  EXPECT_EQ(deviation(b0["classifier.1.bias"]), 0);
  EXPECT_EQ(b0["features.0.0.weight"].shape(), (Shape{32, 1, 3, 3}));
}

TEST(TorchvisionModels, OptionsAndPlaces) {
  const Registries& registries = builtin_registries();
  const auto text = [](const std::string& model) {
    return with(kSmallRecipe, "{type: mlp, hidden: [8]}", model);
  };
  EXPECT_EQ(recipe_rejection(text("{type: mobilenet_v2, dropout: 1}")),
            "r.yaml:4:38: expected a number from 0 to 0.99, got '1'");
  EXPECT_NE(recipe_rejection(text("{type: resnet19}")).find("did you mean 'resnet18'"),
            std::string::npos);
  EXPECT_NE(rejection([&] {
              const Recipe recipe =
                  parse_recipe(text("{type: resnet18}"), "r.yaml", {}, registries);
              Rng rng(1);
              build_model(recipe.model, {8}, 10, rng, registries.models);
            }).find("r.yaml:4:8: resnet18 expected an image"),
            std::string::npos);
}

}  // namespace
}  // namespace steelyard
