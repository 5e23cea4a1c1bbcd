// What one level shows: STEELYARD_LEVEL_KERNELS is its function's name, STEELYARD_CPU_KERNELS the
// list of kernels that it has.
#include "steelyard/kernels/all_kernels.h"
#include "steelyard/kernels/cpu/levels.h"
#include "steelyard/kernels/runtime_kernels.h"

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

LevelKernels STEELYARD_LEVEL_KERNELS() { return run_of_each(STEELYARD_CPU_KERNELS()); }

}  // namespace steelyard::kernels
