// Quantization-aware training of a module of your own. prepare() replaces its children by quantized
// ones, and the forward() below then runs on integers without any change.

#include <fmt/core.h>
#include <steelyard/steelyard.h>

#include <iostream>

#include "made_up_images.h"

using namespace steelyard;

class BarNet : public Module {
 public:
  explicit BarNet(Rng& rng)
      : conv_(register_child("conv", conv2d(1, 8, 3, rng, {.stride = {2, 2}, .padding = {1, 1}}))),
        flatten_(register_child("flatten", flatten())),
        fc_(register_child("fc", linear(8 * 6 * 6, 4, rng))) {}

  Variable forward(const Variable& x, ForwardContext& context) override {
    return fc_(flatten_(relu(conv_(x, context)), context), context);
  }
  std::string type_name() const override { return "BarNet"; }

 private:
  Slot& conv_;
  Slot& flatten_;
  Slot& fc_;
};

// A few epochs; returns the accuracy on `test`.
double train(Module& model, const Dataset& data, const Dataset& test, int epochs, double lr) {
  LoaderOptions options;
  options.batch_size = 64;
  options.shuffle = true;
  options.normalization = compute_normalization(data);
  DataLoader loader(data, options);
  Sgd optimizer(model, {.momentum = 0.9});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    loader.start(epoch);
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true};
      clear_gradients(model);
      cross_entropy(model(Variable(batch->inputs), context), batch->targets).backward();
      optimizer.step(lr);
    }
  }
  return *evaluate(model, test, options.normalization, Loss{}, 64).top1;
}

int main() {
  const Dataset data = made_up_images(1024, 1);
  const Dataset test = made_up_images(512, 2);
  Rng rng(5);
  const auto model = make_module<BarNet>(rng);
  const double in_float = train(*model, data, test, 8, 0.05);

  const auto [integer, plan] = prepare(model, w8a8({"Conv2d", "Linear"}));
  std::cout << plan << "\n";
  const double quantized = train(*integer, data, test, 3, 0.01);

  fmt::print("test top-1: float {:.2f} %, int8 {:.2f} %\n", in_float, quantized);
  return in_float > 95 && quantized > in_float - 1 ? 0 : 1;
}
