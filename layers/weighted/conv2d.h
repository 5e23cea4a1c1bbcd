// 2-D convolution layer.
#pragma once

#include <array>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// Pairs are {height, width}.
struct Conv2dOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel_size{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  static constexpr auto fields() {
    return std::tuple(
        field("in_channels", &Conv2dOptions::in_channels),
        field("out_channels", &Conv2dOptions::out_channels),
        field("kernel", &Conv2dOptions::kernel_size), field("stride", &Conv2dOptions::stride),
        field("padding", &Conv2dOptions::padding), field("dilation", &Conv2dOptions::dilation),
        field("groups", &Conv2dOptions::groups), field("bias", &Conv2dOptions::bias));
  }

  Conv2dGeometry geometry() const { return {stride, padding, dilation, groups}; }
};

// y[N, OH, OW, O] = conv(x[N, H, W, C]). Parameters: weight [O, C/groups, KH, KW], bias [O].
class Conv2d : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1 or groups that do not divide the channels.
  Conv2d(const Conv2dOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Conv2d"; }
  std::string description() const override;

  const Conv2dOptions& options() const { return options_; }
  const Variable& weight() const { return weight_; }
  // Undefined without a bias.
  const Variable& bias() const { return bias_; }

 private:
  Conv2dOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
