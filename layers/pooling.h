// Pooling layers over images [N, H, W, C] and sequences [N, L, C].
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/fields.h"

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
  static constexpr auto fields() {
    return std::tuple_cat(
        fields_within(&AvgPool2dOptions::geometry),
        std::tuple(field("count_include_pad", &AvgPool2dOptions::count_include_pad)));
  }
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

// A window of a sequence.
struct Pool1dGeometry {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;  // positions on each side, at most half the kernel

  // This window in images of one row.
  Pool2dGeometry on_row() const {
    return {.kernel = {1, kernel}, .stride = {1, stride}, .padding = {0, padding}};
  }
};

// The maximum of each window of a sequence.
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(const Pool1dGeometry& options) : options_(options) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "MaxPool1d"; }
  std::string description() const override;
  const Pool1dGeometry& options() const { return options_; }

 private:
  Pool1dGeometry options_;
};

// The mean of each window of a sequence; padded zeros count in the divisor.
class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(const Pool1dGeometry& options) : options_(options) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "AvgPool1d"; }
  std::string description() const override;
  const Pool1dGeometry& options() const { return options_; }

 private:
  Pool1dGeometry options_;
};

// The mean over all pixels or positions: [N, H, W, C] or [N, L, C] -> [N, C].
class GlobalAvgPool : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "GlobalAvgPool"; }
};

}  // namespace steelyard
