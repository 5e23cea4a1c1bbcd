#include <stdexcept>
#include <string>

#include "steelyard/kernels/cpu/onednn_kernels.h"

namespace steelyard::kernels::onednn {
namespace {

[[noreturn]] void absent(const char* kernel) {
  throw std::runtime_error(std::string("[") + kernel + "] built without oneDNN");
}

}  // namespace

bool built() { return false; }
bool has_bf16() { return false; }

void matmul(MatmulPrecision, const MatmulShape&, const float*, const float*, float*) {
  absent("matmul");
}

void conv2d_forward(MatmulPrecision, const Conv2dShape&, const float*, const float*, const float*,
                    float*) {
  absent("conv2d_forward");
}
void conv2d_backward_input(MatmulPrecision, const Conv2dShape&, const float*, const float*,
                           float*) {
  absent("conv2d_backward_input");
}
void conv2d_backward_weight(MatmulPrecision, const Conv2dShape&, const float*, const float*, float*,
                            float*) {
  absent("conv2d_backward_weight");
}

}  // namespace steelyard::kernels::onednn
