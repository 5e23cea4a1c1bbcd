// A training loop by hand: model, data, loss, backward, optimizer.

#include <fmt/core.h>
#include <steelyard/steelyard.h>

#include "made_up_images.h"

using namespace steelyard;

int main() {
  const Dataset train = made_up_images(1024, /*seed=*/1);
  const Dataset test = made_up_images(512, /*seed=*/2);

  Rng rng(/*seed=*/7);
  const auto model = sequential({{"conv", conv2d(1, 8, 3, rng, {.padding = {1, 1}})},
                                 {"bn", batch_norm2d(8)},
                                 {"relu", relu()},
                                 {"pool", max_pool2d(2)},
                                 {"flatten", flatten()},
                                 {"fc", linear(8 * 6 * 6, 4, rng)}});

  LoaderOptions options;
  options.batch_size = 64;
  options.shuffle = true;
  options.seed = 7;
  options.normalization = compute_normalization(train);
  DataLoader loader(train, options);
  Sgd optimizer(*model, {.momentum = 0.9, .nesterov = true});

  constexpr int kEpochs = 8;
  LrSchedule schedule{.type = LrSchedule::Type::kCosine, .base_lr = 0.05};
  schedule.total_steps = kEpochs * loader.batches_per_epoch();
  std::int64_t step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start(epoch);
    double loss_sum = 0;
    while (const auto batch = loader.next()) {
      ForwardContext context{.training = true, .rng = &rng};
      clear_gradients(*model);
      const Variable logits = model(Variable(batch->inputs), context);
      const Variable loss = cross_entropy(logits, batch->targets);
      loss.backward();
      optimizer.step(learning_rate(schedule, step++));
      loss_sum += loss.value().item();
    }
    fmt::print("epoch {}  loss {:.4f}\n", epoch + 1,
               loss_sum / static_cast<double>(loader.batches_per_epoch()));
  }
  const Metrics metrics = evaluate(*model, test, options.normalization, Loss{}, 64);
  fmt::print("test top-1 {:.2f} %\n", *metrics.top1);
  return *metrics.top1 > 95 ? 0 : 1;
}
