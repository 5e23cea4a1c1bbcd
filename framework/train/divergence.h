// Training that diverges: losses and gradients that are not finite or far too large.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/data_loader.h"

namespace steelyard {

// A loss, gradient or weight is no longer finite, or the loss of an epoch is beyond the divergence
// limit; the message names the step and the first bad tensor, or the limit. Nothing was saved.
class TrainingDiverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws TrainingDiverged for `step` (counted from 1) with the first tensor that is not finite:
// a parameter, the teacher's (null for none), the batch, a gradient. Waits for a GPU.
[[noreturn]] void throw_diverged(std::int64_t step, const std::string& what,
                                 const std::vector<NamedParameter>& parameters,
                                 const Module* teacher, const Batch& batch);

}  // namespace steelyard
