// A layer of one's own, with its own gradient, registered for recipes and trained.

#include <fmt/core.h>

#include <memory>

#include "made_up_images.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/optimizer.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"

using namespace steelyard;

// y = x for x > 0, slope * x otherwise.
class LeakyReluFunction : public Function {
 public:
  LeakyReluFunction(Tensor x, float slope) : slope_(slope) { save(std::move(x)); }
  std::string name() const override { return "leaky_relu"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    Tensor grad = Tensor::empty(grad_output.shape());
    const auto x = saved()[0].span<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      grad.span<float>()[i] = grad_output.span<float>()[i] * (x[i] > 0 ? 1.0F : slope_);
    }
    return {grad};
  }

 private:
  float slope_;
};

struct LeakyReLUOptions {
  double slope = 0.01;
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double slope) : slope_(static_cast<float>(slope)) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    Tensor y = x.value().clone();
    for (float& v : y.span<float>()) v = v > 0 ? v : slope_ * v;
    if (!should_record({x})) return Variable(y);
    return record(y, std::make_shared<LeakyReluFunction>(x.value(), slope_), {x});
  }
  std::string type_name() const override { return "LeakyReLU"; }

 private:
  float slope_;
};

constexpr const char* kRecipe = R"(
version: 1
name: custom-layer
data: {dataset: bars, batch_size: 64, validation: 0}
model:
  classes: 4
  layers:
    - {type: Conv2d, name: conv, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: LeakyReLU, slope: 0.1}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.05}}
)";

int main() {
  ModelRegistry registry = builtin_models();
  registry.add_layer<LeakyReLUOptions>(
      "LeakyReLU", "ReLU with a slope below zero",
      {key("slope", "slope below zero", &LeakyReLUOptions::slope).by_default("0.01").at_least(0)},
      [](LeakyReLUOptions options, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<LeakyReLU>(options.slope);
      });
  const Recipe recipe = parse_recipe(kRecipe, "custom-layer.yaml", {}, registry);

  const Dataset train = made_up_images(1024, 1);
  const Dataset test = made_up_images(512, 2);
  Rng rng(static_cast<std::uint64_t>(recipe.seed));
  const auto model = build_model(recipe.model, {12, 12, 1}, train.classes, rng, registry);

  LoaderOptions options;
  options.batch_size = recipe.data.loader.batch_size;
  options.shuffle = true;
  options.normalization = compute_normalization(train);
  DataLoader loader(train, options);
  Sgd optimizer(model->named_parameters(), {.momentum = 0.9});
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
