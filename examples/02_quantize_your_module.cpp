// Quantization-aware training of a module of one's own: prepare() swaps its children in their
// slots, and the forward below runs on integers without knowing it.

#include <fmt/core.h>

#include <memory>

#include "made_up_images.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/ops/relu.h"
#include "steelyard/framework/optimizer.h"
#include "steelyard/layers/conv2d.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/linear.h"
#include "steelyard/qat/prepare.h"

using namespace steelyard;

class BarNet : public Module {
 public:
  explicit BarNet(Rng& rng)
      : conv_(register_child("conv", std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 1,
                                                                            .out_channels = 8,
                                                                            .kernel_size = {3, 3},
                                                                            .stride = {2, 2},
                                                                            .padding = {1, 1}},
                                                              rng))),
        flatten_(register_child("flatten", std::make_shared<Flatten>())),
        fc_(register_child("fc",
                           std::make_shared<Linear>(
                               LinearOptions{.in_features = 8 * 6 * 6, .out_features = 4}, rng))) {}

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
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    loader.start(epoch);
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true};
      clear_gradients(model);
      cross_entropy(model.forward(Variable(batch->inputs), context), batch->targets).backward();
      optimizer.step(lr);
    }
  }
  return *evaluate(model, test, options.normalization, Loss{}, 64).top1;
}

int main() {
  const Dataset data = made_up_images(1024, 1);
  const Dataset test = made_up_images(512, 2);
  Rng rng(5);
  std::shared_ptr<Module> model = std::make_shared<BarNet>(rng);
  const double in_float = train(*model, data, test, 8, 0.05);

  qat::QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, qat::default_w8a8()});
  qat::PreparedModel prepared = qat::prepare(model, config);
  fmt::print("{}\n", qat::to_string(prepared.plan));
  const double quantized = train(*prepared.model, data, test, 3, 0.01);

  fmt::print("test top-1: float {:.2f} %, int8 {:.2f} %\n", in_float, quantized);
  return in_float > 95 && quantized > in_float - 1 ? 0 : 1;
}
