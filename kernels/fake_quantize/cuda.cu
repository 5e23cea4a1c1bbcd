// Most of these run the kernels of QuantPlan.
#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/fake_quantize/quant_kernel.h"

namespace steelyard::kernels {
namespace {

// Writes the gradients that pass, and their sums.
template <typename T>
struct MaskedTerm {
  std::int64_t channels;
  const std::uint8_t* mask;
  const T* grad_y;
  T* grad_x;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t channel,
                             double (&sums)[1]) const {
    const std::int64_t i = row * channels + channel;
    const T passed = pass_inside((mask[i / 8] >> (i % 8) & 1) != 0, grad_y[i]);
    grad_x[i] = passed;
    sums[0] += static_cast<double>(passed);
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
