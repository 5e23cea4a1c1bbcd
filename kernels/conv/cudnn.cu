#include "steelyard/kernels/conv/cudnn.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "steelyard/kernels/cuda/stream_handles.h"

namespace steelyard::kernels::cuda {
namespace {

void require(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw std::runtime_error("[cuda] " + std::string(call) + ": " + cudnnGetErrorString(status));
}

struct Descriptors {
  cudnnTensorDescriptor_t x = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnTensorDescriptor_t y = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

void set_math(const Descriptors& d, cudnnMathType_t math) {
  require(cudnnSetConvolutionMathType(d.convolution, math), "cudnnSetConvolutionMathType");
}

Descriptors describe(const Conv2dShape& s, MatmulPrecision precision) {
  const auto number = [](std::int64_t size) { return static_cast<int>(size); };
  Descriptors d;
  require(cudnnCreateTensorDescriptor(&d.x), "cudnnCreateTensorDescriptor");
  require(cudnnCreateFilterDescriptor(&d.w), "cudnnCreateFilterDescriptor");
  require(cudnnCreateTensorDescriptor(&d.y), "cudnnCreateTensorDescriptor");
  require(cudnnCreateConvolutionDescriptor(&d.convolution), "cudnnCreateConvolutionDescriptor");
  require(cudnnSetTensor4dDescriptor(d.x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, number(s.batch),
                                     number(s.in_channels), number(s.in_h), number(s.in_w)),
          "cudnnSetTensor4dDescriptor");
  require(cudnnSetFilter4dDescriptor(d.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC,
                                     number(s.out_channels), number(s.in_channels_per_group()),
                                     number(s.kernel_h), number(s.kernel_w)),
          "cudnnSetFilter4dDescriptor");
  require(cudnnSetTensor4dDescriptor(d.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, number(s.batch),
                                     number(s.out_channels), number(s.out_h()), number(s.out_w())),
          "cudnnSetTensor4dDescriptor");
  require(cudnnSetConvolution2dDescriptor(d.convolution, number(s.pad_h), number(s.pad_w),
                                          number(s.stride_h), number(s.stride_w),
                                          number(s.dilation_h), number(s.dilation_w),
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "cudnnSetConvolution2dDescriptor");
  require(cudnnSetConvolutionGroupCount(d.convolution, number(s.groups)),
          "cudnnSetConvolutionGroupCount");
  set_math(d, precision == MatmulPrecision::kTf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH);
  return d;
}

// The three computations behind one interface: find() lists algorithms, the one expected to be
// fastest first; measure() gives the workspace of an algorithm; run() computes `result` from the
// two operands.
constexpr float kOne = 1;
constexpr float kZero = 0;

struct Forward {
  using Algorithm = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;

  static cudnnStatus_t find(cudnnHandle_t handle, const Descriptors& d, int* count,
                            Algorithm* found) {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, d.x, d.w, d.convolution, d.y, kAlgorithms,
                                                  count, found);
  }
  static cudnnStatus_t measure(cudnnHandle_t handle, const Descriptors& d, Algorithm& by) {
    return cudnnGetConvolutionForwardWorkspaceSize(handle, d.x, d.w, d.convolution, d.y, by.algo,
                                                   &by.memory);
  }
  static cudnnStatus_t run(cudnnHandle_t handle, const Descriptors& d, const Algorithm& by,
                           void* workspace, const float* x, const float* w, float* result) {
    return cudnnConvolutionForward(handle, &kOne, d.x, x, d.w, w, d.convolution, by.algo, workspace,
                                   by.memory, &kZero, d.y, result);
  }
};

struct BackwardInput {
  using Algorithm = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;

  static cudnnStatus_t find(cudnnHandle_t handle, const Descriptors& d, int* count,
                            Algorithm* found) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.w, d.y, d.convolution, d.x,
                                                       kAlgorithms, count, found);
  }
  static cudnnStatus_t measure(cudnnHandle_t handle, const Descriptors& d, Algorithm& by) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.w, d.y, d.convolution, d.x,
                                                        by.algo, &by.memory);
  }
  static cudnnStatus_t run(cudnnHandle_t handle, const Descriptors& d, const Algorithm& by,
                           void* workspace, const float* grad_y, const float* w, float* result) {
    return cudnnConvolutionBackwardData(handle, &kOne, d.w, w, d.y, grad_y, d.convolution, by.algo,
                                        workspace, by.memory, &kZero, d.x, result);
  }
};

struct BackwardWeight {
  using Algorithm = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;

  static cudnnStatus_t find(cudnnHandle_t handle, const Descriptors& d, int* count,
                            Algorithm* found) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, d.x, d.y, d.convolution, d.w,
                                                         kAlgorithms, count, found);
  }
  static cudnnStatus_t measure(cudnnHandle_t handle, const Descriptors& d, Algorithm& by) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, d.x, d.y, d.convolution, d.w,
                                                          by.algo, &by.memory);
  }
  static cudnnStatus_t run(cudnnHandle_t handle, const Descriptors& d, const Algorithm& by,
                           void* workspace, const float* x, const float* grad_y, float* result) {
    return cudnnConvolutionBackwardFilter(handle, &kOne, d.x, x, d.y, grad_y, d.convolution,
                                          by.algo, workspace, by.memory, &kZero, d.w, result);
  }
};

// What was found for a shape; kept, because finding takes longer than running.
template <typename Pass>
struct Plan {
  Conv2dShape shape;
  MatmulPrecision precision;
  Descriptors descriptors;
  std::optional<typename Pass::Algorithm> algorithm;
};

struct Context {
  cudnnHandle_t handle = nullptr;
  std::tuple<std::list<Plan<Forward>>, std::list<Plan<BackwardInput>>,
             std::list<Plan<BackwardWeight>>>
      plans;
};

Context* make_context(const CudaQueue& queue) {
  auto* context = new Context();
  require(cudnnCreate(&context->handle), "cudnnCreate");
  require(cudnnSetStream(context->handle, stream_of(queue)), "cudnnSetStream");
  return context;
}

StreamHandles<Context*>& contexts() {
  static auto* all = new StreamHandles<Context*>(make_context);
  return *all;
}

bool is_unsupported(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
}

// The list has algorithms with and without tensor cores, whatever the descriptor asks for. The
// workspace of an algorithm depends on that. So the descriptor is set to the math type of the entry
// (float32 never uses tensor cores), and the workspace is asked for both together.
template <typename Pass>
std::optional<typename Pass::Algorithm> find_algorithm(cudnnHandle_t handle, const Descriptors& d,
                                                       MatmulPrecision precision,
                                                       std::int64_t most_bytes) {
  std::array<typename Pass::Algorithm, Pass::kAlgorithms> found;
  int count = 0;
  const cudnnStatus_t status = Pass::find(handle, d, &count, found.data());
  if (is_unsupported(status)) return std::nullopt;
  require(status, "cudnnGetConvolution...Algorithm_v7");
  for (auto* by = found.data(); by != found.data() + count; ++by) {
    if (by->status != CUDNN_STATUS_SUCCESS || by->determinism != CUDNN_DETERMINISTIC) continue;
    set_math(d, precision == MatmulPrecision::kTf32 ? by->mathType : CUDNN_FMA_MATH);
    if (Pass::measure(handle, d, *by) != CUDNN_STATUS_SUCCESS) continue;
    if (by->memory <= static_cast<std::size_t>(most_bytes)) return *by;
  }
  return std::nullopt;
}

template <typename Pass>
const Plan<Pass>& plan_for(Context& context, const CudaQueue& queue, const Conv2dShape& shape) {
  auto& plans = std::get<std::list<Plan<Pass>>>(context.plans);
  const auto known = std::find_if(plans.begin(), plans.end(), [&](const Plan<Pass>& plan) {
    return plan.shape == shape && plan.precision == queue.precision;
  });
  if (known != plans.end()) return *known;
  const Descriptors descriptors = describe(shape, queue.precision);
  return plans.emplace_back(Plan<Pass>{
      shape, queue.precision, descriptors,
      find_algorithm<Pass>(context.handle, descriptors, queue.precision, queue.part_bytes)});
}

template <typename Pass>
bool run(const CudaQueue& queue, const Conv2dShape& s, const float* a, const float* b,
         float* result) {
  // cuDNN counts in int.
  const std::int64_t largest = std::max({s.input_size(), s.output_size(), s.weight_size()});
  if (largest > std::numeric_limits<int>::max()) return false;
  if (queue.precision == MatmulPrecision::kBf16) return false;
  for (const float* p : {a, b, static_cast<const float*>(result)}) {
    if (!is_aligned(p, 16)) return false;  // its kernels read vectors
  }
  bool done = false;
  contexts().with(queue, [&](Context* context) {
    const Plan<Pass>& plan = plan_for<Pass>(*context, queue, s);
    if (!plan.algorithm) return;
    const Scratch<std::byte> workspace(queue, static_cast<std::int64_t>(plan.algorithm->memory));
    require(Pass::run(context->handle, plan.descriptors, *plan.algorithm, workspace.data(), a, b,
                      result),
            "cudnnConvolution...");
    done = true;
  });
  return done;
}

}  // namespace

bool cudnn_computes(const CudaQueue& queue, const Conv2d<float>& k) {
  return run<Forward>(queue, k.shape, k.x, k.w, k.y);
}
bool cudnn_computes(const CudaQueue& queue, const Conv2dBackwardInput<float>& k) {
  return run<BackwardInput>(queue, k.shape, k.grad_y, k.w, k.grad_x);
}
bool cudnn_computes(const CudaQueue& queue, const Conv2dBackwardWeight<float>& k) {
  return run<BackwardWeight>(queue, k.shape, k.x, k.grad_y, k.grad_w);
}

}  // namespace steelyard::kernels::cuda
