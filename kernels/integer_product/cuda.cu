// Integer products: codes on tensor cores (window_codes.h), depthwise ones as sums of their own.
// What neither takes, products in groups and GPUs of before compute capability 8, are products of
// bfloat16 that are added in float: exact, because operands of at most 8 bits are bfloat16 numbers
// and every sum is cut into parts that stay below 2^24 (docs/numerics.md). Tensor cores align the
// terms of a sum with the largest one and keep at least 23 bits after its leading bit (Fasi et al.,
// PeerJ CS 7:e330, 2021; Xie et al., arXiv:2511.10909, 2025): so integers below 2^24 lose nothing.
// The parts are batches of one product; a kernel adds them as int32.
#include <algorithm>

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/cuda/windows.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/integer_product/depthwise_strips.h"
#include "steelyard/kernels/integer_product/terms.h"
#include "steelyard/kernels/integer_product/window_codes.h"

namespace steelyard::kernels {
namespace {

using cuda::divide;
using cuda::Divisor;
using cuda::kEight;
using cuda::launch_elements;
using cuda::Scratch;

// Operands and parts of as many rows as fit are in memory at a time.
constexpr std::int64_t kScratchBytes = std::int64_t{128} << 20;

// How the products of one output are laid out: of each group [parts, part_terms], the taps of the
// kernel after each other with the channels of each side by side, zeros after the last.
struct Terms {
  Divisor groups;
  Divisor channels;    // per group
  Divisor outputs;     // per group
  std::int64_t terms;  // channels * taps
  Divisor parts;
  Divisor part_terms;    // a multiple of 8
  Divisor group_eights;  // parts * part_terms / 8

  std::int64_t row() const { return groups * group_eights * kEight; }
  // How many float sums there are for each row.
  std::int64_t sums() const { return groups * parts * outputs; }
};

Terms terms_of(const Conv2dShape& s, std::int64_t largest) {
  const std::int64_t terms = s.in_channels_per_group() * s.kernel_h * s.kernel_w;
  const std::int64_t eights = (terms + kEight - 1) / kEight;
  // The sum stays below 2^24: at most this many groups of eight terms hold products, the rest are
  // zeros.
  const std::int64_t most = std::max<std::int64_t>(1, ((1 << 24) - 1) / (largest * kEight));
  const std::int64_t parts = std::max<std::int64_t>(1, (eights + most - 1) / most);
  const std::int64_t part_eights = (eights + parts - 1) / parts;
  return {.groups = s.groups,
          .channels = s.in_channels_per_group(),
          .outputs = s.out_channels_per_group(),
          .terms = terms,
          .parts = parts,
          .part_terms = part_eights * kEight,
          .group_eights = parts * part_eights};
}

// An integer of at most 8 bits and a sign as bfloat16.
__device__ std::uint16_t integer_bits(std::int32_t value) {
  return narrow<BFloat16>(static_cast<float>(value)).bits;
}

// The operands of the products of output pixels from `first` on. Weights are [groups, parts,
// outputs, part_terms], the taps of pixels [pixels, groups, parts * part_terms].
template <typename Code>
struct Operands {
  Terms t;
  cuda::ConvSizes c;
  IntegerConv2d<Code> k;
  std::int64_t first;
  std::uint16_t *weights, *taps;

  // Element i, from weights [O, C / groups, taps].
  __device__ void write_weight(std::int64_t i) const {
    const std::int64_t line = divide(i, t.part_terms);
    const std::int64_t batch = divide(line, t.outputs);
    const std::int64_t group = divide(batch, t.parts);
    const std::int64_t output = group * t.outputs + (line - batch * t.outputs);
    const std::int64_t term = (batch - group * t.parts) * t.part_terms + (i - line * t.part_terms);
    const std::int64_t tap = divide(term, t.channels);
    const std::int64_t channel = term - tap * t.channels;
    weights[i] =
        term < t.terms ? integer_bits(k.w[(output * t.channels + channel) * c.taps + tap]) : 0;
  }

  // Eight terms; zero where a tap lies in the padding.
  __device__ void write_taps(std::int64_t thread) const {
    const std::int64_t line = divide(thread, t.group_eights);
    const std::int64_t row = divide(line, t.groups);
    const std::int64_t group = line - row * t.groups;
    const cuda::WindowPlace place = cuda::window_place(c, first + row);
    const Code* from =
        k.x + place.image * c.s.in_h * c.s.in_w * c.s.in_channels + group * t.channels;
    const std::int64_t term = (thread - line * t.group_eights) * kEight;
    const std::int32_t zero = *k.zero_point;
    std::int64_t tap = divide(term, t.channels);
    std::int64_t channel = term - tap * t.channels;
    const Code* source = nullptr;  // the tap's pixel, null in the padding and after the last tap
    bool moved = true;
    alignas(16) std::uint16_t bits[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if (moved) {
        const std::int64_t pixel = tap < c.taps ? cuda::pixel_under(c, place, tap) : -1;
        source = pixel < 0 ? nullptr : from + pixel * c.s.in_channels;
      }
      bits[i] = source == nullptr ? 0 : integer_bits(source[channel] - zero);
      moved = ++channel == t.channels;
      channel = moved ? 0 : channel;
      tap += moved ? 1 : 0;
    }
    cuda::store_span(bits, kEight, taps + thread * kEight);
  }
};

// Both operands: the first blocks have the n_weights weights, the others n_taps eights of taps.
template <typename Code>
__global__ void __launch_bounds__(cuda::kThreads)
    operands_kernel(std::int64_t n_weights, std::int64_t n_taps, Operands<Code> operands) {
  const std::int64_t i = cuda::element_index();
  const std::int64_t others = cuda::blocks_for(n_weights) * cuda::kThreads;
  if (i < n_weights) operands.write_weight(i);
  if (i >= others && i - others < n_taps) operands.write_taps(i - others);
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
// matrix product. Of windows for which depthwise_strips.h has no kernel.
template <typename Code>
__global__ void depthwise_kernel(std::int64_t n, cuda::ConvSizes c, IntegerConv2d<Code> k) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t output_pixel = divide(i, c.out_channels);
  const std::int64_t output = i - output_pixel * c.s.out_channels;
  const cuda::WindowPlace place = cuda::window_place(c, output_pixel);
  const Code* from =
      k.x + place.image * c.s.in_h * c.s.in_w * c.s.in_channels + divide(output, c.outputs);
  const std::int8_t* weight = k.w + output * c.taps;
  const std::int32_t zero = *k.zero_point;
  std::int32_t sum = 0;
  for (std::int64_t kh = 0; kh < c.s.kernel_h; ++kh) {
    const std::int64_t h = place.top + kh * c.s.dilation_h;
    if (h < 0 || h >= c.s.in_h) continue;
    for (std::int64_t kw = 0; kw < c.s.kernel_w; ++kw) {
      const std::int64_t w = place.left + kw * c.s.dilation_w;
      if (w < 0 || w >= c.s.in_w) continue;
      sum += (from[(h * c.s.in_w + w) * c.s.in_channels] - zero) * weight[kh * c.s.kernel_w + kw];
    }
  }
  k.acc[i] = sum;
}

template <typename Code>
void convolve(const CudaQueue& queue, const IntegerConv2d<Code>& k) {
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  const Terms t = terms_of(k.shape, k.largest);
  const std::int64_t weights = t.row() * t.outputs;
  const std::int64_t row_bytes = t.row() * 2 + t.sums() * 4;
  const std::int64_t most = std::clamp<std::int64_t>(kScratchBytes / row_bytes, 1, c.pixels());
  const Scratch<std::uint16_t> weight_operand(queue, weights);
  const Scratch<std::uint16_t> operand(queue, most * t.row());
  const Scratch<float> sums(queue, most * t.sums());
  for (std::int64_t first = 0; first < c.pixels(); first += most) {
    const std::int64_t rows = std::min(most, c.pixels() - first);
    const std::int64_t new_weights = first == 0 ? weights : 0;  // the same for all parts
    const std::int64_t taps = rows * t.row() / kEight;
    cuda::launch(operands_kernel<Code>,
                 {cuda::blocks_for(new_weights) + cuda::blocks_for(taps), cuda::kThreads},
                 cuda::stream_of(queue), new_weights, taps,
                 Operands<Code>{t, c, k, first, weight_operand.data(), operand.data()});
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
    launch_elements(queue, add_parts_kernel, rows * c.s.out_channels, t, rows,
                    static_cast<const float*>(sums.data()), k.acc + first * c.s.out_channels);
  }
}

}  // namespace

template <typename Code>
void compute(const CudaQueue& queue, const IntegerConv2d<Code>& k) {
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  check_terms("integer_conv2d", c.group_columns(), k.largest);
  if (k.shape.output_size() == 0) return;
  if (cuda::sum_depthwise(queue, k, cuda::StoreAccumulators{k.acc})) return;
  if (c.channels == 1 && k.shape.groups > 1) {
    launch_elements(queue, depthwise_kernel<Code>, k.shape.output_size(), c, k);
  } else if (cuda::are_code_windows(k)) {
    const cuda::CodeWindows<Code> windows(queue, k);
    windows.multiply(cuda::StoreExactSums{windows.zero(), k.acc});
  } else {
    convolve(queue, k);
  }
}

template <typename Code>
void compute(const CudaQueue& queue, const IntegerMatmul<Code>& k) {
  check_terms("integer_matmul", k.k, k.largest);
  if (k.m == 0 || k.n == 0) return;
  if (k.k == 0) return run(queue, Fill<std::int32_t>{.n = k.m * k.n, .value = 0, .y = k.acc});
  compute(queue, as_conv(k));
}

// Emitted by kernels/requantize.
extern template void run(const CudaQueue&, const RequantizeAccumulators<std::int8_t>&);
extern template void run(const CudaQueue&, const RequantizeAccumulators<std::uint8_t>&);

template <typename Code>
const IntegerConv2d<Code>& as_conv(const IntegerConv2d<Code>& k) {
  return k;
}

template <class Product, typename Out>
void compute(const CudaQueue& queue, const RequantizedProduct<Product, Out>& k) {
  if constexpr (requires { k.product.shape; }) {
    if (cuda::sum_depthwise(queue, k.product, cuda::StoreCodes<Out>{k.to})) return;
  }
  const auto& product = as_conv(k.product);
  const Conv2dShape& s = product.shape;
  if (s.out_channels % 8 != 0 || s.output_size() == 0 || !cuda::are_code_windows(product)) {
    run(queue, k.product);
    return run(queue, k.to);
  }
  using Code = std::remove_cvref_t<decltype(*product.x)>;
  check_terms("integer product", s.in_channels * s.kernel_h * s.kernel_w, product.largest);
  const cuda::CodeWindows<Code> windows(queue, product);
  windows.multiply(cuda::RequantizeSums<Out>{windows.zero(), k.to});
}

template struct CudaKernels<IntegerProductKernels>;

}  // namespace steelyard::kernels
