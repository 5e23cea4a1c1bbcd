#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/terms.h"

namespace steelyard::kernels {
namespace {

template <typename Code>
__global__ void __launch_bounds__(cuda::kThreads)
    grouped_product_kernel(std::int64_t n, GroupedProduct<Code> k) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t row = cuda::divide(i, k.columns);
  k.one(row, i - row * k.columns);
}

}  // namespace

template <typename Code>
void compute(const CudaQueue& queue, const GroupedProduct<Code>& k) {
  check_terms("grouped_product", k.group_size, k.largest);
  cuda::launch_elements(queue, grouped_product_kernel<Code>, k.rows * k.columns, k);
}

template struct CudaKernels<IntegerGroupsKernels>;

}  // namespace steelyard::kernels
