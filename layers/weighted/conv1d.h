// 1-D convolution layer.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct Conv1dOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  static constexpr auto fields() {
    return std::tuple(
        field("in_channels", &Conv1dOptions::in_channels),
        field("out_channels", &Conv1dOptions::out_channels),
        field("kernel", &Conv1dOptions::kernel_size), field("stride", &Conv1dOptions::stride),
        field("padding", &Conv1dOptions::padding), field("dilation", &Conv1dOptions::dilation),
        field("groups", &Conv1dOptions::groups), field("bias", &Conv1dOptions::bias));
  }

  // The geometry of the same convolution of images of one row.
  Conv2dGeometry geometry() const {
    return {.stride = {1, stride},
            .padding = {0, padding},
            .dilation = {1, dilation},
            .groups = groups};
  }
};

// y[N, OL, O] = conv(x[N, L, C]), a convolution of images of one row. Parameters: weight
// [O, C/groups, K], bias [O].
class Conv1d : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1 or groups that do not divide the channels.
  Conv1d(const Conv1dOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Conv1d"; }
  std::string description() const override;
  const Conv1dOptions& options() const { return options_; }
  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }  // undefined without bias

 private:
  Conv1dOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
