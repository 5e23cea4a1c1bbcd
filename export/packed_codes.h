// Codes of fewer than 8 bits as files hold them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace steelyard::deploy {

// The bytes of codes of `bits` bits, 2, 4 or 8, the first in the lowest bits of a byte.
std::string packed_codes(std::span<const std::int8_t> codes, int bits);

}  // namespace steelyard::deploy
