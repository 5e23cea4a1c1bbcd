#include "steelyard/framework/autograd/autograd.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "steelyard/framework/autograd/backward.h"
#include "steelyard/framework/autograd/fault_check.h"
#include "steelyard/framework/autograd/step_profile.h"
#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

thread_local bool recording_enabled = true;

// The sum of two gradients: of two in bf16 it is in bf16, too, rounded once; of two dtypes in f32.
Tensor add_tensors(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return add_tensors(a.to(DType::kF32), b.to(DType::kF32));
  Tensor sum = Tensor::empty(a.shape(), a.dtype(), a.device());
  if (a.dtype() == DType::kBF16) {
    using kernels::BFloat16;
    run(a.device(), kernels::AddRounded{.n = a.size(),
                                        .a = static_cast<const BFloat16*>(a.raw()),
                                        .b = static_cast<const BFloat16*>(b.raw()),
                                        .y = static_cast<BFloat16*>(sum.raw())});
    return sum;
  }
  visit_floating(a.dtype(), "backward", [&](auto zero) {
    using T = decltype(zero);
    run(a.device(),
        kernels::Add<T>{.n = a.size(), .a = a.data<T>(), .b = b.data<T>(), .y = sum.data<T>()});
  });
  return sum;
}

void require_gradient_fits(const Function& function, const GradNode& input, const Tensor& grad) {
  const bool is_rounded = input.dtype == DType::kF32 && grad.dtype() == DType::kBF16;
  if (grad.shape() != input.shape || (grad.dtype() != input.dtype && !is_rounded)) {
    throw std::logic_error("[" + function.name() + "] backward gave a gradient of shape " +
                           shape_string(grad.shape()) + " " +
                           std::string(dtype_name(grad.dtype())) + " for an input of shape " +
                           shape_string(input.shape) + " " + std::string(dtype_name(input.dtype)));
  }
}

// A few bytes of a tensor on the CPU, mixed: four words from its first to its last; all of a tensor
// of up to four words. Reading more would cost time in every step.
std::uint64_t sample_of(const Tensor& tensor) {
  constexpr std::size_t kWord = sizeof(std::uint64_t), kWords = 4;
  const auto bytes = static_cast<std::size_t>(tensor.bytes());
  if (bytes == 0 || tensor.device().kind != Device::Kind::kCpu) return 0;
  const auto* from = static_cast<const std::byte*>(tensor.raw());
  std::array<std::uint64_t, kWords> words{};
  if (bytes <= sizeof words) {
    std::memcpy(words.data(), from, bytes);
  } else {
    for (std::size_t i = 0; i < kWords; ++i) {
      std::memcpy(&words[i], from + (bytes - kWord) / (kWords - 1) * i, kWord);
    }
    std::memcpy(&words.back(), from + bytes - kWord, kWord);
  }
  std::uint64_t sample = bytes;
  for (const std::uint64_t word : words) sample = (sample ^ word) * 0x9E3779B97F4A7C15U;
  return sample;
}

// Says when the last operation that a leaf enters has given it its gradient.
class LeafUses {
 public:
  LeafUses(const std::vector<std::shared_ptr<Function>>& tape, const LeafReady& ready)
      : ready_(ready) {
    if (!ready_) return;
    for (const auto& function : tape) {
      for (const auto& input : function->inputs()) {
        if (!input->producer && input->requires_grad) ++left_[input.get()];
      }
    }
  }
  void done(const Function& function) {
    if (!ready_) return;
    for (const auto& input : function.inputs()) {
      const auto found = left_.find(input.get());
      if (found != left_.end() && --found->second == 0) ready_(*input);
    }
  }

 private:
  const LeafReady& ready_;
  std::unordered_map<const GradNode*, std::int64_t> left_;
};

// The gradients of leaves, which become again what they were before unless the new ones are kept.
class LeafGradients {
 public:
  LeafGradients() = default;
  LeafGradients(const LeafGradients&) = delete;
  LeafGradients& operator=(const LeafGradients&) = delete;
  ~LeafGradients() {
    for (auto& [leaf, grad] : before_) leaf->grad = std::move(grad);
  }
  Tensor& of(GradNode& leaf) {
    before_.try_emplace(&leaf, leaf.grad);
    return leaf.grad;
  }
  void keep() { before_.clear(); }

 private:
  std::unordered_map<GradNode*, Tensor> before_;
};

// The fault checks of the nodes on the tape, each once.
std::vector<std::shared_ptr<FaultCheck>> checks_of(
    const std::vector<std::shared_ptr<Function>>& tape, const GradNode& output) {
  std::vector<std::shared_ptr<FaultCheck>> checks;
  const auto add = [&](const std::shared_ptr<FaultCheck>& check) {
    if (check && std::find(checks.begin(), checks.end(), check) == checks.end()) {
      checks.push_back(check);
    }
  };
  for (const auto& function : tape) {
    for (const auto& input : function->inputs()) add(input->check);
  }
  add(output.check);
  return checks;
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : impl_(std::make_shared<Impl>()) {
  impl_->node = std::make_shared<GradNode>();
  set_value(std::move(value));
  set_requires_grad(requires_grad);
}

Variable Variable::deferred(Shape shape, DType dtype, std::function<Tensor()> compute,
                            std::shared_ptr<const Companion> companion) {
  Variable variable;
  variable.impl_ = std::make_shared<Impl>();
  variable.impl_->node = std::make_shared<GradNode>();
  variable.impl_->node->shape = std::move(shape);
  variable.impl_->node->dtype = dtype;
  variable.impl_->compute = std::move(compute);
  variable.impl_->companion = std::move(companion);
  return variable;
}

void Variable::throw_undefined(const char* caller) {
  throw std::invalid_argument(
      std::string("[variable] expected a value, got an undefined variable: ") + caller + "()");
}

const Tensor& Variable::value() const {
  if (!impl_) throw_undefined("value");
  if (impl_->compute) {
    Tensor value = impl_->compute();
    if (!value.defined() || value.shape() != impl_->node->shape) {
      throw std::logic_error(
          "[variable] expected a deferred value of shape " + shape_string(impl_->node->shape) +
          ", got " + (value.defined() ? shape_string(value.shape()) : "an undefined tensor"));
    }
    impl_->value = std::move(value);
    impl_->computed_version = impl_->value.version();
    impl_->compute = nullptr;
  }
  return impl_->value;
}

void Variable::require_unchanged() const {
  if (!impl_->value.defined() || impl_->value.version() == impl_->computed_version) return;
  throw std::logic_error(
      "[variable] a value " + shape_string(impl_->node->shape) +
      " was changed in place after it was computed, but not the codes that layers read of it: "
      "expected a new variable of the changed value");
}

void Variable::set_value(Tensor value) {
  if (node("set_value")->producer) {
    throw std::logic_error("[variable] set_value on a computed variable");
  }
  if (!value.defined()) {
    throw std::invalid_argument("[variable] expected a tensor, got an undefined one");
  }
  if (impl_->node->requires_grad && !is_floating(value.dtype())) {
    throw_not_floating("set_value where gradients are wanted", value.dtype());
  }
  if (const Tensor& grad = impl_->node->grad;
      grad.defined() && (grad.shape() != value.shape() || grad.dtype() != value.dtype())) {
    impl_->node->grad = Tensor();
  }
  impl_->node->shape = value.shape();
  impl_->node->dtype = value.dtype();
  impl_->value = std::move(value);
  impl_->compute = nullptr;
  impl_->companion = nullptr;
}

void Variable::set_grad(Tensor grad) {
  GradNode& own = *node("set_grad");
  if (grad.defined() && (grad.shape() != own.shape || grad.dtype() != own.dtype)) {
    throw std::invalid_argument("[variable] expected a gradient " + shape_string(own.shape) +
                                " of " + std::string(dtype_name(own.dtype)) + ", got " +
                                shape_string(grad.shape()) + " of " +
                                std::string(dtype_name(grad.dtype())));
  }
  own.grad = std::move(grad);
}

std::int64_t Variable::dim(std::int64_t i) const {
  const Shape& s = shape();
  const std::int64_t rank = static_cast<std::int64_t>(s.size());
  const std::int64_t axis = i < 0 ? i + rank : i;
  if (axis < 0 || axis >= rank) {
    throw std::out_of_range("[variable] dimension " + std::to_string(i) + " of " + shape_string(s));
  }
  return s[static_cast<std::size_t>(axis)];
}

void Variable::set_requires_grad(bool requires_grad) {
  if (node("set_requires_grad")->producer) {
    throw std::logic_error("[variable] set_requires_grad on a computed variable");
  }
  if (requires_grad && !is_floating(dtype())) throw_not_floating("requires_grad", dtype());
  impl_->node->requires_grad = requires_grad;
}

void Variable::backward() const {
  if (shape_size(node("backward")->shape) != 1) {
    throw std::invalid_argument("[backward] needs one element or an explicit gradient");
  }
  backward(Tensor::full(shape(), 1.0, dtype(), value().device()));
}

void Variable::backward(const Tensor& grad_output) const {
  if (!impl_) throw_undefined("backward");
  steelyard::backward(*this, grad_output, {});
}

void backward(const Variable& output, const Tensor& grad_output, const LeafReady& ready) {
  if (!output.requires_grad()) {
    throw std::invalid_argument("[backward] nothing on this tape requires a gradient");
  }
  if (!grad_output.defined() || grad_output.shape() != output.shape() ||
      grad_output.dtype() != output.dtype()) {
    const auto text = [](DType dtype, const Shape& shape) {
      return std::string(dtype_name(dtype)) + " " + shape_string(shape);
    };
    throw std::invalid_argument(
        "[backward] expected a gradient " + text(output.dtype(), output.shape()) + ", got " +
        (grad_output.defined() ? text(grad_output.dtype(), grad_output.shape())
                               : "an undefined tensor"));
  }
  // Gradients of intermediate values live here, each until its producer has consumed it. The first
  // one may alias what a function returned.
  std::unordered_map<const GradNode*, Tensor> pending;
  LeafGradients leaves;
  const auto accumulate = [&](GradNode& node, const Tensor& grad) {
    Tensor& sum = node.producer ? pending[&node] : leaves.of(node);
    if (sum.defined()) {
      sum = add_tensors(sum, grad);
    } else {
      // A parameter's gradient may be changed in place: it is taken where nobody else has it.
      sum = node.producer || grad.is_sole_handle() ? grad : grad.clone();
    }
  };
  GradNode& last = *output.node();
  accumulate(last, last.producer ? grad_output : grad_output.clone());
  if (!last.producer) {
    leaves.keep();
    if (ready) ready(last);
    return;
  }

  const auto tape = tape_of(output);
  for (const auto& function : tape) function->require_unchanged();  // before any gradient is added
  const auto checks = checks_of(tape, last);
  LeafUses uses(tape, ready);
  std::unordered_map<const Function*, const GradNode*> output_of;
  for (const auto& function : tape) {
    for (const auto& input : function->inputs()) {
      if (input->producer) output_of[input->producer.get()] = input.get();
    }
  }
  output_of[last.producer.get()] = &last;

  for (auto it = tape.rbegin(); it != tape.rend(); ++it) {
    const Function& function = **it;
    auto found = pending.find(output_of.at(&function));
    if (found == pending.end()) {
      uses.done(function);
      continue;
    }
    const ProfiledBackward profiled(function);
    Tensor grad = std::move(found->second);
    pending.erase(found);
    if (grad.dtype() == DType::kBF16 && !function.takes_bf16_gradients()) {
      grad = grad.to(output_of.at(&function)->dtype);
    }
    std::vector<Tensor> grads = function.backward(grad);
    if (grads.size() != function.inputs().size()) {
      throw std::logic_error("[" + function.name() + "] backward gave " +
                             std::to_string(grads.size()) + " gradients for " +
                             std::to_string(function.inputs().size()) + " inputs");
    }
    for (std::size_t i = 0; i < grads.size(); ++i) {
      GradNode& input = *function.inputs()[i];
      if (!input.requires_grad || !grads[i].defined()) continue;
      require_gradient_fits(function, input, grads[i]);
      if (!input.producer && grads[i].dtype() != input.dtype) grads[i] = grads[i].to(input.dtype);
      accumulate(input, grads[i]);
    }
    grads.clear();  // a leaf's gradient may now be its only handle
    uses.done(function);
  }
  leaves.keep();
  for (const auto& check : checks) check->after_backward();
}

// Releases the tape before this function one by one: default destructors would recurse once per
// recorded operation and exhaust the call stack of a long tape.
Function::~Function() {
  std::vector<std::shared_ptr<GradNode>> pending = std::move(inputs_);
  while (!pending.empty()) {
    const std::shared_ptr<GradNode> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() != 1 || !node->producer || node->producer.use_count() != 1) continue;
    for (auto& input : node->producer->inputs_) pending.push_back(std::move(input));
    node->producer->inputs_.clear();
  }
}

void Function::set_inputs(const std::vector<Variable>& inputs) {
  recorded_.reserve(saved_.size());
  for (const Tensor& tensor : saved_) recorded_.push_back({tensor.version(), sample_of(tensor)});
  for (const Variable& input : inputs) {
    if (!input.defined()) continue;
    const Tensor& value = input.impl_->value;  // undefined while nobody asked for it
    for (std::size_t i = 0; i < saved_.size() && value.defined(); ++i) {
      const bool is_first = recorded_[i].input == kNone;
      if (is_first && saved_[i].shares_storage_with(value))
        recorded_[i].input = std::ssize(inputs_);
    }
    inputs_.push_back(input.node());
  }
}

void Function::require_unchanged() const {
  for (std::size_t i = 0; i < recorded_.size(); ++i) {
    const Recorded& then = recorded_[i];
    const Tensor& tensor = saved_[i];
    if (tensor.version() == then.version && sample_of(tensor) == then.sample) continue;
    std::string what = "a tensor that it kept";
    std::string origin;
    if (then.input != kNone) {
      what = "input " + std::to_string(then.input);
      const auto& producer = inputs_[static_cast<std::size_t>(then.input)]->producer;
      origin = producer ? ", the output of " + producer->name() : ", a parameter or a given value";
    }
    throw std::logic_error("[" + name() + "] cannot compute gradients: " + what + " (" +
                           std::string(dtype_name(tensor.dtype())) + " " +
                           shape_string(tensor.shape()) + origin +
                           ") was changed in place after the forward pass. Change it after "
                           "backward(), or give the operation a clone()");
  }
}

bool should_record(const std::vector<Variable>& inputs) {
  return recording_enabled && std::any_of(inputs.begin(), inputs.end(),
                                          [](const Variable& v) { return v.requires_grad(); });
}

Variable record(Variable output, std::shared_ptr<Function> function,
                const std::vector<Variable>& inputs) {
  if (!function) throw std::invalid_argument("[record] expected a function, got null");
  function->set_inputs(inputs);
  output.set_requires_grad(true);
  trace_operation(function, inputs, output);
  profile_operation(function, inputs, output);
  output.node()->producer = std::move(function);
  return output;
}

NoGradGuard::NoGradGuard() : previous_(recording_enabled) { recording_enabled = false; }
NoGradGuard::~NoGradGuard() { recording_enabled = previous_; }

std::vector<std::shared_ptr<Function>> tape_of(const Variable& output) {
  // Depth-first, with an explicit stack: a deep net must not exhaust the call stack.
  std::vector<std::shared_ptr<Function>> order;
  std::unordered_set<const Function*> seen;
  struct Frame {
    std::shared_ptr<Function> function;
    std::size_t next_input = 0;
  };
  std::vector<Frame> stack;
  const auto visit = [&](const std::shared_ptr<Function>& function) {
    if (function && seen.insert(function.get()).second) stack.push_back({function, 0});
  };
  visit(output.node()->producer);
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next_input < frame.function->inputs().size()) {
      const auto& input = frame.function->inputs()[frame.next_input++];
      visit(input->producer);
    } else {
      order.push_back(frame.function);
      stack.pop_back();
    }
  }
  return order;
}

std::int64_t saved_bytes(const Variable& output, const std::vector<Tensor>& parameters) {
  std::unordered_set<const void*> counted;
  for (const Tensor& parameter : parameters) counted.insert(parameter.raw());
  std::int64_t bytes = 0;
  for (const auto& function : tape_of(output)) {
    for (const Tensor& tensor : function->saved()) {
      if (tensor.defined() && counted.insert(tensor.raw()).second) bytes += tensor.bytes();
    }
  }
  return bytes;
}

}  // namespace steelyard
