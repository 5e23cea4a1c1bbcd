// Most of these run the kernels of QuantPlan.
#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/neighbours.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/fake_quantize/quant_kernel.h"

namespace steelyard::kernels {
namespace {

// The gradients that pass, which are written, too: those of kAtOnce neighbouring channels, whose
// bits of the mask are in one byte.
template <int kAtOnce, typename T, typename Result>
struct MaskedTerm {
  using Passed = cuda::Neighbours<ComputeType<T>, kAtOnce>;
  std::int64_t channels;
  const std::uint8_t* mask;
  const T* grad_y;
  Result* grad_x;

  __device__ Passed operator()(std::int64_t, std::int64_t row, std::int64_t part) const {
    const std::int64_t first = row * channels + part * kAtOnce;
    const unsigned bits = mask[first / 8] >> (first % 8);
    alignas(16) T given[kAtOnce];
    if constexpr (kAtOnce == 1) {
      given[0] = grad_y[first];
    } else {
      cuda::load_span(grad_y + first, kAtOnce, given);
    }
    Passed passed;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      passed.of[i] = pass_inside((bits >> i & 1) != 0, widen(given[i]));
    }
    return passed;
  }
  __device__ void store(std::int64_t row, std::int64_t part, const Passed& passed) const {
    alignas(16) Result rounded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) rounded[i] = narrow<Result>(passed.of[i]);
    Result* const to = grad_x + row * channels + part * kAtOnce;
    if constexpr (kAtOnce == 1) {
      *to = rounded[0];
    } else {
      cuda::store_span(rounded, kAtOnce, to);
    }
  }
};

template <int kAtOnce, typename T, typename Result>
void mask_and_sum(const CudaQueue& queue, const ApplyMaskAndSum<T, Result>& k) {
  // Eight neighbouring parts are 128 bytes, and these blocks run at once on a large GPU.
  const cuda::RowChunkLimits limits =
      kAtOnce == 1 ? cuda::RowChunkLimits{}
                   : cuda::RowChunkLimits{.blocks = 528, .rows_of_thread = 4, .width = 8};
  cuda::sum_columns<kAtOnce>(queue, cuda::make_row_chunks(1, k.rows, k.channels / kAtOnce, limits),
                             MaskedTerm<kAtOnce, T, Result>{k.channels, k.mask, k.grad_y, k.grad_x},
                             cuda::StoreColumnSums<ComputeType<T>, kAtOnce>{k.sums});
}

}  // namespace

// Emitted in files of their own.
extern template void run(const CudaQueue&, const QuantForward&);
extern template void run(const CudaQueue&, const QuantBackward&);

template <class K>
requires requires(const K& k) { quant_kernel(k); }
void compute(const CudaQueue& queue, const K& k) { run(queue, quant_kernel(k)); }

template <typename T, typename Result>
void compute(const CudaQueue& queue, const ApplyMaskAndSum<T, Result>& k) {
  if (k.channels % cuda::kEight == 0) {
    mask_and_sum<cuda::kEight>(queue, k);
  } else {
    mask_and_sum<1>(queue, k);
  }
}

template struct CudaKernels<FakeQuantizeKernels>;
template struct CudaKernels<RoundedGradientKernels>;

}  // namespace steelyard::kernels
