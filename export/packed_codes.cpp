#include "steelyard/export/packed_codes.h"

#include "steelyard/kernels/cpu/pack_codes.h"

namespace steelyard::deploy {

std::string packed_codes(std::span<const std::int8_t> codes, int bits) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(codes.data());
  if (bits == 8) return {codes.begin(), codes.end()};
  std::string bytes((codes.size() * static_cast<std::size_t>(bits) + 7) / 8, '\0');
  kernels::pack_codes(from, std::ssize(codes), bits, reinterpret_cast<std::uint8_t*>(bytes.data()));
  return bytes;
}

}  // namespace steelyard::deploy
