// Pooling layers over [N, H, W, C].
#pragma once

#include "steelyard/framework/module.h"
#include "steelyard/framework/ops/pool.h"

namespace steelyard {

// The maximum of each window.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dGeometry& options) : options_(options) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "MaxPool2d"; }
  std::string description() const override;
  const Pool2dGeometry& options() const { return options_; }

 private:
  Pool2dGeometry options_;
};

struct AvgPool2dOptions {
  Pool2dGeometry geometry{};
  bool count_include_pad = true;  // padded zeros count in the divisor
};

// The mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const AvgPool2dOptions& options) : options_(options) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "AvgPool2d"; }
  std::string description() const override;
  const AvgPool2dOptions& options() const { return options_; }

 private:
  AvgPool2dOptions options_;
};

// The mean over all pixels: [N, H, W, C] -> [N, C].
class GlobalAvgPool : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "GlobalAvgPool"; }
};

}  // namespace steelyard
