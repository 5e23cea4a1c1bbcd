// Re-estimation of batch-norm statistics after training.
#pragma once

#include <cstdint>
#include <functional>

#include "steelyard/framework/train/trainer.h"

namespace steelyard::qat {

// Replaces the running statistics of every batch norm in `model`, frozen or not, by the mean of
// those of `batches` >= 1 batches, as the model with its present weights, quantized or not, sees
// them in training: running averages lag behind weights that oscillate between two codes. Source:
// Nagel et al., "Overcoming Oscillations in Quantization-Aware Training", arXiv:2203.11086, 5.1.
// Ranges of activations stay; those of weights with a folded norm follow what is folded in, frozen
// or not. `inputs(i)` is batch i, `seed` that of dropout.
void reestimate_batch_norms(Module& model, std::int64_t batches,
                            const std::function<Tensor(std::int64_t)>& inputs, std::uint64_t seed);

// The number of batch norms that the model still has.
std::int64_t count_batch_norms(Module& model);

// Does so after the last step of a run of `epochs` epochs, before the model is evaluated and saved,
// on the first batches of an order that no epoch had.
class ReestimateCallback : public TrainerCallback {
 public:
  ReestimateCallback(Module& model, const Dataset& train, const LoaderOptions& loader_options,
                     std::int64_t epochs, std::int64_t batches);

  void on_steps_done(std::int64_t epoch) override;

 private:
  Module& model_;
  Dataset train_;
  LoaderOptions loader_options_;
  std::int64_t epochs_;
  std::int64_t batches_;
};

}  // namespace steelyard::qat
