// An estimate of the memory that a training run needs.
#pragma once

#include <cstdint>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// Bytes that the process holds at the peak of training, by kind. Steps of small batches are
// measured and scaled; what a library keeps for large batches only is not seen.
struct MemoryEstimate {
  // On the host, wherever the model is.
  std::int64_t program_bytes = 0;  // code, libraries and their caches, as this process has them
  std::int64_t dataset_bytes = 0;
  std::int64_t batches_bytes = 0;  // made ahead of training

  // Where the model is.
  std::int64_t staged_batches_bytes = 0;  // copies of batches on a GPU
  std::int64_t parameters_bytes = 0;
  std::int64_t gradients_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t teacher_bytes = 0;
  std::int64_t averages_bytes = 0;           // of the weights
  std::int64_t oscillations_bytes = 0;       // what is known of each weight's code
  std::int64_t saved_activations_bytes = 0;  // kept for backward, one full batch
  // Temporary tensors of a step, and the blocks that the caching allocator keeps for the last,
  // smaller batches of training, validation and test.
  std::int64_t temporaries_bytes = 0;

  std::int64_t host_bytes() const { return program_bytes + dataset_bytes + batches_bytes; }
  std::int64_t model_bytes() const {
    return staged_batches_bytes + parameters_bytes + gradients_bytes + optimizer_bytes +
           teacher_bytes + averages_bytes + oscillations_bytes + saved_activations_bytes +
           temporaries_bytes;
  }
};

// Moves the experiment to the device and runs forward and backward passes: use one that is not
// trained afterwards.
MemoryEstimate estimate_memory(Experiment& experiment, Device device);

}  // namespace steelyard
