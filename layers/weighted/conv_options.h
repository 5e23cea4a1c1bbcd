// Functions for the options of convolutions (Conv1d, Conv2d, ConvTranspose2d): checks and
// descriptions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace steelyard::conv_options {

// "3", "3x3".
inline std::string text_of(std::int64_t size) { return std::to_string(size); }
inline std::string text_of(const std::array<std::int64_t, 2>& sizes) {
  return std::to_string(sizes[0]) + "x" + std::to_string(sizes[1]);
}

inline bool all_are(std::int64_t size, std::int64_t value) { return size == value; }
inline bool all_are(const std::array<std::int64_t, 2>& sizes, std::int64_t value) {
  return sizes[0] == value && sizes[1] == value;
}

inline std::int64_t smallest(std::int64_t size) { return size; }
inline std::int64_t smallest(const std::array<std::int64_t, 2>& sizes) {
  return std::min(sizes[0], sizes[1]);
}

// Throws std::invalid_argument on sizes below 1 or groups that do not divide the channels.
template <typename Options>
void require_sizes(const std::string& layer, const Options& o) {
  if (o.in_channels < 1 || o.out_channels < 1 || smallest(o.kernel_size) < 1) {
    throw std::invalid_argument("[" + layer + "] expected channels and kernel of at least 1, got " +
                                std::to_string(o.in_channels) + ", " +
                                std::to_string(o.out_channels) + ", " + text_of(o.kernel_size));
  }
  if (o.groups < 1 || o.in_channels % o.groups != 0 || o.out_channels % o.groups != 0) {
    throw std::invalid_argument("[" + layer + "] expected groups that divide in_channels = " +
                                std::to_string(o.in_channels) +
                                " and out_channels = " + std::to_string(o.out_channels) + ", got " +
                                std::to_string(o.groups));
  }
}

// "Conv2d(1, 32, kernel 3x3, stride 1x1, padding 1x1)"; what is left at its default is left out.
template <typename Options>
std::string described(const std::string& layer, const Options& o) {
  std::string text = layer + "(" + std::to_string(o.in_channels) + ", " +
                     std::to_string(o.out_channels) + ", kernel " + text_of(o.kernel_size) +
                     ", stride " + text_of(o.stride) + ", padding " + text_of(o.padding);
  if constexpr (requires { o.output_padding; }) {
    if (!all_are(o.output_padding, 0)) text += ", output padding " + text_of(o.output_padding);
  }
  if (!all_are(o.dilation, 1)) text += ", dilation " + text_of(o.dilation);
  if (o.groups != 1) text += ", groups " + std::to_string(o.groups);
  return text + (o.bias ? ")" : ", no bias)");
}

}  // namespace steelyard::conv_options
