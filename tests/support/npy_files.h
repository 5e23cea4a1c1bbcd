// NumPy's .npy files, written by the format's description alone.
#pragma once

#include <string>

namespace steelyard::testing {

inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                       const std::string& order = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  return "\x93NUMPY\x01" + std::string(1, '\0') + static_cast<char>(header.size() & 0xFF) +
         static_cast<char>(header.size() >> 8) + header + data;
}

}  // namespace steelyard::testing
