// Integer products on tensor cores that multiply bfloat16 and add in float: exact, because operands
// of at most 8 bits are bfloat16 numbers and every sum is cut into parts that stay below 2^24
// (NUMERICS). Tensor cores align what they add to the largest of it and keep 23 bits or more behind
// its leading one (Fasi et al., PeerJ CS 7:e330, 2021; Xie et al., arXiv:2511.10909, 2025): of
// integers below 2^24 nothing is cut off. The parts are batches of one product; a kernel adds them
// as int32.
#include "steelyard/kernels/integer.h"

#include <algorithm>

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/integer_terms.h"

namespace steelyard::kernels {
namespace {

using cuda::divide;
using cuda::kEight;
using cuda::launch_elements;
using cuda::Scratch;

// Operands and parts of as many rows as fit are in memory at a time.
constexpr std::int64_t kScratchBytes = std::int64_t{128} << 20;

// How the products of one output are laid out: of each group [parts, part_terms], the taps of the
// kernel after each other with the channels of each side by side, zeros behind the last.
struct Terms {
  std::int64_t groups;
  std::int64_t channels;  // per group
  std::int64_t outputs;   // per group
  std::int64_t terms;     // channels * taps
  std::int64_t parts;
  std::int64_t part_terms;  // a multiple of 8

  STEELYARD_HOST_DEVICE std::int64_t group_terms() const { return parts * part_terms; }
  STEELYARD_HOST_DEVICE std::int64_t row() const { return groups * group_terms(); }
  // Of float sums for each row.
  std::int64_t sums() const { return groups * parts * outputs; }
};

Terms terms_of(const Conv2dShape& s, std::int64_t largest) {
  Terms t;
  t.groups = s.groups;
  t.channels = s.in_channels_per_group();
  t.outputs = s.out_channels_per_group();
  t.terms = t.channels * s.kernel_h * s.kernel_w;
  const std::int64_t eights = (t.terms + kEight - 1) / kEight;
  // Below 2^24 with zeros at the end: at most this many eights hold products.
  const std::int64_t most = std::max<std::int64_t>(1, ((1 << 24) - 1) / (largest * kEight));
  t.parts = std::max<std::int64_t>(1, (eights + most - 1) / most);
  t.part_terms = (eights + t.parts - 1) / t.parts * kEight;
  return t;
}

// An integer of at most 8 bits and a sign as bfloat16.
__device__ std::uint16_t integer_bits(std::int32_t value) {
  return narrow<BFloat16>(static_cast<float>(value)).bits;
}

// Element i of weights [O, C / groups, taps] as [groups, parts, outputs, part_terms].
__device__ void write_weight(std::int64_t i, const Terms& t, std::int64_t taps,
                             const std::int8_t* w, std::uint16_t* operand) {
  const std::int64_t line = divide(i, t.part_terms);
  const std::int64_t batch = divide(line, t.outputs);
  const std::int64_t group = divide(batch, t.parts);
  const std::int64_t output = group * t.outputs + (line - batch * t.outputs);
  const std::int64_t k = (batch - group * t.parts) * t.part_terms + (i - line * t.part_terms);
  const std::int64_t tap = divide(k, t.channels);
  const std::int64_t channel = k - tap * t.channels;
  operand[i] = k < t.terms ? integer_bits(w[(output * t.channels + channel) * taps + tap]) : 0;
}

// Eight terms of the taps of output pixels, [pixels, groups, parts * part_terms] from pixel `first`
// on; zero where a tap lies in the padding.
template <typename Code>
__device__ void write_taps(std::int64_t thread, const Terms& t, const Conv2dShape& s,
                           std::int64_t out_h, std::int64_t out_w, std::int64_t first,
                           const Code* x, std::int32_t zero, std::uint16_t* operand) {
  const std::int64_t eights = t.group_terms() / kEight;
  const std::int64_t line = divide(thread, eights);
  const std::int64_t row = divide(line, t.groups);
  const std::int64_t group = line - row * t.groups;
  const std::int64_t pixel = first + row;
  const std::int64_t oh_row = divide(pixel, out_w);
  const std::int64_t image = divide(oh_row, out_h);
  const std::int64_t top = (oh_row - image * out_h) * s.stride_h - s.pad_h;
  const std::int64_t left = (pixel - oh_row * out_w) * s.stride_w - s.pad_w;
  const Code* from = x + image * s.in_h * s.in_w * s.in_channels + group * t.channels;
  std::int64_t k = (thread - line * eights) * kEight;
  std::int64_t tap = divide(k, t.channels);
  std::int64_t channel = k - tap * t.channels;
  const Code* source = nullptr;  // the tap's pixel, null in the padding and behind the last tap
  bool moved = true;
  alignas(16) std::uint16_t bits[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (moved) {
      const std::int64_t kh = divide(tap, s.kernel_w);
      const std::int64_t h = top + kh * s.dilation_h;
      const std::int64_t w = left + (tap - kh * s.kernel_w) * s.dilation_w;
      const bool inside = kh < s.kernel_h && h >= 0 && h < s.in_h && w >= 0 && w < s.in_w;
      source = inside ? from + (h * s.in_w + w) * s.in_channels : nullptr;
    }
    bits[i] = source == nullptr ? 0 : integer_bits(source[channel] - zero);
    moved = ++channel == t.channels;
    channel = moved ? 0 : channel;
    tap += moved ? 1 : 0;
  }
  cuda::store_span(bits, kEight, operand + thread * kEight);
}

// Both operands of a product: the first blocks have the n_weights weights, the others n_taps eights
// of taps.
template <typename Code>
__global__ void __launch_bounds__(cuda::kThreads)
    operands_kernel(std::int64_t n_weights, std::int64_t n_taps, Terms t, Conv2dShape s,
                    std::int64_t out_h, std::int64_t out_w, std::int64_t first,
                    const std::int8_t* w, const Code* x, const std::int32_t* zero_point,
                    std::uint16_t* weight_operand, std::uint16_t* tap_operand) {
  const std::int64_t i = cuda::element_index();
  const std::int64_t others = cuda::blocks_for(n_weights) * cuda::kThreads;
  if (i < n_weights) write_weight(i, t, s.kernel_h * s.kernel_w, w, weight_operand);
  if (i < others || i - others >= n_taps) return;
  write_taps(i - others, t, s, out_h, out_w, first, x, *zero_point, tap_operand);
}

// acc[rows, groups, outputs] = the sum of float sums [groups, parts, rows, outputs].
__global__ void add_parts_kernel(std::int64_t n, Terms t, std::int64_t rows, const float* sums,
                                 std::int32_t* acc) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t line = divide(i, t.outputs);
  const std::int64_t row = divide(line, t.groups);
  const std::int64_t group = line - row * t.groups;
  const std::int64_t matrix = rows * t.outputs;
  const float* part = sums + group * t.parts * matrix + row * t.outputs + (i - line * t.outputs);
  std::int32_t sum = 0;
  for (std::int64_t p = 0; p < t.parts; ++p) sum += static_cast<std::int32_t>(part[p * matrix]);
  acc[i] = sum;
}

// One output of a convolution whose groups have one channel (depthwise): too few terms for a
// matrix product.
template <typename Code>
__global__ void depthwise_kernel(std::int64_t n, Conv2dShape s, std::int64_t out_h,
                                 std::int64_t out_w, std::int64_t outputs, const Code* x,
                                 const std::int32_t* zero_point, const std::int8_t* w,
                                 std::int32_t* acc) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, s.out_channels);
  const std::int64_t output = i - pixel * s.out_channels;
  const std::int64_t oh_row = divide(pixel, out_w);
  const std::int64_t image = divide(oh_row, out_h);
  const std::int64_t top = (oh_row - image * out_h) * s.stride_h - s.pad_h;
  const std::int64_t left = (pixel - oh_row * out_w) * s.stride_w - s.pad_w;
  const Code* from = x + image * s.in_h * s.in_w * s.in_channels + divide(output, outputs);
  const std::int8_t* weight = w + output * s.kernel_h * s.kernel_w;
  const std::int32_t zero = *zero_point;
  std::int32_t sum = 0;
  for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const std::int64_t h = top + kh * s.dilation_h;
    if (h < 0 || h >= s.in_h) continue;
    for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const std::int64_t column = left + kw * s.dilation_w;
      if (column < 0 || column >= s.in_w) continue;
      sum += (from[(h * s.in_w + column) * s.in_channels] - zero) * weight[kh * s.kernel_w + kw];
    }
  }
  acc[i] = sum;
}

template <typename Code>
void convolve(const CudaQueue& queue, const Conv2dShape& s, const Code* x,
              const std::int32_t* zero_point, const std::int8_t* w, std::int32_t* acc,
              std::int64_t largest) {
  const Terms t = terms_of(s, largest);
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  const std::int64_t weights = t.row() * t.outputs;
  const std::int64_t row_bytes = t.row() * 2 + t.sums() * 4;
  const std::int64_t most = std::clamp<std::int64_t>(kScratchBytes / row_bytes, 1, pixels);
  const Scratch<std::uint16_t> weight_operand(queue, weights);
  const Scratch<std::uint16_t> operand(queue, most * t.row());
  const Scratch<float> sums(queue, most * t.sums());
  for (std::int64_t first = 0; first < pixels; first += most) {
    const std::int64_t rows = std::min(most, pixels - first);
    const std::int64_t new_weights = first == 0 ? weights : 0;  // the same for all parts
    const std::int64_t taps = rows * t.row() / kEight;
    cuda::launch(operands_kernel<Code>,
                 {cuda::blocks_for(new_weights) + cuda::blocks_for(taps), cuda::kThreads},
                 cuda::stream_of(queue), new_weights, taps, t, s, s.out_h(), s.out_w(), first, w, x,
                 zero_point, weight_operand.data(), operand.data());
    cuda::gemm_bf16(queue,
                    {.m = rows,
                     .n = t.outputs,
                     .k = t.part_terms,
                     .transpose_b = true,
                     .row_stride_a = t.row(),
                     .batches = t.groups * t.parts,
                     .batch_stride_a = t.part_terms,
                     .batch_stride_b = t.outputs * t.part_terms,
                     .batch_stride_c = rows * t.outputs},
                    operand.data(), weight_operand.data(), sums.data());
    launch_elements(queue, add_parts_kernel, rows * s.out_channels, t, rows,
                    static_cast<const float*>(sums.data()), acc + first * s.out_channels);
  }
}

}  // namespace

template <typename Code>
void integer_conv2d(const CudaQueue& queue, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest) {
  check_terms("integer_conv2d", shape.in_channels_per_group() * shape.kernel_h * shape.kernel_w,
              largest);
  if (shape.output_size() == 0) return;
  if (shape.in_channels_per_group() == 1 && shape.groups > 1) {
    launch_elements(queue, depthwise_kernel<Code>, shape.output_size(), shape, shape.out_h(),
                    shape.out_w(), shape.out_channels_per_group(), x, x_zero_point, w, acc);
  } else {
    convolve(queue, shape, x, x_zero_point, w, acc, largest);
  }
}

template <typename Code>
void integer_matmul(const CudaQueue& queue, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Code* x, const std::int32_t* x_zero_point, const std::int8_t* w,
                    std::int32_t* acc, std::int64_t largest) {
  check_terms("integer_matmul", k, largest);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    run(queue, Fill<std::int32_t>{.n = m * n, .value = 0, .y = acc});
    return;
  }
  const Conv2dShape pixels{.batch = m, .in_h = 1, .in_w = 1, .in_channels = k, .out_channels = n};
  convolve(queue, pixels, x, x_zero_point, w, acc, largest);
}

#define STEELYARD_INSTANTIATE(Code)                                                        \
  template void integer_matmul(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, \
                               const Code*, const std::int32_t*, const std::int8_t*,       \
                               std::int32_t*, std::int64_t);                               \
  template void integer_conv2d(const CudaQueue&, const Conv2dShape&, const Code*,          \
                               const std::int32_t*, const std::int8_t*, std::int32_t*,     \
                               std::int64_t);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
