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
OpInfo reshape_op();
OpInfo permute_op();
OpInfo slice_op();
OpInfo pad_op();
OpInfo resize_op();
OpInfo sub_op();
OpInfo div_op();
OpInfo sum_op();
OpInfo matmul_op();
OpInfo gelu_op();
OpInfo leaky_relu_op();
OpInfo clamp_op();
OpInfo layer_norm_op();
OpInfo conv_transpose2d_op();
OpInfo scale_shift_op();
OpInfo affine_op();
OpInfo sqrt_op();
OpInfo exp_op();
OpInfo log_op();
OpInfo abs_op();
OpInfo erf_op();
OpInfo tanh_op();
OpInfo pow_op();
OpInfo tanh_gelu_op();
OpInfo maximum_op();
OpInfo minimum_op();
OpInfo div_no_nan_op();
OpInfo reduce_max_op();
OpInfo reduce_min_op();
OpInfo expand_op();
OpInfo embedding_op();
OpInfo input_part_op();
OpInfo lstm_op();
OpInfo where_greater_op();
OpInfo where_greater_equal_op();
OpInfo where_equal_op();

}  // namespace steelyard::deploy
