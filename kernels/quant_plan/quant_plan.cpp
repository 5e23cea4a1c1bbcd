#include "steelyard/kernels/quant_plan/quant_plan.h"

#include <cmath>
#include <stdexcept>

#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/quant_plan/cuda.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quant_plan/quant_names.h"
#include "steelyard/kernels/quant_plan/quant_sums.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument("[quant_plan] " + message);
}

std::string range_text(CodeRange range) {
  const std::int64_t ends[] = {range.qmin, range.qmax};
  return shape_text(ends);
}

// A range for which from_statistics() and learned scales would divide by 0.
std::string single_code_reason(CodeRange range) {
  if (range.qmin != range.qmax) return "";
  return ": one code tells no two values apart, and its scale (hi - lo) / (qmax - qmin) is "
         "undefined";
}

bool forward(const QuantDescriptor& d) { return d.direction == QuantDirection::kForward; }

void check_codes(const QuantDescriptor& d) {
  const CodeRange whole = whole_range(d.code_type);
  if (d.range.qmin < whole.qmin || d.range.qmax > whole.qmax || d.range.qmin >= d.range.qmax) {
    reject("expected qmin < qmax within " + range_text(whole) + " for " + name_of(d.code_type) +
           " codes, got " + range_text(d.range) + single_code_reason(d.range));
  }
  if (d.symmetric && !(d.range.qmin <= 0 && d.range.qmax > 0)) {
    reject("expected a symmetric range to hold 0 and a positive code, got " + range_text(d.range));
  }
}

void check_statistics(const QuantDescriptor& d) {
  if (d.statistics == Statistics::kGiven) return;
  const bool moving = d.statistics != Statistics::kDynamic;
  if (!forward(d) || d.operation == QuantOperation::kDequantize) {
    reject(std::string(name_of(d.statistics)) + " statistics belong to forward quantize and " +
           "fake-quantize: give the scale to the others");
  }
  if (moving && d.operation != QuantOperation::kFakeQuantize) {
    reject("a moving average belongs to fake-quantize; quantize takes given or dynamic statistics");
  }
  if (moving && !(d.averaging_constant > 0 && d.averaging_constant <= 1)) {
    reject("expected an averaging constant in (0, 1], got " + std::to_string(d.averaging_constant));
  }
}

void check_gradients(const QuantDescriptor& d) {
  if (!d.parameter_gradients) return;
  if (forward(d) || d.operation != QuantOperation::kFakeQuantize) {
    reject("gradients of scale and zero point belong to the backward of fake-quantize");
  }
  if (!std::isfinite(d.gradient_factor)) {
    reject("expected a finite gradient factor, got " + std::to_string(d.gradient_factor));
  }
}

QuantProblem resolve(const QuantDescriptor& d) {
  check_codes(d);
  check_statistics(d);
  check_gradients(d);
  return {d, make_set_map(d.shape, d.granularity, d.options), make_stride_map(d.shape, d.strides)};
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
  std::string name = name_of(d.operation);
  const auto append = [&name](const char* part) {
    name += '_';
    name += part;
  };
  append(forward(d) ? "forward" : "backward");
  if (d.parameter_gradients) append("lsq");
  if (d.statistics != Statistics::kGiven) append(name_of(d.statistics));
  append(name_of(d.granularity));
  append(name_of(d.value_type));
  append(name_of(d.code_type));
  if (!d.strides.empty()) append("strided");
  append(device == DeviceType::kCpu ? "cpu" : "cuda");
  return name;
}

// Checks the arrays of a call and keeps the first error.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(const std::string& identity) : identity_(identity) {}

  void present(const void* p, const char* name, std::int64_t alignment) {
    if (p == nullptr) {
      fail(std::string("needs ") + name + ", got null");
      return;
    }
    aligned(p, name, alignment);
  }
  void aligned(const void* p, const char* name, std::int64_t alignment) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    if (address % static_cast<std::uintptr_t>(alignment) != 0) {
      fail(std::string("expected ") + name + " aligned to " + std::to_string(alignment) +
           " bytes, got an address " +
           std::to_string(address % static_cast<std::uintptr_t>(alignment)) + " past one");
    }
  }
  // Codes are narrower than values: in place one thread would overwrite what another has to read.
  void apart(const void* codes, const void* values, const char* name) {
    if (codes == values) fail(std::string("expected codes apart from ") + name + ", got one array");
  }
  void absent(const void* p, const char* name, const char* why) {
    if (p != nullptr) fail(std::string("takes no ") + name + ": " + why);
  }
  void fail(const std::string& what) {
    if (message_.empty()) message_ = "[" + identity_ + "] " + what;
  }
  const std::string& message() const { return message_; }

 private:
  const std::string& identity_;
  std::string message_;
};

void check_forward(const QuantProblem& p, const QuantArgs& args, ArgumentCheck& check) {
  const std::int64_t value = value_bytes(p.value_type);
  const bool fake = p.operation == QuantOperation::kFakeQuantize;
  if (p.operation != QuantOperation::kDequantize) check.present(args.x, "x", value);
  if (p.operation != QuantOperation::kQuantize) check.present(args.y, "y", value);
  if (fake) {
    check.absent(args.codes, "codes", "quantize writes them");
  } else {
    check.present(args.codes, "codes", 1);
    const bool quantize = p.operation == QuantOperation::kQuantize;
    check.apart(args.codes, quantize ? args.x : args.y, quantize ? "x" : "y");
    check.absent(args.quantizing, "quantizing switch", "codes exist only where it is on");
  }
  if (p.operation == QuantOperation::kDequantize) {
    check.absent(args.mask, "mask", "dequantize has none");
  }
}

void check_backward(const QuantProblem& p, const QuantArgs& args, ArgumentCheck& check) {
  const std::int64_t value = value_bytes(p.value_type);
  check.present(args.grad_y, "grad_y", value);
  check.present(args.grad_x, "grad_x", value);
  if (p.operation == QuantOperation::kDequantize) return;
  if (args.x == nullptr && args.mask == nullptr) {
    check.fail("needs x (to see what was inside) or the mask of the forward, got neither");
  } else if (args.x != nullptr && args.mask != nullptr) {
    check.fail("takes x or the mask of the forward, got both");
  } else if (args.x != nullptr) {
    check.aligned(args.x, "x", value);
  } else if (p.parameter_gradients) {
    check.fail("needs x for the gradients of scale and zero point, got the mask");
  }
}

void check_parameters(const QuantProblem& p, const QuantArgs& args, ArgumentCheck& check) {
  const std::int64_t real = p.value_type == ValueType::kF64 ? 8 : 4;
  const bool from_mask = args.mask != nullptr && args.x == nullptr &&
                         p.direction == QuantDirection::kBackward &&
                         p.operation == QuantOperation::kFakeQuantize;
  if (!from_mask) check.present(args.scale, "scale", real);
  // A backward pass from the mask, or of dequantize, does not need the code of 0.
  const bool quantizes_again = p.direction == QuantDirection::kForward || args.x != nullptr;
  const bool chosen = p.statistics != Statistics::kGiven;
  if (chosen) {
    check.present(args.zero_point, "zero_point", 4);
  } else if (args.zero_point != nullptr) {
    check.aligned(args.zero_point, "zero_point", 4);
  } else if (quantizes_again && (p.range.qmin > 0 || p.range.qmax < 0)) {
    check.fail("needs zero_point: 0 is no code of " + range_text(p.range));
  }
  if (p.parameter_gradients) {
    check.present(args.grad_scale, "grad_scale", real);
    if (args.grad_zero_point != nullptr)
      check.aligned(args.grad_zero_point, "grad_zero_point", real);
  } else {
    check.absent(args.grad_scale, "grad_scale", "set parameter_gradients in the descriptor");
    check.absent(args.grad_zero_point, "grad_zero_point",
                 "set parameter_gradients in the descriptor");
  }
  if (p.statistics == Statistics::kCurrent || p.statistics == Statistics::kDelayed) {
    check.present(args.range_lo, "range_lo", real);
    check.present(args.range_hi, "range_hi", real);
    check.present(args.initialized, "initialized", 1);
  }
  if (args.non_finite_count != nullptr) {
    check.aligned(args.non_finite_count, "non_finite_count", 8);
  }
}

std::int64_t first_invalid(const QuantProblem& p, const QuantArgs& args, DeviceType device) {
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

std::string QuantPlan::can_implement(const QuantArgs& args, bool check_values) const {
  ArgumentCheck check(identity_);
  if (problem_.map.elements > 0) {
    if (problem_.direction == QuantDirection::kForward) {
      check_forward(problem_, args, check);
    } else {
      check_backward(problem_, args, check);
    }
  }
  if (problem_.map.sets > 0) check_parameters(problem_, args, check);
  if (!check.message().empty() || !check_values || args.scale == nullptr ||
      problem_.map.sets == 0) {
    return check.message();
  }
  const std::int64_t invalid = first_invalid(problem_, args, device_);
  if (invalid >= 0) {
    check.fail("expected every scale finite and > 0 and every zero point " +
               (descriptor_.symmetric ? std::string("0") : "within " + range_text(problem_.range)) +
               ", set " + std::to_string(invalid) + " is not");
  }
  return check.message();
}

QuantPrecision QuantPlan::precision() const {
  const bool wide = problem_.value_type == ValueType::kF64;
  return {wide ? ValueType::kF64 : ValueType::kF32,
          wide || problem_.parameter_gradients ? ValueType::kF64 : ValueType::kF32};
}

void QuantPlan::run(Stream stream, void* workspace, const QuantArgs& args) const {
  if (const std::string problem = can_implement(args); !problem.empty()) {
    throw std::invalid_argument(problem);
  }
  if (workspace == nullptr && workspace_bytes_ > 0) {
    throw std::invalid_argument("[" + identity_ + "] needs " + std::to_string(workspace_bytes_) +
                                " bytes of workspace, got null");
  }
  if (const auto past = reinterpret_cast<std::uintptr_t>(workspace) % 16;
      workspace_bytes_ > 0 && past != 0) {
    throw std::invalid_argument("[" + identity_ +
                                "] expected a workspace aligned to 16 bytes, got an address " +
                                std::to_string(past) + " past one");
  }
  if (problem_.map.sets == 0) return;  // no elements: arrays may be null
  if (kernel_watcher == nullptr) return launch(stream, workspace, args);
  const auto wait = [&] {
    if (device_ == DeviceType::kCuda) cuda_synchronize({.stream = stream});
  };
  wait();
  run_watched(*this, [&] {
    launch(stream, workspace, args);
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
    if (const std::string problem = plan.can_implement(items[i].args); !problem.empty()) {
      throw std::invalid_argument(where + problem);
    }
    calls.push_back({plan.problem(), items[i].args});
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
