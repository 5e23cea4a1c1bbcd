#include "steelyard/kernels/cpu/quant_cpu.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/typed_quant.h"

namespace steelyard::kernels {

template <typename T, typename Code>
void compute(const Quantize<T, Code>& k) {
  quant_forward_cpu(problem_of(k), args_of(k));
}

template <typename T, typename Code>
void compute(const Dequantize<T, Code>& k) {
  quant_forward_cpu(problem_of(k), args_of(k));
}

template <typename T>
void compute(const ApplyMask<T>& k) {
  const T one = 1;  // with a mask the scale does not matter
  QuantArgs args = args_of(k);
  args.scale = const_cast<T*>(&one);
  quant_backward_cpu(problem_of(k), args);
}

template <typename T>
void compute(const ApplyMaskAndSum<T>& k) {
  run(ApplyMask<T>{k.rows * k.channels, k.mask, k.grad_y, k.grad_x});
  run(ColumnSums<T>{.rows = k.rows, .channels = k.channels, .x = k.grad_x, .sums = k.sums});
}

template struct CpuKernels<FakeQuantizeKernels>;

}  // namespace steelyard::kernels
