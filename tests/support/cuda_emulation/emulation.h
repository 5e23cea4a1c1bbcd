// What tests of emulated CUDA kernels choose: the order in which threads and blocks run, what
// shared memory holds before a block writes it, and how late a stream is. See kernels/cuda/launch.h
// beside this file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace steelyard::emulation {

enum class Order { kForward, kReverse, kRandom };

struct Options {
  Order order = Order::kForward;
  // Of kRandom: every launch draws the same orders from the same seed.
  std::uint32_t seed = 1;
  // Fills fresh device memory, unwritten shared memory, the bytes around it and the results of
  // shuffles from lanes that took no part. 0xFF gives NaN, -1 and the largest unsigned integers.
  unsigned char poison = 0xFF;
  // A launch asking for more is refused; devices give more only to kernels that opted in.
  std::size_t shared_limit = 48 * 1024;
  // Work of a stream runs when something waits for it, not when it is queued: the latest that a
  // device could be. Work that another stream should have waited for comes too late, and memory of
  // the host that a copy still needs is read too late.
  bool deferred = false;
};

// Those of the launches to come.
const Options& options();

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
