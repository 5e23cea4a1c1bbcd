// Most of these run the kernels of QuantPlan.
#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/fake_quantize/quant_kernel.h"

namespace steelyard::kernels {
namespace {

// The gradients that pass, which are written, too.
template <typename T>
struct MaskedTerm {
  std::int64_t channels;
  const std::uint8_t* mask;
  const T* grad_y;
  T* grad_x;

  __device__ cuda::Sums<1> operator()(std::int64_t, std::int64_t row, std::int64_t channel) const {
    const std::int64_t i = row * channels + channel;
    const T passed = pass_inside((mask[i / 8] >> (i % 8) & 1) != 0, grad_y[i]);
    return {{static_cast<double>(passed)}};
  }
  __device__ void store(std::int64_t row, std::int64_t channel, const cuda::Sums<1>& passed) const {
    grad_x[row * channels + channel] = static_cast<T>(passed.of[0]);
  }
};

}  // namespace

// Emitted in files of their own.
extern template void run(const CudaQueue&, const QuantForward&);
extern template void run(const CudaQueue&, const QuantBackward&);

template <class K>
requires requires(const K& k) { quant_kernel(k); }
void compute(const CudaQueue& queue, const K& k) { run(queue, quant_kernel(k)); }

template <typename T>
void compute(const CudaQueue& queue, const ApplyMaskAndSum<T>& k) {
  cuda::sum_columns<1>(queue, cuda::make_row_chunks(1, k.rows, k.channels),
                       MaskedTerm<T>{k.channels, k.mask, k.grad_y, k.grad_x},
                       cuda::StoreSum<T>{k.sums});
}

template struct CudaKernels<FakeQuantizeKernels>;

}  // namespace steelyard::kernels
