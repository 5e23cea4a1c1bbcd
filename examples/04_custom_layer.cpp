// A layer of your own: written with operations that have gradients, registered for recipes, and
// trained.

#include <fmt/core.h>
#include <steelyard/steelyard.h>

#include "made_up_images.h"

using namespace steelyard;

struct ThresholdedReLUOptions {
  double threshold = 1;
};

// y = x for x > threshold, 0 otherwise.
class ThresholdedReLU : public Module {
 public:
  explicit ThresholdedReLU(const ThresholdedReLUOptions& options) : options_(options) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    return where(x > options_.threshold, x, 0.0);
  }
  std::string type_name() const override { return "ThresholdedReLU"; }

 private:
  ThresholdedReLUOptions options_;
};

constexpr const char* kRecipe = R"(
version: 1
name: custom-layer
data: {dataset: bars, batch_size: 64, validation: 0}
model:
  classes: 4
  layers:
    - {type: Conv2d, name: conv, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: ThresholdedReLU, threshold: 0.1}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.05}}
)";

int main() {
  Registries registries;
  registries.add_layer<ThresholdedReLUOptions>(
      "ThresholdedReLU", "zero up to a threshold",
      {key("threshold", "largest value that becomes 0", &ThresholdedReLUOptions::threshold)
           .by_default("1")
           .at_least(0)},
      [](const ThresholdedReLUOptions& options, const LayerSpec&, Rng&) {
        return make_module<ThresholdedReLU>(options);
      });
  const Recipe recipe = parse_recipe(kRecipe, "custom-layer.yaml", {}, registries);

  const Dataset train = made_up_images(1024, 1);
  const Dataset test = made_up_images(512, 2);
  Rng rng(static_cast<std::uint64_t>(recipe.seed));
  const auto model = build_model(recipe.model, {12, 12, 1}, train.classes, rng, registries.models);

  LoaderOptions options;
  options.batch_size = recipe.data.loader.batch_size;
  options.shuffle = true;
  options.normalization = compute_normalization(train);
  DataLoader loader(train, options);
  Sgd optimizer(*model, {.momentum = 0.9});
  for (std::int64_t epoch = 0; epoch < recipe.train.trainer.epochs; ++epoch) {
    loader.start(epoch);
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true};
      clear_gradients(*model);
      cross_entropy(model->forward(Variable(batch->inputs), context), batch->targets).backward();
      optimizer.step(recipe.train.trainer.lr_schedule.base_lr);
    }
  }
  const Metrics metrics = evaluate(*model, test, options.normalization, Loss{}, 64);
  fmt::print("test top-1 {:.2f} %\n", *metrics.top1);
  return *metrics.top1 > 95 ? 0 : 1;
}
