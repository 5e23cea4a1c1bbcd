#include "steelyard/kernels/cuda/cuda_graph.h"

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels {
namespace {

void require(cudaError_t error, const char* what) { cuda::check(error, what, __FILE__, __LINE__); }

cudaGraphExec_t executable(void* graph) { return static_cast<cudaGraphExec_t>(graph); }

}  // namespace

CudaGraph::~CudaGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(executable(graph_));
}

void CudaGraph::begin(const CudaQueue& queue) {
  require(cudaStreamBeginCapture(cuda::stream_of(queue), cudaStreamCaptureModeRelaxed),
          "cudaStreamBeginCapture");
}

void CudaGraph::abandon(const CudaQueue& queue) noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(cuda::stream_of(queue), &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
}

void CudaGraph::end(const CudaQueue& queue) {
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(cuda::stream_of(queue), &graph);
  cudaGraphExec_t instance = nullptr;
  if (error == cudaSuccess) error = cudaGraphGetNodes(graph, nullptr, &nodes_);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&instance, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (error != cudaSuccess) cudaGetLastError();  // or the next launch would report it again
  require(error, "recording a CUDA graph");
  graph_ = instance;
}

void CudaGraph::launch(const CudaQueue& queue) const {
  require(cudaGraphLaunch(executable(graph_), cuda::stream_of(queue)), "cudaGraphLaunch");
}

}  // namespace steelyard::kernels
