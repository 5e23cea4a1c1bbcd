// What one level shows: STEELYARD_LEVEL_KERNELS is its function's name.
#include "steelyard/kernels/all_kernels.h"
#include "steelyard/kernels/cpu/levels.h"

namespace steelyard::kernels {
namespace {

using Erased = void (*)();

template <class... K>
const Erased* run_of_each(KernelList<K...>) {
  static const Erased functions[] = {
      reinterpret_cast<Erased>(static_cast<void (*)(const K&)>(run<K>))...};
  return functions;
}

}  // namespace

LevelKernels STEELYARD_LEVEL_KERNELS() {
  return {.run = run_of_each(AllCpuKernels()),
          .quant_forward = quant_forward_cpu,
          .quant_forward_with_statistics = quant_forward_with_statistics_cpu,
          .quant_backward = quant_backward_cpu,
          .quant_parameter_gradients = quant_parameter_gradients_cpu,
          .quant_batch = quant_batch_cpu};
}

}  // namespace steelyard::kernels
