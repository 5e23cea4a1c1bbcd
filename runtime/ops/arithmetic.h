// What sums, differences, products and quotients of floats share. Their operands are values or
// constants, whose shapes broadcast.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

// Where element i of the output lies in an operand, the batch included: sizes of 1 repeat.
class OperandIndex {
 public:
  OperandIndex(const Tensor& operand, const Tensor& output);
  std::int64_t operator()(std::int64_t i) const {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < sizes_.size(); ++k) {  // from the last dimension on
      at += i % sizes_[k] * strides_[k];
      i /= sizes_[k];
    }
    return at;
  }

 private:
  std::vector<std::int64_t> sizes_, strides_;
};

// The same by kernels/broadcast; false where the output has codes or too many dimensions.
template <class F>
bool combine_fast(const Operands& op) {
  if (op.output_value().quantization || !has_few_axes(op)) return false;
  const Tensor a = real_operand(op, 0), b = real_operand(op, 1);
  const Shape& shape = op.output().shape();
  const char* const name = op_name(op.node.op);
  kernels::run(kernels::Combine<float, F>{.n = op.output().size(),
                                          .a = a.data<float>(),
                                          .at_a = ops::broadcast_index(name, a.shape(), shape),
                                          .b = b.data<float>(),
                                          .at_b = ops::broadcast_index(name, b.shape(), shape),
                                          .y = op.output().data<float>()});
  return true;
}

// The shape that the operands broadcast to. Constants repeat for each sample.
Shape broadcast_shape(const Graph& graph, const Node& node);

// out[i] = f(a, b) of the operands' floats.
template <typename F>
void combine_floats(const Operands& op, const F& f) {
  const Tensor a = real_operand(op, 0), b = real_operand(op, 1);
  const OperandIndex at_a(a, op.output()), at_b(b, op.output());
  fill_floats(op.output(), [&](std::int64_t i) {
    return f(a.data<float>()[at_a(i)], b.data<float>()[at_b(i)]);
  });
}

}  // namespace steelyard::deploy
