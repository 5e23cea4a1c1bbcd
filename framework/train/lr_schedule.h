// Learning rates as a function of the step.
#pragma once

#include <cstdint>

namespace steelyard {

// Plain data; steps are optimizer steps, counted from 0.
struct LrSchedule {
  enum class Type { kConstant, kStep, kCosine };
  Type type = Type::kConstant;
  double base_lr = 0.1;
  // The first steps rise linearly: base_lr * (step + 1) / warmup_steps.
  std::int64_t warmup_steps = 0;
  // Cosine: where the curve ends; later steps keep final_lr.
  std::int64_t total_steps = 0;
  double final_lr = 0.0;
  // Step: base_lr * gamma^(step / step_every_steps), counted from step 0, warm-up included.
  std::int64_t step_every_steps = 0;
  double gamma = 0.1;
};

// The learning rate of `step`. The cosine falls from base_lr (at the end of the warm-up) to
// final_lr (at total_steps): Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts. Throws
// std::invalid_argument on a negative step or a schedule that lacks what its type needs.
double learning_rate(const LrSchedule& schedule, std::int64_t step);

}  // namespace steelyard
