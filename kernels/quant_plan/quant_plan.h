// One plan for every quantization: what to compute, for which tensor, on which device; then run it.
//
// A plan is chosen once (`select` throws where the description makes no sense or the device does
// not do it) and run many times on raw pointers. `run` neither allocates device memory nor waits
// for the device; scale and zero point are never looked at on the host.
//
// Every plan is deterministic and gives the same bits on CPU and GPU, but for those of a NaN: same
// inputs, same bits, whatever the number of threads. All arithmetic is kernels/affine.h, and sums
// follow the one order of kernels/quant_plan/quant_sums.h. A plan never changes after select(): any
// number of threads may run one at once, each with arrays and a workspace of its own (scales and
// zero points that a call only reads may be shared).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "steelyard/kernels/device_type.h"
#include "steelyard/kernels/quant_plan/quant_arrays.h"

namespace steelyard::kernels {

// A cudaStream_t, or null: the default stream, or the CPU.
using Stream = void*;

// What to compute, for a tensor of which shape, with which elements sharing a scale.
struct QuantDescriptor {
  QuantSpec spec = {};
  Granularity granularity = Granularity::kTensor;
  GranularityOptions options = {};
  std::vector<std::int64_t> shape = {};  // at most 8 axes; {} is one element
  // The strides of every array of values, in elements; {} is dense. They may be negative, pointers
  // are those of the first element; elements must not overlap.
  std::vector<std::int64_t> strides = {};
};

struct QuantPreference {
  std::size_t workspace_limit_bytes = std::numeric_limits<std::size_t>::max();
};

struct QuantPrecision {
  ValueType math;         // f32 or f64
  ValueType accumulator;  // of parameter gradients: chunks of 1,024 terms in `math`, those in this
};

class QuantPlan {
 public:
  // Throws std::invalid_argument (descriptor) or std::runtime_error (built without CUDA, workspace
  // limit), saying what was expected and what was given.
  static QuantPlan select(const QuantDescriptor& descriptor, DeviceType device,
                          const QuantPreference& preference = {});

  // Whether run(arrays) would work: which arrays there are, their types, lengths and alignment, and
  // that those which are written share no memory with others. With `check_parameters` scale and
  // zero point are read too (which waits for the default stream): finite, scale > 0,
  // qmin <= zero point <= qmax, and 0 where symmetric. Those that a call writes before it reads
  // them are left out.
  QuantStatus can_implement(const QuantArrays& arrays, bool check_parameters = false) const;

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::int64_t num_parameter_sets() const { return problem_.map.sets; }
  std::int64_t elements() const { return problem_.map.elements; }
  // "fake_quantize_backward_lsq_channel_f32_u8_cuda".
  const std::string& identity() const { return identity_; }
  QuantPrecision precision() const;
  const QuantDescriptor& descriptor() const { return descriptor_; }
  const QuantProblem& problem() const { return problem_; }
  DeviceType device() const { return device_; }

  // Computes. Throws std::invalid_argument with can_implement's words. `workspace`: at least
  // workspace_bytes() on the device, 16-byte aligned, apart from the arrays, free again when the
  // stream has passed; {} where that is 0.
  //
  // Given scales and zero points are not looked at. Where a scale is 0, negative or not finite, or
  // a zero point is outside the range, the values, gradients and codes of its set are unspecified
  // (a scale of 0 divides by 0), those of other sets are right, and nothing else is written:
  // can_implement(arrays, true) says so beforehand.
  void run(Stream stream, std::span<std::byte> workspace, const QuantArrays& arrays) const;

 private:
  void require_workspace(std::span<std::byte> workspace, const QuantArrays& arrays) const;
  void launch(Stream stream, void* workspace, const QuantArgs& args) const;

  QuantDescriptor descriptor_;
  QuantProblem problem_;
  DeviceType device_ = DeviceType::kCpu;
  std::size_t workspace_bytes_ = 0;
  std::string identity_;
};

// One tensor of a batch: a fake-quantize or quantize plan with given scales, and its arrays.
struct QuantBatchItem {
  const QuantPlan* plan = nullptr;
  QuantArrays arrays = {};
};

// Runs forward plans with given statistics together: all weights of a model in one launch (on a GPU
// one for every 64). The plans are of one device and value type; on a GPU dense and not cut into
// ragged groups or blocks. Throws std::invalid_argument naming the item.
void run_batch(Stream stream, const std::vector<QuantBatchItem>& items);

// g = 1 / sqrt(elements * Q): elements that share a scale (the batch's axis not counted), Q = qmax
// for symmetric codes, qmax - qmin for affine ones. Throws std::invalid_argument unless both are
// positive.
double lsq_gradient_factor(std::int64_t elements, CodeRange range, bool symmetric);

}  // namespace steelyard::kernels
