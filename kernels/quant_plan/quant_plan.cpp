#include "steelyard/kernels/quant_plan/quant_plan.h"

#include <cmath>
#include <stdexcept>

#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/quant_plan/cuda.h"
#include "steelyard/kernels/quant_plan/quant_arguments.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quant_plan/quant_names.h"
#include "steelyard/kernels/quant_plan/quant_sums.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument("[quant_plan] " + message);
}

// A range for which from_statistics() and learned scales would divide by 0.
std::string single_code_reason(CodeRange range) {
  if (range.qmin != range.qmax) return "";
  return ": one code tells no two values apart, and its scale (hi - lo) / (qmax - qmin) is "
         "undefined";
}

bool forward(const QuantDescriptor& d) { return d.spec.direction == QuantDirection::kForward; }

void check_codes(const QuantDescriptor& d) {
  const CodeRange whole = whole_range(d.spec.code_type);
  if (d.spec.range.qmin < whole.qmin || d.spec.range.qmax > whole.qmax ||
      d.spec.range.qmin >= d.spec.range.qmax) {
    reject("expected qmin < qmax within " + range_text(whole) + " for " +
           name_of(d.spec.code_type) + " codes, got " + range_text(d.spec.range) +
           single_code_reason(d.spec.range));
  }
  if (d.spec.symmetric && !(d.spec.range.qmin <= 0 && d.spec.range.qmax > 0)) {
    reject("expected a symmetric range to hold 0 and a positive code, got " +
           range_text(d.spec.range));
  }
}

void check_statistics(const QuantDescriptor& d) {
  if (d.spec.statistics == Statistics::kGiven) return;
  const bool moving = d.spec.statistics != Statistics::kDynamic;
  if (!forward(d) || d.spec.operation == QuantOperation::kDequantize) {
    reject(std::string(name_of(d.spec.statistics)) + " statistics belong to forward quantize and " +
           "fake-quantize: give the scale to the others");
  }
  if (moving && d.spec.operation != QuantOperation::kFakeQuantize) {
    reject("a moving average belongs to fake-quantize; quantize takes given or dynamic statistics");
  }
  if (moving && !(d.spec.averaging_constant > 0 && d.spec.averaging_constant <= 1)) {
    reject("expected an averaging constant in (0, 1], got " +
           std::to_string(d.spec.averaging_constant));
  }
}

void check_gradients(const QuantDescriptor& d) {
  if (!d.spec.parameter_gradients) return;
  if (forward(d) || d.spec.operation != QuantOperation::kFakeQuantize) {
    reject("gradients of scale and zero point belong to the backward of fake-quantize");
  }
  if (!std::isfinite(d.spec.gradient_factor)) {
    reject("expected a finite gradient factor, got " + std::to_string(d.spec.gradient_factor));
  }
}

QuantProblem resolve(const QuantDescriptor& d) {
  check_codes(d);
  check_statistics(d);
  check_gradients(d);
  return {d.spec, make_set_map(d.shape, d.granularity, d.options),
          make_stride_map(d.shape, d.strides)};
}

std::size_t workspace_of(const QuantProblem& problem, DeviceType device) {
  if (problem.parameter_gradients) return parameter_gradient_workspace(problem);
  if (device == DeviceType::kCuda && problem.statistics != Statistics::kGiven) {
    return statistics_workspace(problem);
  }
  return 0;
}

// The parts joined by '_'.
std::string identity_of(const QuantDescriptor& d, DeviceType device) {
  std::string name = name_of(d.spec.operation);
  const auto append = [&name](const char* part) {
    name += '_';
    name += part;
  };
  append(forward(d) ? "forward" : "backward");
  if (d.spec.parameter_gradients) append("lsq");
  if (d.spec.statistics != Statistics::kGiven) append(name_of(d.spec.statistics));
  append(name_of(d.granularity));
  append(name_of(d.spec.value_type));
  append(name_of(d.spec.code_type));
  if (!d.strides.empty()) append("strided");
  append(device == DeviceType::kCpu ? "cpu" : "cuda");
  return name;
}

std::int64_t first_invalid(const QuantProblem& p, const QuantArgs& args, DeviceType device) {
  if (args.scale == nullptr || p.map.sets == 0) return -1;
  if (p.statistics == Statistics::kDynamic) return -1;  // the call writes them
  if (device == DeviceType::kCuda) return first_invalid_set_cuda(p, args);
  if (p.statistics != Statistics::kGiven && *args.initialized == 0) return -1;
  return p.value_type == ValueType::kF64
             ? first_invalid_set(p, static_cast<const double*>(args.scale), args.zero_point)
             : first_invalid_set(p, static_cast<const float*>(args.scale), args.zero_point);
}

template <class K>
void run_on(DeviceType device, Stream stream, const K& kernel) {
  device == DeviceType::kCuda ? run(CudaQueue{.stream = stream}, kernel) : run(kernel);
}

}  // namespace

QuantPlan QuantPlan::select(const QuantDescriptor& descriptor, DeviceType device,
                            const QuantPreference& preference) {
  QuantPlan plan;
  plan.descriptor_ = descriptor;
  plan.problem_ = resolve(descriptor);
  plan.device_ = device;
  if (device == DeviceType::kCuda) require_cuda();
  plan.workspace_bytes_ = workspace_of(plan.problem_, device);
  plan.identity_ = identity_of(descriptor, device);
  if (plan.workspace_bytes_ > preference.workspace_limit_bytes) {
    throw std::runtime_error(
        "[" + plan.identity_ + "] needs " + std::to_string(plan.workspace_bytes_) +
        " bytes of workspace, the limit is " + std::to_string(preference.workspace_limit_bytes));
  }
  return plan;
}

QuantStatus QuantPlan::can_implement(const QuantArrays& arrays, bool check_parameters) const {
  std::string problem = problem_with(problem_, arrays);
  if (problem.empty() && check_parameters) {
    if (const auto set = first_invalid(problem_, pointers_of(arrays), device_); set >= 0) {
      problem = "expected every scale finite and > 0 and every zero point " +
                (problem_.symmetric ? "0" : "within " + range_text(problem_.range)) + ", set " +
                std::to_string(set) + " is not";
    }
  }
  return {problem.empty() ? "" : "[" + identity_ + "] " + problem};
}

QuantPrecision QuantPlan::precision() const {
  const bool wide = problem_.value_type == ValueType::kF64;
  return {wide ? ValueType::kF64 : ValueType::kF32,
          wide || problem_.parameter_gradients ? ValueType::kF64 : ValueType::kF32};
}

void QuantPlan::require_workspace(std::span<std::byte> workspace, const QuantArrays& arrays) const {
  if (workspace_bytes_ == 0) return;
  const auto refuse = [&](const std::string& problem) {
    throw std::invalid_argument("[" + identity_ + "] " + problem);
  };
  if (workspace.size() < workspace_bytes_) {
    refuse("needs " + std::to_string(workspace_bytes_) + " bytes of workspace, got " +
           (workspace.data() == nullptr ? "null" : std::to_string(workspace.size())));
  }
  if (const auto past = reinterpret_cast<std::uintptr_t>(workspace.data()) % 16; past != 0) {
    refuse("expected a workspace aligned to 16 bytes, got an address " + std::to_string(past) +
           " past one");
  }
  if (const char* name = first_over(problem_, arrays, workspace.data(), workspace_bytes_)) {
    refuse(std::string("expected the workspace and ") + name + " apart; got memory that overlaps");
  }
}

void QuantPlan::run(Stream stream, std::span<std::byte> workspace,
                    const QuantArrays& arrays) const {
  if (const QuantStatus status = can_implement(arrays); !status) {
    throw std::invalid_argument(status.problem);
  }
  require_workspace(workspace, arrays);
  if (problem_.map.sets == 0) return;  // no elements: arrays may be null
  const QuantArgs args = pointers_of(arrays);
  if (kernel_watcher == nullptr) return launch(stream, workspace.data(), args);
  const auto wait = [&] {
    if (device_ == DeviceType::kCuda) cuda_synchronize({.stream = stream});
  };
  wait();
  run_watched(*this, [&] {
    launch(stream, workspace.data(), args);
    wait();
  });
}

void QuantPlan::launch(Stream stream, void* workspace, const QuantArgs& args) const {
  if (problem_.direction == QuantDirection::kForward) {
    if (problem_.statistics == Statistics::kGiven) {
      return run_on(device_, stream, QuantForward{problem_, args});
    }
    return run_on(device_, stream, QuantWithStatistics{problem_, args, workspace});
  }
  if (problem_.parameter_gradients) {
    return run_on(device_, stream, QuantParameterGradients{problem_, args, workspace});
  }
  run_on(device_, stream, QuantBackward{problem_, args});
}

void run_batch(Stream stream, const std::vector<QuantBatchItem>& items) {
  std::vector<QuantForward> calls;
  std::vector<CheckedCall> checked;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string where = "[quant_batch] item " + std::to_string(i) + ": ";
    if (items[i].plan == nullptr) throw std::invalid_argument(where + "expected a plan, got null");
    const QuantPlan& plan = *items[i].plan;
    if (plan.problem().direction != QuantDirection::kForward ||
        plan.problem().statistics != Statistics::kGiven) {
      throw std::invalid_argument(where + "expected a forward plan with given statistics, got " +
                                  plan.identity());
    }
    if (plan.device() != items[0].plan->device() ||
        plan.problem().value_type != items[0].plan->problem().value_type) {
      throw std::invalid_argument(where + "expected the device and value type of " +
                                  items[0].plan->identity() + ", got " + plan.identity());
    }
    const bool simple =
        plan.problem().strides.dense && (plan.problem().map.sets <= 1 || plan.elements() == 0 ||
                                         plan.problem().map.as_channels().channels > 0);
    if (plan.device() == DeviceType::kCuda && !simple) {
      throw std::invalid_argument(where + "expected dense values without ragged groups or blocks");
    }
    if (const QuantStatus status = plan.can_implement(items[i].arrays); !status) {
      throw std::invalid_argument(where + status.problem);
    }
    calls.push_back({plan.problem(), pointers_of(items[i].arrays)});
    checked.push_back({&plan.problem(), &items[i].arrays});
  }
  if (const std::string problem = problem_between(checked); !problem.empty()) {
    throw std::invalid_argument("[quant_batch] " + problem);
  }
  if (!calls.empty()) run_on(items[0].plan->device(), stream, QuantBatch{calls});
}

double lsq_gradient_factor(std::int64_t elements, CodeRange range, bool symmetric) {
  const double largest = symmetric ? range.qmax : range.qmax - range.qmin;
  if (elements <= 0 || largest <= 0) {
    throw std::invalid_argument("[lsq_gradient_factor] expected elements > 0 and Q > 0, got " +
                                std::to_string(elements) + " and the range " + range_text(range));
  }
  return 1.0 / std::sqrt(static_cast<double>(elements) * largest);
}

}  // namespace steelyard::kernels
