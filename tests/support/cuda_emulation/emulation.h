// What tests of emulated CUDA kernels choose: the order in which threads and blocks run, what
// shared memory holds before a block writes it, how late a stream is, how much memory there is and
// when the device fails. See kernels/cuda/launch.h beside this file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace steelyard::emulation {

enum class Order { kForward, kReverse, kRandom };

struct Options {
  Order order = Order::kForward;
  // The seed of kRandom: every launch draws the same orders from the same seed.
  std::uint32_t seed = 1;
  // Fills fresh device memory, unwritten shared memory, the bytes around it and the results of
  // shuffles from lanes that took no part. 0xFF gives NaN, -1 and the largest unsigned integers.
  unsigned char poison = 0xFF;
  // A launch asking for more is refused: the least that a device with tensor cores gives.
  std::size_t shared_limit = 99 * 1024;
  // Work of a stream runs when something waits for it, not when it is queued: the latest that a
  // device could be. Work that another stream should have waited for comes too late, and memory of
  // the host that a copy still needs is read too late.
  bool deferred = false;
  // Blocks of a kernel that run at once. Few, so that kernels which go on from one part of their
  // work to the next do so in tests.
  std::int64_t resident_blocks = 3;
  // The bytes of the device's memory.
  std::size_t memory_limit = std::size_t{1} << 36;
  // The device is lost after so many kernels and copies: every call fails from then on.
  std::int64_t work_until_lost = std::numeric_limits<std::int64_t>::max();
};

// The options of the launches to come. At first they are those of the variables
// STEELYARD_EMULATED_MEMORY and STEELYARD_EMULATED_LOSS of the environment, where there are any, so
// that a whole program runs on a small or a failing device.
const Options& options();

// Throws std::runtime_error once the device is lost.
void require_alive();
// Counts a kernel or copy that was done.
void count_work();

// For messages of failing tests: "forward", "reverse" or "random, seed 7", and the poison.
std::string to_string(const Options& options);

// Sets the options for its lifetime.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& options);
  ~ScopedOptions();
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options previous_;
};

// Calls callback() or callback(options) under forward, reverse and two random orders; the other
// options stay as they are. A kernel without races gives the same results under all of them.
template <typename Callback>
void for_each_order(Callback&& callback) {
  Options each = options();
  for (const auto& [order, seed] :
       std::array<std::pair<Order, std::uint32_t>, 4>{{{Order::kForward, 1},
                                                       {Order::kReverse, 1},
                                                       {Order::kRandom, 1},
                                                       {Order::kRandom, 2}}}) {
    each.order = order;
    each.seed = seed;
    const ScopedOptions scope(each);
    if constexpr (std::is_invocable_v<Callback&, const Options&>) {
      callback(options());
    } else {
      callback();
    }
  }
}

}  // namespace steelyard::emulation
