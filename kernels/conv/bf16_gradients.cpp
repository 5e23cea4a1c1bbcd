#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/conv/onednn_limits.h"
#include "steelyard/kernels/cpu/rounded_operands.h"

namespace steelyard::kernels {

bool reads_bf16_gradients(const Conv2dShape& shape, const CpuProducts& products) {
  return products.precision == MatmulPrecision::kBf16 && has_bf16(products) &&
         !shape.is_depthwise() && !is_overrun_by_onednn(shape);
}

}  // namespace steelyard::kernels
