#include "steelyard/framework/tensor/rng.h"

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <utility>

#include "steelyard/kernels/philox.h"

namespace steelyard {

Rng::Rng(std::uint64_t seed, std::uint64_t first_stream, std::int64_t step, Tensor device_step)
    : state_{seed, first_stream + static_cast<std::uint64_t>(step), 0},
      device_step_(std::move(device_step)),
      first_stream_(first_stream) {}

std::array<std::uint32_t, 4> Rng::block(std::uint64_t index) const {
  const kernels::PhiloxBlock block = kernels::philox_block(state_.seed, state_.stream, index);
  return std::to_array(block.words);
}

std::uint64_t Rng::skip_blocks(std::uint64_t count) {
  drew_fixed_numbers_ = true;
  return move_past(count);
}

Rng::Blocks Rng::take_blocks(std::uint64_t count, Device device) {
  const std::uint64_t first = move_past(count);
  if (!device_step_.defined() || device_step_.device() != device) {
    drew_fixed_numbers_ = true;
    return {state_.seed, state_.stream, first};
  }
  return {state_.seed, first_stream_, first, device_step_.data<std::int64_t>()};
}

std::uint64_t Rng::move_past(std::uint64_t blocks) {
  const std::uint64_t first = (state_.position + 3) / 4;
  state_.position = 4 * (first + blocks);
  return first;
}

std::uint32_t Rng::next_u32() {
  drew_fixed_numbers_ = true;
  const auto words = block(state_.position / 4);
  return words[state_.position++ % 4];
}

double Rng::uniform() { return kernels::unit_interval(next_u32()); }

std::uint64_t Rng::below(std::uint64_t n) {
  if (n == 0) throw std::invalid_argument("[rng] below(0)");
  // Rejection of the incomplete last interval of 64-bit words.
  const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % n + 1) % n;
  while (true) {
    const std::uint64_t high = next_u32();
    const std::uint64_t word = high << 32 | next_u32();
    if (word <= limit) return word % n;
  }
}

double Rng::normal() {
  const double u = 1.0 - uniform();  // in (0, 1]
  const double angle = 2.0 * std::numbers::pi * uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
}

}  // namespace steelyard
