// Sums, differences, products, quotients and extremes as layers: of two values, or of one and a
// constant. Shapes broadcast.
#pragma once

#include "steelyard/framework/tensor/fields.h"
#include "steelyard/layers/containers/graph.h"

namespace steelyard {

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kDivideNoNan, kMaximum, kMinimum };

// Arithmetic of two values. (Add, in layers/containers/graph.h, is the sum of two values of one
// shape.)
class PairArithmetic : public JoinModule {
 public:
  explicit PairArithmetic(Arithmetic operation) : operation_(operation) {}
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  // "BroadcastAdd", "Sub", "Mul", "Div", "DivNoNan", "Max", "Min".
  std::string type_name() const override;
  Arithmetic operation() const { return operation_; }

 private:
  Arithmetic operation_;
};

struct ConstantArithmeticOptions {
  Arithmetic operation = Arithmetic::kAdd;
  bool constant_first = false;  // value - x, value / x
  bool trainable = false;
};

// What is stored of one: the value is a tensor of that shape, and the type says the operation.
struct StoredConstant {
  Shape shape{};
  bool trainable = false;
  static constexpr auto fields() {
    return std::tuple(field("shape", &StoredConstant::shape),
                      field("trainable", &StoredConstant::trainable));
  }
};

// Arithmetic of x and a constant: the parameter "value" if it is trainable, else the buffer
// "value".
class ConstantArithmetic : public Module {
 public:
  ConstantArithmetic(const ConstantArithmeticOptions& options, Tensor value);
  Variable forward(const Variable& x, ForwardContext& context) override;
  // "AddConstant", ...
  std::string type_name() const override;
  std::string description() const override;
  const ConstantArithmeticOptions& options() const { return options_; }
  const Tensor& value() const { return parameter_.defined() ? parameter_.value() : buffer_; }

 private:
  ConstantArithmeticOptions options_;
  Variable parameter_;  // undefined where it is a buffer
  Tensor buffer_;
};

// a b of matrices, with equal leading dimensions or one matrix b for all of a.
class MatMul : public JoinModule {
 public:
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "MatMul"; }
};

struct PReluOptions {
  std::int64_t slopes = 1;
  static constexpr auto fields() { return std::tuple(field("slopes", &PReluOptions::slopes)); }
};

// x where x > 0, else slope * x with a trainable slope: one, or one for each channel (the last
// dimension). Parameter: weight [1] or [C]. Source: He et al., arXiv:1502.01852.
class PReLU : public Module {
 public:
  explicit PReLU(std::int64_t slopes);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "PReLU"; }

 private:
  Variable weight_;
};

}  // namespace steelyard
