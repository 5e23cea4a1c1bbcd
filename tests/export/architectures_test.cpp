// torchvision's architectures: quantized and trained a step, they deploy what they compute.
#include <gtest/gtest.h>

#include "steelyard/export/trace.h"
#include "steelyard/export/verify.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"
#include "tests/export/export_support.h"

namespace steelyard {
namespace {

using testing::random_tensor;

class Architectures : public ::testing::TestWithParam<const char*> {};

TEST_P(Architectures, DeployWhatTheyTrain) {
  const Registries& registries = builtin_registries();
  const Recipe recipe = parse_recipe(
      "version: 1\nname: r\ndata: {dataset: none}\nmodel: {type: " + std::string(GetParam()) +
          "}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 1}}\n",
      "r", {}, registries);
  Rng rng(1);
  const Shape sample{32, 32, 3};
  qat::PreparedModel prepared =
      qat::prepare(build_model(recipe.model, sample, 5, rng, registries.models), testing::w8a8());
  for (const qat::PlanRow& row : prepared.plan.rows) {
    EXPECT_NE(row.quantized, "float") << row.module << " " << row.tensor << ": " << row.note;
  }
  Module& model = *prepared.model;
  const auto images = [&](std::int64_t count, std::uint64_t seed) {
    return random_tensor({count, 32, 32, 3}, seed, DType::kF32);
  };
  ForwardContext training{.training = true, .rng = &rng};
  Sgd optimizer(model.named_parameters(), {});
  const Variable logits = model.forward(Variable(images(4, 2)), training);
  cross_entropy(logits, Tensor::from<std::int64_t>({0, 1, 2, 3}, {4})).backward();
  optimizer.step(1e-3);
  model.forward(Variable(images(4, 3)), training);
  const deploy::Graph graph = deploy::trace(model, images(1, 1), "net").graph;
  const Dataset data{images(4, 4), Tensor::zeros({4}, DType::kI64), 5};
  const deploy::Verification result =
      deploy::verify(model, deploy::Interpreter(graph, deploy::Engine::kFast), data, 4, 4);
  EXPECT_EQ(result.first_mismatch(), nullptr) << to_string(result);
  EXPECT_GT(result.values.size(), 25U);
}

INSTANTIATE_TEST_SUITE_P(Models, Architectures,
                         ::testing::Values("resnet18", "mobilenet_v2", "mobilenet_v3_small",
                                           "efficientnet_b0"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace steelyard
