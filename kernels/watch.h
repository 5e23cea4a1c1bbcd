// Watching kernels: how long each one takes that a thread runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <typeinfo>
#include <utility>

namespace steelyard::kernels {

// What a product says of itself, as `kernel.work()`.
struct ProductWork {
  std::int64_t multiply_adds = 0;
  bool over_rows = false;    // sums over the rows of a batch, as the gradient of a weight does
  bool in_integers = false;  // of codes
};

class KernelWatcher {
 public:
  virtual ~KernelWatcher() = default;
  // A kernel has ended; `work` is null unless it is a product.
  virtual void ran(const std::type_info& kernel, const ProductWork* work, double seconds) = 0;
};

// Hears of the kernels that this thread runs; null: nobody does, and kernels take no time for it.
inline thread_local KernelWatcher* kernel_watcher = nullptr;

// Runs a kernel's work, which returns when it is done. What it runs inside counts as its own.
template <class K, typename Work>
void run_watched(const K& kernel, const Work& work) {
  KernelWatcher* const watcher = std::exchange(kernel_watcher, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  try {
    work();
  } catch (...) {
    kernel_watcher = watcher;
    throw;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  kernel_watcher = watcher;
  if constexpr (requires { kernel.work(); }) {
    const ProductWork product = kernel.work();
    watcher->ran(typeid(K), &product, seconds.count());
  } else {
    watcher->ran(typeid(K), nullptr, seconds.count());
  }
}

}  // namespace steelyard::kernels
