#include "steelyard/export/op_info.h"

#include <algorithm>

#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {

// In the order of Op.
const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> kTable{quantize_op(),
                                          linear_op(),
                                          conv2d_op(),
                                          add_op(),
                                          concat_op(),
                                          relu_op(),
                                          relu6_op(),
                                          max_pool2d_op(),
                                          avg_pool2d_op(),
                                          global_avg_pool_op(),
                                          flatten_op(),
                                          sigmoid_op(),
                                          hardswish_op(),
                                          softmax_op(),
                                          mul_op(),
                                          hard_sigmoid_op(),
                                          silu_op(),
                                          reshape_op(),
                                          permute_op(),
                                          slice_op(),
                                          pad_op(),
                                          resize_op(),
                                          sub_op(),
                                          div_op(),
                                          sum_op(),
                                          matmul_op(),
                                          gelu_op(),
                                          leaky_relu_op(),
                                          clamp_op(),
                                          layer_norm_op(),
                                          conv_transpose2d_op(),
                                          scale_shift_op(),
                                          affine_op(),
                                          sqrt_op(),
                                          exp_op(),
                                          log_op(),
                                          abs_op(),
                                          erf_op(),
                                          tanh_op(),
                                          pow_op(),
                                          tanh_gelu_op(),
                                          maximum_op(),
                                          minimum_op(),
                                          div_no_nan_op(),
                                          reduce_max_op(),
                                          reduce_min_op(),
                                          expand_op(),
                                          embedding_op(),
                                          input_part_op(),
                                          lstm_op(),
                                          where_greater_op(),
                                          where_greater_equal_op(),
                                          where_equal_op()};
  return kTable;
}

const OpInfo& op_info(Op op) { return op_table().at(static_cast<std::size_t>(op)); }

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& info : op_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const OpInfo* find_recorded(std::string_view operation) {
  for (const OpInfo& info : op_table()) {
    if (std::count(info.recorded.begin(), info.recorded.end(), operation) > 0) return &info;
  }
  return nullptr;
}

const char* op_name(Op op) { return op_info(op).name; }

}  // namespace steelyard::deploy
