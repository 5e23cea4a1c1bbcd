#include "steelyard/framework/autograd.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "steelyard/framework/backward.h"
#include "steelyard/framework/on_device.h"
#include "steelyard/framework/step_profile.h"
#include "steelyard/framework/tape_trace.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

thread_local bool recording_enabled = true;

Tensor add_tensors(const Tensor& a, const Tensor& b) {
  Tensor sum = Tensor::empty(a.shape(), a.dtype(), a.device());
  visit_floating(a.dtype(), "backward", [&](auto zero) {
    using T = decltype(zero);
    run(a.device(),
        kernels::Add<T>{.n = a.size(), .a = a.data<T>(), .b = b.data<T>(), .y = sum.data<T>()});
  });
  return sum;
}

void require_gradient_fits(const Function& function, const GradNode& input, const Tensor& grad) {
  if (grad.shape() != input.shape || grad.dtype() != input.dtype) {
    throw std::logic_error("[" + function.name() + "] backward gave a gradient of shape " +
                           shape_string(grad.shape()) + " " +
                           std::string(dtype_name(grad.dtype())) + " for an input of shape " +
                           shape_string(input.shape) + " " + std::string(dtype_name(input.dtype)));
  }
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

const Tensor& Variable::value() const {
  if (!impl_) throw std::logic_error("[variable] value of an undefined variable");
  if (impl_->compute) {
    impl_->value = impl_->compute();
    impl_->compute = nullptr;
  }
  return impl_->value;
}

void Variable::set_value(Tensor value) {
  if (impl_->node->producer) throw std::logic_error("[variable] set_value on a computed variable");
  impl_->node->shape = value.shape();
  impl_->node->dtype = value.dtype();
  impl_->value = std::move(value);
  impl_->compute = nullptr;
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
  if (impl_->node->producer) {
    throw std::logic_error("[variable] set_requires_grad on a computed variable");
  }
  if (requires_grad && !is_floating(dtype())) throw_not_floating("requires_grad", dtype());
  impl_->node->requires_grad = requires_grad;
}

void Variable::backward() const {
  if (!impl_ || shape_size(shape()) != 1) {
    throw std::invalid_argument("[backward] needs one element or an explicit gradient");
  }
  backward(Tensor::full(shape(), 1.0, dtype(), value().device()));
}

void Variable::backward(const Tensor& grad_output) const {
  steelyard::backward(*this, grad_output, {});
}

void backward(const Variable& output, const Tensor& grad_output, const LeafReady& ready) {
  if (!output.requires_grad()) {
    throw std::invalid_argument("[backward] nothing on this tape requires a gradient");
  }
  if (grad_output.shape() != output.shape() || grad_output.dtype() != output.dtype()) {
    throw std::invalid_argument("[backward] expected a gradient of shape " +
                                shape_string(output.shape()) + ", got " +
                                shape_string(grad_output.shape()));
  }
  // Gradients of intermediate values live here, each until its producer has consumed it. `owned`
  // says that a sum was made here; a first gradient may alias what a function returned.
  std::unordered_map<const GradNode*, Tensor> pending;
  const auto accumulate = [&](GradNode& node, const Tensor& grad) {
    Tensor& sum = node.producer ? pending[&node] : node.grad;
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
    if (ready) ready(last);
    return;
  }

  const auto tape = tape_of(output);
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
    const Tensor grad = std::move(found->second);
    pending.erase(found);
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
      accumulate(input, grads[i]);
    }
    grads.clear();  // a leaf's gradient may now be its only handle
    uses.done(function);
  }
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

bool should_record(const std::vector<Variable>& inputs) {
  return recording_enabled && std::any_of(inputs.begin(), inputs.end(),
                                          [](const Variable& v) { return v.requires_grad(); });
}

Variable record(Variable output, std::shared_ptr<Function> function,
                const std::vector<Variable>& inputs) {
  for (const Variable& input : inputs) {
    if (input.defined()) function->inputs_.push_back(input.node());
  }
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
