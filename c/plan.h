// A plan with its device, and the arrays of a call.
#pragma once

#include "steelyard/c/steelyard_c_plans.h"
#include "steelyard/framework/tensor/device.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

struct steelyard_plan {
  steelyard::kernels::QuantPlan plan;
  steelyard::Device device;
};

namespace steelyard::c {

// The caller's arrays, as a plan takes them. Throws std::invalid_argument, naming the array, for
// another shape, stride or device than the plan's. Types, lengths, what is missing and what
// overlaps the plan itself says.
kernels::QuantArrays plan_arrays(const steelyard_plan& plan, const steelyard_plan_arrays& given);

}  // namespace steelyard::c
