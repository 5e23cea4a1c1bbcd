// run() on the CPU: that of the level that was chosen.
#include "steelyard/kernels/cpu/levels.h"

#include <algorithm>

#include "steelyard/kernels/all_kernels.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/instructions.h"
#include "steelyard/kernels/runtime_kernels.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {
namespace {

template <class K>
void (*run_at_level)(const K&) = nullptr;

template <class K>
bool set_run_of(void (*function)()) {
  run_at_level<K> = reinterpret_cast<void (*)(const K&)>(function);
  return true;
}

template <class... K>
void set_run(KernelList<K...>, void (*const* functions)()) {
  // Not a fold expression: clang takes 256 operands at most.
  [[maybe_unused]] const bool set[] = {set_run_of<K>(*functions++)...};
}

LevelKernels kernels_of(InstructionLevel level) {
  const auto is_it = [level](const BuiltLevel& built) { return built.level == level; };
  return std::ranges::find_if(built_levels(), is_it)->kernels();
}

void choose() {
  [[maybe_unused]] static const bool chosen = [] {
    const LevelKernels of_level = kernels_of(instruction_level());
    onednn::hold_to_limit();
    set_run(STEELYARD_CPU_KERNELS(), of_level);
    return true;
  }();
}

}  // namespace

template <class K>
void run(const K& kernel) {
  choose();
  if (kernel_watcher == nullptr) return run_at_level<K>(kernel);
  run_watched(kernel, [&] { run_at_level<K>(kernel); });
}
template struct CpuKernels<STEELYARD_CPU_KERNELS>;

}  // namespace steelyard::kernels
