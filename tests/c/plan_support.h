// A plan of a small tensor through the C face, and the same through the C++ one.
#pragma once

#include <memory>
#include <optional>

#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/c/c_support.h"

namespace steelyard::c_face {

using Plan = std::unique_ptr<steelyard_plan, Destroy>;

inline steelyard_plan_descriptor descriptor(std::vector<std::int64_t> shape) {
  steelyard_plan_descriptor d;
  steelyard_plan_descriptor_init(&d, sizeof d);
  d.rank = static_cast<std::int32_t>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) d.shape[i] = shape[i];
  return d;
}

// Symmetric s8 codes with a scale for each slice of the first axis.
inline steelyard_plan_descriptor of_channels(std::vector<std::int64_t> shape) {
  steelyard_plan_descriptor d = descriptor(std::move(shape));
  d.code_type = STEELYARD_S8;
  d.qmin = -127;
  d.qmax = 127;
  d.symmetric = 1;
  d.granularity = STEELYARD_PER_CHANNEL;
  d.axis = 0;
  return d;
}

inline Plan plan_of(const Context& context, const steelyard_plan_descriptor& d) {
  steelyard_plan* plan = nullptr;
  EXPECT_EQ(steelyard_plan_create(context, &d, &plan), STEELYARD_OK) << context.message();
  return Plan(plan);
}

inline steelyard_plan_arrays no_arrays() {
  steelyard_plan_arrays arrays;
  steelyard_plan_arrays_init(&arrays, sizeof arrays);
  return arrays;
}

}  // namespace steelyard::c_face
