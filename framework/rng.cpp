#include "framework/rng.h"

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace steelyard {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

std::array<std::uint32_t, 4> Rng::block(std::uint64_t index) const {
  return philox(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(state_.stream), static_cast<std::uint32_t>(state_.stream >> 32)},
      {static_cast<std::uint32_t>(state_.seed), static_cast<std::uint32_t>(state_.seed >> 32)});
}

std::uint64_t Rng::skip_blocks(std::uint64_t count) {
  const std::uint64_t first = (state_.position + 3) / 4;
  state_.position = 4 * (first + count);
  return first;
}

std::uint32_t Rng::next_u32() {
  const auto words = block(state_.position / 4);
  return words[state_.position++ % 4];
}

double Rng::uniform() { return (next_u32() >> 8) * 0x1.0p-24; }

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
