// Plans on the caller's arrays.
#include "steelyard/c/plan.h"

#include <stdexcept>
#include <vector>

#include "steelyard/c/context.h"

namespace steelyard::c {
namespace {

using kernels::QuantDescriptor;

constexpr const char* kDescriptorInit = "steelyard_plan_descriptor_init";
constexpr const char* kArraysInit = "steelyard_plan_arrays_init";

std::vector<std::int64_t> first_of(const std::int64_t (&values)[STEELYARD_MAX_RANK],
                                   std::int32_t rank) {
  if (rank < 0 || rank > STEELYARD_MAX_RANK) {
    throw std::invalid_argument("expected a rank from 0 to " + std::to_string(STEELYARD_MAX_RANK) +
                                ", got " + std::to_string(rank));
  }
  return {values, values + rank};
}

QuantDescriptor descriptor_from(const steelyard_plan_descriptor& given) {
  using namespace kernels;
  QuantDescriptor d;
  d.operation = enumerator(given.operation, QuantOperation::kFakeQuantize, "an operation");
  d.direction = enumerator(given.direction, QuantDirection::kBackward, "a direction");
  d.value_type = enumerator(given.value_type, ValueType::kBF16, "a value type");
  d.code_type = enumerator(given.code_type, CodeType::kU2, "a code type");
  d.range = {given.qmin, given.qmax};
  d.statistics = enumerator(given.statistics, Statistics::kDelayed, "statistics");
  d.symmetric = flag(given.symmetric, "symmetric");
  d.averaging_constant = given.averaging_constant;
  d.parameter_gradients = flag(given.parameter_gradients, "parameter_gradients");
  d.gradient_factor = given.gradient_factor;
  d.granularity = enumerator(given.granularity, Granularity::kBlock, "a granularity");
  d.options = {given.axis, given.group_size, given.block_rows, given.block_columns};
  d.shape = first_of(given.shape, given.rank);
  if (flag(given.strided, "strided")) d.strides = first_of(given.strides, given.rank);
  return d;
}

steelyard_plan_arrays arrays_from(const steelyard_plan_arrays* arrays) {
  return read_struct(arrays, "arrays", kArraysInit);
}

// Keeps a workspace apart from the arrays of its call.
void require_workspace(const steelyard_plan& plan, const void* workspace, std::size_t bytes,
                       const PlanArrays& arrays) {
  const std::size_t needed = plan.plan.workspace_bytes();
  if (workspace == nullptr || needed == 0)
    return;  // the plan itself refuses none where it needs one
  if (bytes < needed) {
    throw std::invalid_argument("expected a workspace of " + std::to_string(needed) +
                                " bytes, got " + std::to_string(bytes));
  }
  View view;
  view.data = static_cast<std::byte*>(const_cast<void*>(workspace));
  view.dtype = DType::kU8;
  view.shape = {static_cast<std::int64_t>(needed)};
  view.strides = {1};
  arrays.require_apart_from(view, "the workspace");
}

}  // namespace
}  // namespace steelyard::c

using namespace steelyard;

void steelyard_plan_descriptor_init(steelyard_plan_descriptor* descriptor, size_t struct_bytes) {
  const kernels::QuantDescriptor own;
  steelyard_plan_descriptor defaults{};
  defaults.operation = static_cast<int32_t>(own.operation);
  defaults.direction = static_cast<int32_t>(own.direction);
  defaults.value_type = static_cast<int32_t>(own.value_type);
  defaults.code_type = static_cast<int32_t>(own.code_type);
  defaults.qmin = own.range.qmin;
  defaults.qmax = own.range.qmax;
  defaults.averaging_constant = own.averaging_constant;
  defaults.gradient_factor = own.gradient_factor;
  defaults.axis = own.options.axis;
  defaults.device = {kDLCPU, 0};
  c::init_struct(descriptor, struct_bytes, defaults);
}

void steelyard_plan_arrays_init(steelyard_plan_arrays* arrays, size_t struct_bytes) {
  c::init_struct(arrays, struct_bytes, steelyard_plan_arrays{});
}

void steelyard_plan_info_init(steelyard_plan_info* info, size_t struct_bytes) {
  c::init_struct(info, struct_bytes, steelyard_plan_info{});
}

steelyard_status steelyard_plan_create(steelyard_context* context,
                                       const steelyard_plan_descriptor* descriptor,
                                       steelyard_plan** plan) {
  return c::call(context, __func__, [&] {
    c::required(plan, "plan") = nullptr;
    const auto given = c::read_struct(descriptor, "a descriptor", c::kDescriptorInit);
    const Device device = c::available_device_from(given.device, "descriptor");
    kernels::QuantPreference preference;
    if (given.workspace_limit_bytes > 0) {
      preference.workspace_limit_bytes = given.workspace_limit_bytes;
    }
    *plan = new steelyard_plan{
        kernels::QuantPlan::select(c::descriptor_from(given), device.kind, preference), device};
  });
}

void steelyard_plan_destroy(steelyard_plan* plan) { delete plan; }

steelyard_status steelyard_plan_get_info(steelyard_context* context, const steelyard_plan* plan,
                                         steelyard_plan_info* info) {
  return c::call(context, __func__, [&] {
    const kernels::QuantPlan& own = c::required(plan, "plan").plan;
    c::read_struct(info, "info", "steelyard_plan_info_init");
    steelyard_plan_info filled{};
    filled.elements = own.elements();
    filled.sets = own.num_parameter_sets();
    filled.code_bytes = kernels::packed_bytes(own.problem().code_type, own.elements());
    filled.mask_bytes = kernels::mask_bytes(own.elements());
    filled.workspace_bytes = own.workspace_bytes();
    filled.identity = own.identity().c_str();
    c::init_struct(info, info->struct_bytes, filled);
  });
}

steelyard_status steelyard_plan_check(steelyard_context* context, const steelyard_plan* plan,
                                      const steelyard_plan_arrays* arrays,
                                      int32_t check_parameters) {
  return c::call(context, __func__, [&] {
    const c::PlanArrays checked(c::required(plan, "plan"), c::arrays_from(arrays));
    const c::SelectedDevice selected(plan->device);
    const std::string problem =
        plan->plan.can_implement(checked.args(), c::flag(check_parameters, "check_parameters"));
    if (!problem.empty()) throw std::invalid_argument(problem);
  });
}

steelyard_status steelyard_plan_run(steelyard_context* context, const steelyard_plan* plan,
                                    void* stream, void* workspace, size_t workspace_bytes,
                                    const steelyard_plan_arrays* arrays) {
  return c::call(context, __func__, [&] {
    const c::PlanArrays checked(c::required(plan, "plan"), c::arrays_from(arrays));
    c::require_stream_of(plan->device, stream);
    c::require_workspace(*plan, workspace, workspace_bytes, checked);
    const c::SelectedDevice selected(plan->device);
    plan->plan.run(stream, workspace, checked.args());
  });
}

steelyard_status steelyard_plan_run_batch(steelyard_context* context, void* stream, size_t count,
                                          const steelyard_plan* const* plans,
                                          const steelyard_plan_arrays* const* arrays) {
  return c::call(context, __func__, [&] {
    if (count == 0) return;
    c::required(plans, "plans");
    c::required(arrays, "arrays");
    std::vector<c::PlanArrays> checked;
    std::vector<kernels::QuantBatchItem> items;
    for (size_t i = 0; i < count; ++i) {
      const std::string where = "item " + std::to_string(i);
      const steelyard_plan& plan = c::required(plans[i], (where + "'s plan").c_str());
      if (plan.device != plans[0]->device) {
        throw std::invalid_argument(where + ": expected a plan of " +
                                    device_name(plans[0]->device) + ", got one of " +
                                    device_name(plan.device));
      }
      checked.emplace_back(plan, c::arrays_from(arrays[i]));
      for (size_t before = 0; before < i; ++before) checked[i].require_apart(checked[before]);
      items.push_back({&plan.plan, checked[i].args()});
    }
    c::require_stream_of(plans[0]->device, stream);
    const c::SelectedDevice selected(plans[0]->device);
    kernels::run_batch(stream, items);
  });
}

steelyard_status steelyard_lsq_gradient_factor(steelyard_context* context, int64_t elements,
                                               int32_t qmin, int32_t qmax, int32_t symmetric,
                                               double* factor) {
  return c::call(context, __func__, [&] {
    c::required(factor, "factor") =
        kernels::lsq_gradient_factor(elements, {qmin, qmax}, c::flag(symmetric, "symmetric"));
  });
}
