// Plans on the caller's arrays.
#include "steelyard/c/plan.h"

#include <stdexcept>
#include <vector>

#include "steelyard/c/context.h"
#include "steelyard/c/views.h"

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
  return {
      .spec = {.operation =
                   enumerator(given.operation, QuantOperation::kFakeQuantize, "an operation"),
               .direction = enumerator(given.direction, QuantDirection::kBackward, "a direction"),
               .value_type = enumerator(given.value_type, ValueType::kBF16, "a value type"),
               .code_type = enumerator(given.code_type, CodeType::kU2, "a code type"),
               .range = {given.qmin, given.qmax},
               .statistics = enumerator(given.statistics, Statistics::kDelayed, "statistics"),
               .symmetric = flag(given.symmetric, "symmetric"),
               .averaging_constant = given.averaging_constant,
               .parameter_gradients = flag(given.parameter_gradients, "parameter_gradients"),
               .gradient_factor = given.gradient_factor},
      .granularity = enumerator(given.granularity, Granularity::kBlock, "a granularity"),
      .options = {given.axis, given.group_size, given.block_rows, given.block_columns},
      .shape = first_of(given.shape, given.rank),
      .strides = flag(given.strided, "strided") ? first_of(given.strides, given.rank)
                                                : std::vector<std::int64_t>{}};
}

steelyard_plan_arrays arrays_from(const steelyard_plan_arrays* arrays) {
  return read_struct(arrays, "arrays", kArraysInit);
}

}  // namespace
}  // namespace steelyard::c

using namespace steelyard;

void steelyard_plan_descriptor_init(steelyard_plan_descriptor* descriptor, size_t struct_bytes) {
  const kernels::QuantDescriptor own;
  steelyard_plan_descriptor defaults{};
  defaults.operation = static_cast<int32_t>(own.spec.operation);
  defaults.direction = static_cast<int32_t>(own.spec.direction);
  defaults.value_type = static_cast<int32_t>(own.spec.value_type);
  defaults.code_type = static_cast<int32_t>(own.spec.code_type);
  defaults.qmin = own.spec.range.qmin;
  defaults.qmax = own.spec.range.qmax;
  defaults.averaging_constant = own.spec.averaging_constant;
  defaults.gradient_factor = own.spec.gradient_factor;
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
    const auto given = c::plan_arrays(c::required(plan, "plan"), c::arrays_from(arrays));
    const c::SelectedDevice selected(plan->device);
    const kernels::QuantStatus status =
        plan->plan.can_implement(given, c::flag(check_parameters, "check_parameters"));
    if (!status) throw std::invalid_argument(status.problem);
  });
}

steelyard_status steelyard_plan_run(steelyard_context* context, const steelyard_plan* plan,
                                    void* stream, void* workspace, size_t workspace_bytes,
                                    const steelyard_plan_arrays* arrays) {
  return c::call(context, __func__, [&] {
    const auto given = c::plan_arrays(c::required(plan, "plan"), c::arrays_from(arrays));
    c::require_stream_of(plan->device, stream);
    const c::SelectedDevice selected(plan->device);
    const std::size_t there = workspace == nullptr ? 0 : workspace_bytes;
    plan->plan.run(stream, {static_cast<std::byte*>(workspace), there}, given);
  });
}

steelyard_status steelyard_plan_run_batch(steelyard_context* context, void* stream, size_t count,
                                          const steelyard_plan* const* plans,
                                          const steelyard_plan_arrays* const* arrays) {
  return c::call(context, __func__, [&] {
    if (count == 0) return;
    c::required(plans, "plans");
    c::required(arrays, "arrays");
    std::vector<kernels::QuantBatchItem> items;
    for (size_t i = 0; i < count; ++i) {
      const std::string where = "item " + std::to_string(i);
      const steelyard_plan& plan = c::required(plans[i], (where + "'s plan").c_str());
      if (plan.device != plans[0]->device) {
        throw std::invalid_argument(where + ": expected a plan of " +
                                    device_name(plans[0]->device) + ", got one of " +
                                    device_name(plan.device));
      }
      items.push_back({&plan.plan, c::plan_arrays(plan, c::arrays_from(arrays[i]))});
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
