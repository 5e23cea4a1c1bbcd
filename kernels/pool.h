// Max, average and global average pooling, NHWC.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

struct Pool2dShape {
  std::int64_t batch = 0;
  std::int64_t in_h = 0;
  std::int64_t in_w = 0;
  std::int64_t channels = 0;
  std::int64_t kernel_h = 1;
  std::int64_t kernel_w = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t pad_h = 0;
  std::int64_t pad_w = 0;

  std::int64_t out_h() const { return (in_h + 2 * pad_h - kernel_h) / stride_h + 1; }
  std::int64_t out_w() const { return (in_w + 2 * pad_w - kernel_w) / stride_w + 1; }
  std::int64_t input_size() const { return batch * in_h * in_w * channels; }
  std::int64_t output_size() const { return batch * out_h() * out_w() * channels; }
};

// y = maximum over each window (padding never wins; NaN wins, as in PyTorch); argmax (may be null)
// gets the winner's offset inside the window, kh * kernel_w + kw, the first of equals.
// T is float, double, int8_t or uint8_t (quantized codes: max commutes with dequantization).
template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, std::uint16_t* argmax);

// grad_x from the saved winners. T is float or double.
template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* grad_y, const std::uint16_t* argmax,
                         T* grad_x);

// y = mean over each window; padded zeros count in the divisor only if count_include_pad.
template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, bool count_include_pad, const T* x, T* y);
template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, bool count_include_pad, const T* grad_y,
                         T* grad_x);

// y[N, C] = mean over the pixels of x[N, H*W, C].
template <typename T>
void global_avg_pool_forward(std::int64_t batch, std::int64_t pixels, std::int64_t channels,
                             const T* x, T* y);
template <typename T>
void global_avg_pool_backward(std::int64_t batch, std::int64_t pixels, std::int64_t channels,
                              const T* grad_y, T* grad_x);

// The same on a GPU.
template <typename T>
void max_pool2d_forward(const CudaQueue& queue, const Pool2dShape& shape, const T* x, T* y,
                        std::uint16_t* argmax);
template <typename T>
void max_pool2d_backward(const CudaQueue& queue, const Pool2dShape& shape, const T* grad_y,
                         const std::uint16_t* argmax, T* grad_x);
template <typename T>
void avg_pool2d_forward(const CudaQueue& queue, const Pool2dShape& shape, bool count_include_pad,
                        const T* x, T* y);
template <typename T>
void avg_pool2d_backward(const CudaQueue& queue, const Pool2dShape& shape, bool count_include_pad,
                         const T* grad_y, T* grad_x);
template <typename T>
void global_avg_pool_forward(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                             std::int64_t channels, const T* x, T* y);
template <typename T>
void global_avg_pool_backward(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                              std::int64_t channels, const T* grad_y, T* grad_x);

}  // namespace steelyard::kernels
