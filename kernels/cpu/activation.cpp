#include "kernels/activation.h"

#include "kernels/activation_formulas.h"
#include "kernels/cpu/parallel.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 2048;  // elements per thread that pay for waking it

}  // namespace

template <typename T>
void smooth_activation_forward(SmoothActivation activation, std::int64_t n, const T* x, T* y) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = activation_value(activation, x[i]);
  });
}

template <typename T>
void smooth_activation_backward(SmoothActivation activation, std::int64_t n, const T* x,
                                const T* grad_y, T* grad_x) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      grad_x[i] = grad_y[i] * activation_slope(activation, x[i]);
  });
}

template void smooth_activation_forward(SmoothActivation, std::int64_t, const float*, float*);
template void smooth_activation_forward(SmoothActivation, std::int64_t, const double*, double*);
template void smooth_activation_backward(SmoothActivation, std::int64_t, const float*, const float*,
                                         float*);
template void smooth_activation_backward(SmoothActivation, std::int64_t, const double*,
                                         const double*, double*);

}  // namespace steelyard::kernels
