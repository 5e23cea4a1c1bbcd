#include "steelyard/framework/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

namespace steelyard {
namespace {

void require(bool condition, const char* expected, double got) {
  if (condition) return;
  throw std::invalid_argument("[lr_schedule] expected " + std::string(expected) + ", got " +
                              std::to_string(got));
}

double cosine(const LrSchedule& s, std::int64_t step) {
  require(s.total_steps > s.warmup_steps, "total_steps above warmup_steps for a cosine",
          static_cast<double>(s.total_steps));
  const double part = static_cast<double>(step - s.warmup_steps) /
                      static_cast<double>(s.total_steps - s.warmup_steps);
  const double angle = std::numbers::pi * std::min(part, 1.0);
  return s.final_lr + (s.base_lr - s.final_lr) * 0.5 * (1.0 + std::cos(angle));
}

double stairs(const LrSchedule& s, std::int64_t step) {
  require(s.step_every_steps > 0, "step_every_steps above 0",
          static_cast<double>(s.step_every_steps));
  return s.base_lr * std::pow(s.gamma, static_cast<double>(step / s.step_every_steps));
}

}  // namespace

double learning_rate(const LrSchedule& s, std::int64_t step) {
  require(step >= 0, "a step of at least 0", static_cast<double>(step));
  require(s.warmup_steps >= 0, "warmup_steps of at least 0", static_cast<double>(s.warmup_steps));
  if (step < s.warmup_steps) {
    return s.base_lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  }
  switch (s.type) {
    case LrSchedule::Type::kConstant:
      return s.base_lr;
    case LrSchedule::Type::kStep:
      return stairs(s, step);
    case LrSchedule::Type::kCosine:
      return cosine(s, step);
  }
  throw std::invalid_argument("[lr_schedule] unknown type");
}

}  // namespace steelyard
