// Random numbers by position (kernels/philox.h).
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/framework/tensor/tensor.h"

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
  // The stream `first_stream` + `step`. `device_step` (i64, rank 0) contains `step` on the device.
  // Kernels there read it when they run, so that captured work that is replayed draws the numbers
  // of the step that the tensor contains by then.
  Rng(std::uint64_t seed, std::uint64_t first_stream, std::int64_t step, Tensor device_step);

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

  // Blocks of the stream `stream` + *step, or of `stream` itself where `step` is null.
  struct Blocks {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;
    std::uint64_t first = 0;
    const std::int64_t* step = nullptr;
  };
  // Sets `count` whole blocks aside for kernels on `device`.
  Blocks take_blocks(std::uint64_t count, Device device);
  // Whether numbers were drawn that would be the same in every replay of captured work: by the
  // host, or by kernels that do not read a step.
  bool drew_fixed_numbers() const { return drew_fixed_numbers_; }

  const State& state() const { return state_; }

 private:
  std::uint64_t move_past(std::uint64_t blocks);

  State state_;
  Tensor device_step_;  // undefined where the stream is not one of a step
  std::uint64_t first_stream_ = 0;
  bool drew_fixed_numbers_ = false;
};

}  // namespace steelyard
