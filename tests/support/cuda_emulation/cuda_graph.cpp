// kernels/cuda/cuda_graph.h for the emulated GPU.
#include "steelyard/kernels/cuda/cuda_graph.h"

#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::kernels {

CudaGraph::~CudaGraph() { delete static_cast<emulation::Work*>(graph_); }
void CudaGraph::begin(const CudaQueue& queue) { emulation::begin_recording(queue.stream); }
void CudaGraph::abandon(const CudaQueue&) noexcept { emulation::end_recording(); }
void CudaGraph::end(const CudaQueue&) {
  auto* work = new emulation::Work(emulation::end_recording());
  graph_ = work;
  nodes_ = work->size();
}
void CudaGraph::launch(const CudaQueue& queue) const {
  for (const auto& work : *static_cast<const emulation::Work*>(graph_)) {
    emulation::queue_work(queue.stream, work);
  }
}

}  // namespace steelyard::kernels
