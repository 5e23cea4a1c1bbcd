// A training loop by hand: model, data, loss, backward, optimizer.

#include <fmt/core.h>

#include <memory>

#include "made_up_images.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/lr_schedule.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/optimizer.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/batch_norm2d.h"
#include "steelyard/layers/conv2d.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/linear.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/sequential.h"

using namespace steelyard;

int main() {
  const Dataset train = made_up_images(1024, /*seed=*/1);
  const Dataset test = made_up_images(512, /*seed=*/2);

  Rng rng(/*seed=*/7);
  Sequential model(Sequential::NamedChildren{
      {"conv",
       std::make_shared<Conv2d>(
           Conv2dOptions{
               .in_channels = 1, .out_channels = 8, .kernel_size = {3, 3}, .padding = {1, 1}},
           rng)},
      {"bn", std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 8})},
      {"relu", std::make_shared<ReLU>()},
      {"pool", std::make_shared<MaxPool2d>(Pool2dGeometry{})},
      {"flatten", std::make_shared<Flatten>()},
      {"fc",
       std::make_shared<Linear>(LinearOptions{.in_features = 8 * 6 * 6, .out_features = 4}, rng)},
  });

  LoaderOptions options;
  options.batch_size = 64;
  options.shuffle = true;
  options.seed = 7;
  options.normalization = compute_normalization(train);
  DataLoader loader(train, options);
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9, .nesterov = true});

  constexpr int kEpochs = 8;
  LrSchedule schedule{.type = LrSchedule::Type::kCosine, .base_lr = 0.05};
  schedule.total_steps = kEpochs * loader.batches_per_epoch();
  std::int64_t step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start(epoch);
    double loss_sum = 0;
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true, .rng = &rng};
      clear_gradients(model);
      const Variable logits = model.forward(Variable(batch->inputs), context);
      const Variable loss = cross_entropy(logits, batch->targets);
      loss.backward();
      optimizer.step(learning_rate(schedule, step++));
      loss_sum += loss.value().item();
    }
    fmt::print("epoch {}  loss {:.4f}\n", epoch + 1,
               loss_sum / static_cast<double>(loader.batches_per_epoch()));
  }
  const Metrics metrics = evaluate(model, test, options.normalization, Loss{}, 64);
  fmt::print("test top-1 {:.2f} %\n", *metrics.top1);
  return *metrics.top1 > 95 ? 0 : 1;
}
