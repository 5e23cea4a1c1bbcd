// The rows of the table of deployed operations, each from the file of its name.
#pragma once

#include "steelyard/export/op_info.h"

namespace steelyard::deploy {

OpInfo quantize_op();
OpInfo linear_op();
OpInfo conv2d_op();
OpInfo add_op();
OpInfo concat_op();
OpInfo relu_op();
OpInfo relu6_op();
OpInfo max_pool2d_op();
OpInfo avg_pool2d_op();
OpInfo global_avg_pool_op();
OpInfo flatten_op();
OpInfo sigmoid_op();
OpInfo hardswish_op();
OpInfo softmax_op();
OpInfo mul_op();
OpInfo hard_sigmoid_op();
OpInfo silu_op();

}  // namespace steelyard::deploy
