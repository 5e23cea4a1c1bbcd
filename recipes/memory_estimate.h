// How much memory a training run will need.
#pragma once

#include <cstdint>

#include "recipes/experiment.h"

namespace steelyard {

// Bytes that the process holds at the peak of training, by kind. Steps of small batches are
// measured and scaled; what a library keeps for large batches only is not seen.
struct MemoryEstimate {
  std::int64_t program_bytes = 0;  // code, libraries and their caches, as this process has them
  std::int64_t dataset_bytes = 0;
  std::int64_t parameters_bytes = 0;
  std::int64_t gradients_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t teacher_bytes = 0;
  std::int64_t averages_bytes = 0;           // of the weights
  std::int64_t oscillations_bytes = 0;       // what is known of each weight's code
  std::int64_t batches_bytes = 0;            // made ahead of training
  std::int64_t saved_activations_bytes = 0;  // kept for backward, one full batch
  // What else a step takes, and the blocks that the caching allocator keeps for the last, smaller
  // batches of training, validation and test.
  std::int64_t temporaries_bytes = 0;

  std::int64_t total_bytes() const {
    return program_bytes + dataset_bytes + parameters_bytes + gradients_bytes + optimizer_bytes +
           teacher_bytes + averages_bytes + oscillations_bytes + batches_bytes +
           saved_activations_bytes + temporaries_bytes;
  }
};

// Runs forward and backward passes: use an experiment that is not trained afterwards.
MemoryEstimate estimate_memory(Experiment& experiment);

}  // namespace steelyard
