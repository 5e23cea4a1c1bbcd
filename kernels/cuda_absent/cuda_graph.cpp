// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/cuda_graph.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

CudaGraph::~CudaGraph() = default;
void CudaGraph::begin(const CudaQueue&) { cuda_is_absent(); }
void CudaGraph::abandon(const CudaQueue&) noexcept {}
void CudaGraph::end(const CudaQueue&) { cuda_is_absent(); }
void CudaGraph::launch(const CudaQueue&) const { cuda_is_absent(); }

}  // namespace steelyard::kernels
