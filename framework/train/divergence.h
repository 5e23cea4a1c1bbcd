// Training that diverges: losses and gradients that are not finite or far too large.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

// A module whose output is not finite.
struct NonFiniteOutput {
  std::string module;    // its path
  std::int64_t row = 0;  // the first such of the output's first dimension
};

// Runs `pass` without recording; of the modules that it calls, the first, in the order in which
// they are done, whose output is not finite. What it throws is dropped. Waits for a GPU.
std::optional<NonFiniteOutput> first_non_finite_output(const std::function<void()>& pass);

// Throws TrainingDiverged for `step` (counted from 1) with the first tensor that is not finite:
// a parameter, the teacher's (null for none), the batch, a module's output in `pass`, which repeats
// the step's forward pass, a gradient. Waits for a GPU.
[[noreturn]] void throw_diverged(std::int64_t step, const std::string& what,
                                 const std::vector<NamedParameter>& parameters,
                                 const Module* teacher, const Batch& batch,
                                 const std::function<void()>& pass);

}  // namespace steelyard
