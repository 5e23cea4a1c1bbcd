// The error messages of operations.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace steelyard::ops {

// Throws std::invalid_argument: "[conv2d] expected ..., got ...".
[[noreturn]] inline void fail(const char* op, const std::string& expected, const std::string& got) {
  throw std::invalid_argument("[" + std::string(op) + "] expected " + expected + ", got " + got);
}

// "2,2".
inline std::string pair_text(const std::array<std::int64_t, 2>& pair) {
  return std::to_string(pair[0]) + "," + std::to_string(pair[1]);
}

}  // namespace steelyard::ops
