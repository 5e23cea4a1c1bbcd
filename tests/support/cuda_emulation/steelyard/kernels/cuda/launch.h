// Stands in for kernels/cuda/launch.h when kernel sources are compiled as C++ for tests: the part
// of CUDA C++ that the kernels use, run by tests/support/cuda_emulation. Static __shared__ memory
// is left out on purpose, and so is everything the kernels have no need for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/intrinsics.h"
#include "tests/support/cuda_emulation/members.h"
#include "tests/support/cuda_emulation/queued_work.h"
#include "tests/support/cuda_emulation/scheduler.h"
#include "tests/support/cuda_emulation/vector_types.h"

#ifdef __CUDACC__
#error "this header stands in for CUDA, it is not for CUDA compilers"
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorUnknown = 999 };

inline const uint3& threadIdx = steelyard::emulation::coordinates.thread;
inline const uint3& blockIdx = steelyard::emulation::coordinates.block;
inline const dim3& blockDim = steelyard::emulation::coordinates.block_size;
inline const dim3& gridDim = steelyard::emulation::coordinates.grid_size;
inline constexpr int warpSize = steelyard::emulation::kWarpSize;

namespace steelyard::emulation {

inline int barrier(Collective kind, int predicate, Site site) {
  return static_cast<int>(collective({.kind = kind, .value = predicate != 0, .site = site}));
}

inline unsigned vote(Collective kind, unsigned mask, int predicate, Site site) {
  return static_cast<unsigned>(
      collective({.kind = kind, .mask = mask, .value = predicate != 0, .site = site}));
}

// Calls f(pointer) for a pointer and for those among the members of structs, at any depth. A struct
// with an array names what is filled of it: each_used(f); otherwise nothing in it is looked at.
template <typename T, typename F>
void each_pointer(const T& parameter, const F& f) {
  const auto inside = [&f](const auto& member) { each_pointer(member, f); };
  if constexpr (std::is_pointer_v<T>) {
    f(static_cast<const void*>(parameter));
  } else if constexpr (requires { parameter.each_used(inside); }) {
    parameter.each_used(inside);
  } else if constexpr (has_plain_members<T>()) {
    each_member(parameter, inside);
  }
}

template <typename T>
T shuffle(Collective kind, unsigned mask, T value, unsigned selector, int width, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  Request request{.kind = kind,
                  .mask = mask,
                  .bytes = sizeof(T),
                  .selector = selector,
                  .width = static_cast<unsigned>(width),
                  .site = site};
  std::memcpy(&request.value, &value, sizeof value);
  const std::uint64_t result = collective(request);
  std::memcpy(&value, &result, sizeof value);
  return value;
}

}  // namespace steelyard::emulation

// The place of each call is for the messages about calls that not all threads reach.
#define STEELYARD_SITE steelyard::emulation::Site site = steelyard::emulation::Site::current()
#define STEELYARD_COLLECTIVE steelyard::emulation::Collective

inline void __syncthreads(STEELYARD_SITE) {
  steelyard::emulation::barrier(STEELYARD_COLLECTIVE::kSyncThreads, 0, site);
}
inline int __syncthreads_or(int predicate, STEELYARD_SITE) {
  return steelyard::emulation::barrier(STEELYARD_COLLECTIVE::kSyncThreadsOr, predicate, site);
}
inline int __syncthreads_and(int predicate, STEELYARD_SITE) {
  return steelyard::emulation::barrier(STEELYARD_COLLECTIVE::kSyncThreadsAnd, predicate, site);
}
inline int __syncthreads_count(int predicate, STEELYARD_SITE) {
  return steelyard::emulation::barrier(STEELYARD_COLLECTIVE::kSyncThreadsCount, predicate, site);
}

inline void __syncwarp(unsigned mask = steelyard::emulation::kFullMask, STEELYARD_SITE) {
  steelyard::emulation::vote(STEELYARD_COLLECTIVE::kSyncWarp, mask, 0, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, STEELYARD_SITE) {
  return steelyard::emulation::vote(STEELYARD_COLLECTIVE::kBallot, mask, predicate, site);
}
inline int __any_sync(unsigned mask, int predicate, STEELYARD_SITE) {
  return steelyard::emulation::vote(STEELYARD_COLLECTIVE::kAny, mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, STEELYARD_SITE) {
  return steelyard::emulation::vote(STEELYARD_COLLECTIVE::kAll, mask, predicate, site) != 0;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize, STEELYARD_SITE) {
  return steelyard::emulation::shuffle(STEELYARD_COLLECTIVE::kShuffle, mask, value,
                                       static_cast<unsigned>(lane), width, site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, STEELYARD_SITE) {
  return steelyard::emulation::shuffle(STEELYARD_COLLECTIVE::kShuffleUp, mask, value, delta, width,
                                       site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, STEELYARD_SITE) {
  return steelyard::emulation::shuffle(STEELYARD_COLLECTIVE::kShuffleDown, mask, value, delta,
                                       width, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, STEELYARD_SITE) {
  return steelyard::emulation::shuffle(STEELYARD_COLLECTIVE::kShuffleXor, mask, value,
                                       static_cast<unsigned>(lane_mask), width, site);
}

#undef STEELYARD_COLLECTIVE
#undef STEELYARD_SITE

namespace steelyard::kernels::cuda {

struct LaunchShape {
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  static_assert((sizeof(Parameters) + ... + 0) <= 32764, "all that a launch can carry");
  static_assert((std::is_convertible_v<Arguments&&, Parameters> && ...));
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "kernel parameters are copied to the device byte by byte");
  const std::tuple<Parameters...> copies(std::forward<Arguments>(arguments)...);
  std::vector<emulation::WorkMemory> memory;
  std::apply(
      [&](const Parameters&... parameters) {
        [[maybe_unused]] int index = -1;
        [[maybe_unused]] const auto take = [&](const void* pointer) {
          emulation::require_device_pointer(pointer, index);
          if (pointer != nullptr) memory.push_back({pointer});
        };
        ((++index, emulation::each_pointer(parameters, take)), ...);
      },
      copies);
  if (shape.blocks == 0) return;
  emulation::queue_work(stream, {"kernel", reinterpret_cast<const void*>(kernel),
                                 [=] {
                                   emulation::run_grid(
                                       {shape.blocks, shape.threads, shape.shared_bytes},
                                       [&] { std::apply(kernel, copies); });
                                 },
                                 std::move(memory)});
}

template <typename... Parameters>
std::int64_t resident_blocks(void (*)(Parameters...), int, std::size_t = 0) {
  return emulation::options().resident_blocks;
}

template <typename T>
T* shared_memory() {
  return reinterpret_cast<T*>(emulation::shared_memory());
}

inline void check(cudaError_t error, const char* expression, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(file) + ':' + std::to_string(line) + ": " + expression);
}

inline void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  emulation::finish(stream);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

inline void require_device() {}

}  // namespace steelyard::kernels::cuda
