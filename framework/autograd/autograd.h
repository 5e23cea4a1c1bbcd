// Reverse-mode automatic differentiation: variables, recorded functions and the backward pass.
//
// Every operation that touches a variable requiring gradients leaves a Function on the tape, which
// keeps only what its backward needs and describes itself (name; describes.h). backward() never
// changes the tape: it may be run again and gives the same gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

class FaultCheck;
class Function;

// An object that code above the engine attaches to a variable's value, such as its codes; the
// engine passes it along and never reads it.
class Companion {
 public:
  virtual ~Companion() = default;
};

// A node of the tape: a differentiable value, to which the tape's edges point. The value itself is
// not kept here.
struct GradNode {
  Shape shape;
  DType dtype = DType::kF32;
  bool requires_grad = false;
  std::shared_ptr<Function> producer;  // null for a leaf
  Tensor grad;                         // leaves only; undefined until the first backward
  std::shared_ptr<FaultCheck>
      check;  // of the model that it belongs to (framework/autograd/fault_check.h)
};

// A tensor on the tape. Copies are the same variable. Of a default Variable, which is undefined,
// everything but defined(), requires_grad() and companions throws std::invalid_argument.
class Variable {
 public:
  Variable() = default;
  // A leaf of the tape: a parameter or an input. Throws std::invalid_argument for an undefined
  // tensor.
  explicit Variable(Tensor value, bool requires_grad = false);
  // A value that `compute` gives when value() is first called; `companion` may be null.
  static Variable deferred(Shape shape, DType dtype, std::function<Tensor()> compute,
                           std::shared_ptr<const Companion> companion);

  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const;
  // Replaces a leaf's value (a parameter set by a checkpoint); shape and dtype may change, and a
  // gradient that then no longer fits is cleared. Throws std::invalid_argument for an undefined
  // tensor, and for integers where gradients are wanted.
  void set_value(Tensor value);
  const Shape& shape() const { return node("shape")->shape; }
  std::int64_t dim(std::int64_t i) const;
  DType dtype() const { return node("dtype")->dtype; }
  bool requires_grad() const { return impl_ && impl_->node->requires_grad; }
  // Leaves only: whether gradients are wanted.
  void set_requires_grad(bool requires_grad);
  // The accumulated gradient of a leaf; undefined before the first backward.
  const Tensor& grad() const { return node("grad")->grad; }
  // Throws std::invalid_argument unless the tensor is undefined or has the variable's shape and
  // dtype.
  void set_grad(Tensor grad);
  void clear_grad() { node("clear_grad")->grad = Tensor(); }
  const std::shared_ptr<GradNode>& node() const { return node("node"); }

  bool has_companion() const { return impl_ && impl_->companion != nullptr; }
  // The companion as type T, or null. Throws std::logic_error where the value was changed since it
  // was computed, by fill() or whatever else tells its storage: the companion is that of before.
  template <typename T>
  std::shared_ptr<const T> companion() const {
    if (!has_companion()) return nullptr;
    require_unchanged();
    return std::dynamic_pointer_cast<const T>(impl_->companion);
  }

  // Adds d this / d leaf to the gradient of every leaf that requires one. Without an argument this
  // must hold one element (its gradient is 1). Throws when nothing here requires a gradient, and
  // std::logic_error when a tensor that an operation kept for this pass was changed since: by
  // fill(), copy_from(), an optimizer's step or whatever else tells its storage (mark_changed()).
  // What was written through a pointer is found on the CPU in tensors of up to 32 bytes, and in
  // larger ones where it changed their first or last 8 bytes or 16 in between.
  void backward() const;
  void backward(const Tensor& grad_output) const;

 private:
  struct Impl {
    Tensor value;
    std::function<Tensor()> compute;
    std::shared_ptr<const Companion> companion;
    std::uint64_t computed_version = 0;  // of the value that was deferred
    std::shared_ptr<GradNode> node;
  };
  void require_unchanged() const;
  friend class Function;  // asks for a value without computing it

  const std::shared_ptr<GradNode>& node(const char* caller) const {
    if (!impl_) throw_undefined(caller);
    return impl_->node;
  }
  [[noreturn]] static void throw_undefined(const char* caller);

  std::shared_ptr<Impl> impl_;
};

// One recorded operation with a single output.
class Function {
 public:
  Function() = default;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  virtual ~Function();

  // The operation's name as in messages and traces: "conv2d".
  virtual std::string name() const = 0;

  // Gradients with respect to every input, in the order of inputs(); undefined where
  // needs_grad(i) is false. Must not modify anything saved, nor grad_output unless it is the sole
  // handle of its storage (Tensor::is_sole_handle()): then nothing else reads it any more.
  virtual std::vector<Tensor> backward(const Tensor& grad_output) const = 0;
  // Whether backward() takes a gradient of float32 values in bfloat16, too, as functions may give
  // it; others get it converted.
  virtual bool takes_bf16_gradients() const { return false; }

  const std::vector<std::shared_ptr<GradNode>>& inputs() const { return inputs_; }
  bool needs_grad(std::size_t input) const { return inputs_.at(input)->requires_grad; }
  // Tensors kept for backward.
  const std::vector<Tensor>& saved() const { return saved_; }
  // Throws std::logic_error naming the operation and the tensor if one of saved() was changed since
  // the operation was recorded.
  void require_unchanged() const;

 protected:
  // Keeps a tensor for backward, as the next of saved(), and returns it; counted by saved_bytes().
  // Its elements may still be computed until the operation is recorded.
  const Tensor& save(Tensor tensor) {
    saved_.reserve(8);  // the first eight references stay valid
    return saved_.emplace_back(std::move(tensor));
  }

 private:
  friend Variable record(Variable output, std::shared_ptr<Function> function,
                         const std::vector<Variable>& inputs);
  // What a tensor of saved() was when the operation was recorded.
  struct Recorded {
    std::uint64_t version = 0;
    std::uint64_t sample = 0;      // of its bytes
    std::ptrdiff_t input = kNone;  // of inputs(), if its storage is that of one
  };
  static constexpr std::ptrdiff_t kNone = -1;

  // Takes the defined ones of the operation's inputs, and how saved() is now.
  void set_inputs(const std::vector<Variable>& inputs);

  std::vector<std::shared_ptr<GradNode>> inputs_;
  std::vector<Tensor> saved_;
  std::vector<Recorded> recorded_;
};

// True when an operation on these inputs must be recorded: recording is on and one requires a
// gradient. Undefined inputs (an absent bias) count as not requiring one.
bool should_record(const std::vector<Variable>& inputs);

// Makes `function` the producer of the result. Undefined inputs are left out of inputs().
Variable record(Variable output, std::shared_ptr<Function> function,
                const std::vector<Variable>& inputs);
inline Variable record(Tensor output, std::shared_ptr<Function> function,
                       const std::vector<Variable>& inputs) {
  return record(Variable(std::move(output)), std::move(function), inputs);
}

// While an object exists, operations on this thread are not recorded.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};

// The recorded operations that made `output`, inputs before outputs.
std::vector<std::shared_ptr<Function>> tape_of(const Variable& output);

// Bytes of distinct storage that the tape of `output` keeps for backward, not counting storage
// of `parameters` (which live anyway).
std::int64_t saved_bytes(const Variable& output, const std::vector<Tensor>& parameters);

}  // namespace steelyard
