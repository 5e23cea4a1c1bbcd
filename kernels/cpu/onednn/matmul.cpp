#include <dnnl.hpp>

#include "kernels/cpu/onednn_kernels.h"

namespace steelyard::kernels::onednn {

bool built() { return true; }

void matmul(const MatmulShape& s, const float* a, const float* b, float* c) {
  const std::int64_t lda = s.transpose_a ? s.m : s.k;
  const std::int64_t ldb = s.transpose_b ? s.k : s.n;
  const dnnl::status status = dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, 1.0F, a, lda, b, ldb, 0.0F, c, s.n);
  if (status != dnnl::status::success) {
    throw dnnl::error(static_cast<dnnl_status_t>(status), "[matmul] oneDNN's sgemm failed");
  }
}

}  // namespace steelyard::kernels::onednn
