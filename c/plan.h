// A plan with its device, and the arrays of a call.
#pragma once

#include <initializer_list>
#include <vector>

#include "steelyard/c/steelyard_c_plans.h"
#include "steelyard/c/views.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

struct steelyard_plan {
  steelyard::kernels::QuantPlan plan;
  steelyard::Device device;
};

namespace steelyard::c {

// The caller's arrays, as a plan takes them.
class PlanArrays {
 public:
  // Throws std::invalid_argument, naming the array, for another dtype, length, shape, stride or
  // device than the plan's, and where one that is written shares memory with another. Which are
  // missing the plan itself says.
  PlanArrays(const steelyard_plan& plan, const steelyard_plan_arrays& arrays);

  const kernels::QuantArgs& args() const { return args_; }
  // Throw std::invalid_argument where one of both sides is written and they share memory.
  void require_apart_from(const View& other, const char* name) const;
  void require_apart(const PlanArrays& others) const;

 private:
  struct Array {
    const char* name;
    View view;
    bool written;
  };

  // The memory of a tensor that may be NULL, once it was checked.
  void* values(const DLTensor* tensor, const char* name, bool written);
  void* codes(const DLTensor* tensor, bool written);
  void* dense(const DLTensor* tensor, const char* name, std::initializer_list<DType> dtypes,
              std::int64_t length, bool written);
  void* keep(const char* name, View view, bool written);
  void require_apart() const;

  const steelyard_plan* plan_;
  std::vector<Array> arrays_;
  kernels::QuantArgs args_;
};

}  // namespace steelyard::c
