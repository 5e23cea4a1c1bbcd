// Activation layers.
#pragma once

#include <memory>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/kernels/affine.h"

namespace steelyard {

// max(x, 0).
class ReLU : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "ReLU"; }
};

// min(max(x, 0), 6).
class ReLU6 : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "ReLU6"; }
};

// x where x > 0, else slope * x.
class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double slope = 0.01) : slope_(slope) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "LeakyReLU"; }
  double slope() const { return slope_; }

 private:
  double slope_;
};

// 1 / (1 + exp(-x)).
class Sigmoid : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Sigmoid"; }
};

// exp(x) / sum of exp(x) along the last dimension.
class Softmax : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Softmax"; }
};

// x - log(sum of exp(x)) along the last dimension.
class LogSoftmax : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "LogSoftmax"; }
};

// x * Phi(x), by erf (PyTorch's approximate='none').
class GELU : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "GELU"; }
};

// The GELU by tanh (PyTorch's approximate='tanh').
class TanhGELU : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "TanhGELU"; }
};

// x * sigmoid(x).
class SiLU : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "SiLU"; }
};

// x * min(max(x + 3, 0), 6) / 6.
class Hardswish : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Hardswish"; }
};

// min(max(slope * x + offset, 0), 1).
class HardSigmoid : public Module {
 public:
  // PyTorch's are 1/6 and 0.5.
  explicit HardSigmoid(double slope = 1.0 / 6.0, double offset = 0.5)
      : slope_(slope), offset_(offset) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "HardSigmoid"; }
  double slope() const { return slope_; }
  double offset() const { return offset_; }

 private:
  double slope_, offset_;
};

// slope * x + offset.
class Affine : public Module {
 public:
  Affine(double slope, double offset) : slope_(slope), offset_(offset) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Affine"; }
  double slope() const { return slope_; }
  double offset() const { return offset_; }

 private:
  double slope_, offset_;
};

// x within [lo, hi].
class Clamp : public Module {
 public:
  Clamp(double lo, double hi) : lo_(lo), hi_(hi) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Clamp"; }

 private:
  double lo_, hi_;
};

// ReLU, ReLU6 or Identity.
std::shared_ptr<Module> activation_layer(kernels::Activation activation);

}  // namespace steelyard
