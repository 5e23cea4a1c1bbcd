// A thread for every element: forward of the output, backward of the input, which gathers from the
// windows over it in their order.
#include "kernels/pool.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/pool_window.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// A pooling with the sizes that its kernels divide by.
struct PoolSizes {
  explicit PoolSizes(const Pool2dShape& shape)
      : s(shape), out_h(shape.out_h()), out_w(shape.out_w()) {}

  Pool2dShape s;
  std::int64_t out_h, out_w;
};

// An element of an NHWC array.
struct Place {
  std::int64_t image, h, w, channel;
};

__device__ inline Place place_of(std::int64_t i, std::int64_t height, std::int64_t width,
                                 std::int64_t channels) {
  const std::int64_t pixel = divide(i, channels);
  const std::int64_t row = divide(pixel, width);
  const std::int64_t image = divide(row, height);
  return {image, row - image * height, pixel - row * width, i - pixel * channels};
}

// Calls visit(input element, offset inside the window) over the window of an output element.
template <typename Visit>
__device__ inline void for_each_input(const PoolSizes& p, const Place& output, const PoolWindow& w,
                                      Visit&& visit) {
  for (std::int64_t row = w.row_begin; row < w.row_end; ++row) {
    for (std::int64_t column = w.column_begin; column < w.column_end; ++column) {
      const std::int64_t pixel = (output.image * p.s.in_h + row) * p.s.in_w + column;
      visit(pixel * p.s.channels + output.channel, (row - w.top) * p.s.kernel_w + column - w.left);
    }
  }
}

// Outputs [first, last] along an axis whose windows hold an input at `at`.
struct Windows {
  std::int64_t first, last;
};

__device__ inline Windows windows_over(std::int64_t at, std::int64_t pad, std::int64_t kernel,
                                       std::int64_t stride, std::int64_t outputs) {
  const std::int64_t reach = at + pad - kernel;  // the last start that misses the input
  const std::int64_t first = reach < 0 ? 0 : divide(reach, stride) + 1;
  return {first, smaller(divide(at + pad, stride), outputs - 1)};
}

// Calls visit(output element, row of the output, column of the output) for the windows that hold
// an input element.
template <typename Visit>
__device__ inline void for_each_output(const PoolSizes& p, const Place& input, Visit&& visit) {
  const Windows rows = windows_over(input.h, p.s.pad_h, p.s.kernel_h, p.s.stride_h, p.out_h);
  const Windows columns = windows_over(input.w, p.s.pad_w, p.s.kernel_w, p.s.stride_w, p.out_w);
  for (std::int64_t oh = rows.first; oh <= rows.last; ++oh) {
    for (std::int64_t ow = columns.first; ow <= columns.last; ++ow) {
      visit(((input.image * p.out_h + oh) * p.out_w + ow) * p.s.channels + input.channel, oh, ow);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    max_forward_kernel(std::int64_t n, PoolSizes p, const T* x, T* y, std::uint16_t* argmax) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const Place output = place_of(i, p.out_h, p.out_w, p.s.channels);
  T best = T(0);
  std::int64_t winner = -1;
  for_each_input(p, output, window_of(p.s, output.h, output.w),
                 [&](std::int64_t at, std::int64_t offset) {
                   if (winner >= 0 && !wins(x[at], best)) return;
                   best = x[at];
                   winner = offset;
                 });
  y[i] = best;
  if (argmax != nullptr) argmax[i] = static_cast<std::uint16_t>(winner);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(std::int64_t n, PoolSizes p, const T* grad_y, const std::uint16_t* argmax,
                        T* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const Place input = place_of(i, p.s.in_h, p.s.in_w, p.s.channels);
  T sum = 0;
  for_each_output(p, input, [&](std::int64_t at, std::int64_t oh, std::int64_t ow) {
    const std::int64_t row = input.h + p.s.pad_h - oh * p.s.stride_h;
    const std::int64_t column = input.w + p.s.pad_w - ow * p.s.stride_w;
    if (argmax[at] == row * p.s.kernel_w + column) sum += grad_y[at];
  });
  grad_x[i] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    average_forward_kernel(std::int64_t n, PoolSizes p, bool count_include_pad, const T* x, T* y) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const Place output = place_of(i, p.out_h, p.out_w, p.s.channels);
  const PoolWindow window = window_of(p.s, output.h, output.w);
  T sum = 0;
  for_each_input(p, output, window, [&](std::int64_t at, std::int64_t) { sum += x[at]; });
  y[i] = sum * average_factor<T>(p.s, window, count_include_pad);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    average_backward_kernel(std::int64_t n, PoolSizes p, bool count_include_pad, const T* grad_y,
                            T* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const Place input = place_of(i, p.s.in_h, p.s.in_w, p.s.channels);
  T sum = 0;
  for_each_output(p, input, [&](std::int64_t at, std::int64_t oh, std::int64_t ow) {
    sum += grad_y[at] * average_factor<T>(p.s, window_of(p.s, oh, ow), count_include_pad);
  });
  grad_x[i] = sum;
}

// The batches are the images, the rows their pixels.
template <typename T>
struct PixelTerm {
  std::int64_t pixels, channels;
  const T* x;

  __device__ void operator()(std::int64_t image, std::int64_t pixel, std::int64_t channel,
                             double (&sums)[1]) const {
    sums[0] += static_cast<double>(x[(image * pixels + pixel) * channels + channel]);
  }
};

template <typename T>
struct StoreMean {
  T* y;

  __device__ void operator()(const RowChunks& rows, std::int64_t at,
                             const double (&sums)[1]) const {
    y[at] = static_cast<T>(sums[0] / static_cast<double>(rows.rows));
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(std::int64_t n, std::int64_t image_size, std::int64_t channels, T factor,
                  const T* grad_y, T* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t channel = i - divide(i, channels) * channels;
  grad_x[i] = grad_y[divide(i, image_size) * channels + channel] * factor;
}

}  // namespace
}  // namespace cuda

template <typename T>
void max_pool2d_forward(const CudaQueue& queue, const Pool2dShape& shape, const T* x, T* y,
                        std::uint16_t* argmax) {
  cuda::launch_elements(queue, cuda::max_forward_kernel<T>, shape.output_size(),
                        cuda::PoolSizes(shape), x, y, argmax);
}

template <typename T>
void max_pool2d_backward(const CudaQueue& queue, const Pool2dShape& shape, const T* grad_y,
                         const std::uint16_t* argmax, T* grad_x) {
  cuda::launch_elements(queue, cuda::max_backward_kernel<T>, shape.input_size(),
                        cuda::PoolSizes(shape), grad_y, argmax, grad_x);
}

template <typename T>
void avg_pool2d_forward(const CudaQueue& queue, const Pool2dShape& shape, bool count_include_pad,
                        const T* x, T* y) {
  cuda::launch_elements(queue, cuda::average_forward_kernel<T>, shape.output_size(),
                        cuda::PoolSizes(shape), count_include_pad, x, y);
}

template <typename T>
void avg_pool2d_backward(const CudaQueue& queue, const Pool2dShape& shape, bool count_include_pad,
                         const T* grad_y, T* grad_x) {
  cuda::launch_elements(queue, cuda::average_backward_kernel<T>, shape.input_size(),
                        cuda::PoolSizes(shape), count_include_pad, grad_y, grad_x);
}

template <typename T>
void global_avg_pool_forward(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                             std::int64_t channels, const T* x, T* y) {
  cuda::sum_columns<1>(queue, cuda::make_row_chunks(batch, pixels, channels),
                       cuda::PixelTerm<T>{pixels, channels, x}, cuda::StoreMean<T>{y});
}

template <typename T>
void global_avg_pool_backward(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                              std::int64_t channels, const T* grad_y, T* grad_x) {
  cuda::launch_elements(queue, cuda::spread_kernel<T>, batch * pixels * channels, pixels * channels,
                        channels, T(1) / T(pixels), grad_y, grad_x);
}

#define STEELYARD_INSTANTIATE_MAXIMUM(T)                                               \
  template void max_pool2d_forward(const CudaQueue&, const Pool2dShape&, const T*, T*, \
                                   std::uint16_t*);
#define STEELYARD_INSTANTIATE(T)                                                               \
  template void max_pool2d_backward(const CudaQueue&, const Pool2dShape&, const T*,            \
                                    const std::uint16_t*, T*);                                 \
  template void avg_pool2d_forward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*);  \
  template void avg_pool2d_backward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*); \
  template void global_avg_pool_forward(const CudaQueue&, std::int64_t, std::int64_t,          \
                                        std::int64_t, const T*, T*);                           \
  template void global_avg_pool_backward(const CudaQueue&, std::int64_t, std::int64_t,         \
                                         std::int64_t, const T*, T*);
STEELYARD_INSTANTIATE_MAXIMUM(std::int8_t)
STEELYARD_INSTANTIATE_MAXIMUM(std::uint8_t)
STEELYARD_INSTANTIATE_MAXIMUM(float)
STEELYARD_INSTANTIATE_MAXIMUM(double)
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
#undef STEELYARD_INSTANTIATE_MAXIMUM

}  // namespace steelyard::kernels
