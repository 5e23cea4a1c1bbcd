// Random numbers by position (kernels/philox.h).
#pragma once

#include <array>
#include <cstdint>

namespace steelyard {

// A stream of numbers that is a pure function of (seed, stream, position): equal state, equal
// numbers, on every machine.
class Rng {
 public:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;
    std::uint64_t position = 0;  // 32-bit words drawn so far
    bool operator==(const State&) const = default;
  };

  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : state_{seed, stream, 0} {}
  explicit Rng(const State& state) : state_(state) {}

  std::uint32_t next_u32();
  // Uniform in [0, 1), 24 random bits: exact in float.
  double uniform();
  // Uniform integer in [0, n), without bias; n > 0.
  std::uint64_t below(std::uint64_t n);
  // Standard normal (Box-Muller).
  double normal();

  // The four words at positions 4 * index to 4 * index + 3 of this stream, wherever it stands: for
  // drawing in parallel.
  std::array<std::uint32_t, 4> block(std::uint64_t index) const;
  // Sets `count` whole blocks aside: moves past them and returns the index of the first.
  std::uint64_t skip_blocks(std::uint64_t count);

  const State& state() const { return state_; }

 private:
  State state_;
};

}  // namespace steelyard
