// 2-D transposed convolution layer.
#pragma once

#include <array>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// Pairs are {height, width}.
struct ConvTranspose2dOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel_size{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> output_padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  static constexpr auto fields() {
    return std::tuple(field("in_channels", &ConvTranspose2dOptions::in_channels),
                      field("out_channels", &ConvTranspose2dOptions::out_channels),
                      field("kernel", &ConvTranspose2dOptions::kernel_size),
                      field("stride", &ConvTranspose2dOptions::stride),
                      field("padding", &ConvTranspose2dOptions::padding),
                      field("output_padding", &ConvTranspose2dOptions::output_padding),
                      field("dilation", &ConvTranspose2dOptions::dilation),
                      field("groups", &ConvTranspose2dOptions::groups),
                      field("bias", &ConvTranspose2dOptions::bias));
  }

  ConvTranspose2dGeometry geometry() const {
    return {{stride, padding, dilation, groups}, output_padding};
  }
};

// y[N, OH, OW, O] of x[N, H, W, C]. Parameters: weight [C, O/groups, KH, KW], bias [O], as PyTorch
// has them.
class ConvTranspose2d : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1 or groups that do not divide the channels.
  ConvTranspose2d(const ConvTranspose2dOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "ConvTranspose2d"; }
  std::string description() const override;
  const ConvTranspose2dOptions& options() const { return options_; }

 private:
  ConvTranspose2dOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
