#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard::kernels {
namespace {

template <class Format>
__global__ void __launch_bounds__(cuda::kThreads)
    block_product_kernel(std::int64_t n, std::int64_t input_bytes, std::int64_t weight_bytes,
                         BlockProduct<Format> k) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t row = cuda::divide(i, k.columns), column = i - row * k.columns;
  const std::uint8_t* input = k.inputs + row * input_bytes;
  const std::uint8_t* weight = k.weights + column * weight_bytes;
  float sum = 0.0F;
  for (std::int64_t at = 0; at < k.terms; at += Format::kElements, weight += Format::kBytes) {
    const float weight_scale = Format::scale_of(weight);
    for (int first = 0; first < Format::kElements; first += kGgmlBlock) {
      std::int32_t products = 0;
      for (int j = 0; j < kGgmlBlock; ++j) {
        products += InputBlocks::code(input, j) * Format::code(weight, first + j);
      }
      sum += InputBlocks::scale_of(input) * weight_scale * static_cast<float>(products);
      input += InputBlocks::kBytes;
    }
  }
  k.y[i] = sum;
}

}  // namespace

template <class Format>
void compute(const CudaQueue& queue, const BlockProduct<Format>& k) {
  cuda::launch_elements(queue, block_product_kernel<Format>, k.rows * k.columns, k.input_bytes(),
                        k.weight_bytes(), k);
}

template struct CudaKernels<GgmlBlocksKernels>;

}  // namespace steelyard::kernels
