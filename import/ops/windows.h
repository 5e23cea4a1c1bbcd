// Windows that slide over images, as ONNX's attributes say it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "steelyard/import/translator.h"

namespace steelyard::imports {

// A window that slides over an input: a number for each of its spatial dimensions.
struct Window {
  std::vector<std::int64_t> kernel, stride, dilation;
  std::vector<std::int64_t> before, after;  // padding
  std::vector<std::int64_t> beyond;         // how much of `after` ceil_mode added
  std::vector<std::int64_t> outputs;        // sizes

  bool symmetric() const { return before == after; }
};

// Of two spatial dimensions.
inline std::array<std::int64_t, 2> pair_of(const std::vector<std::int64_t>& numbers) {
  return {numbers.at(0), numbers.at(1)};
}

// Reads kernel_shape (or that of the weight), strides, dilations, pads and auto_pad for an input of
// [N, C, ...]. A last window that ceil_mode lets reach over the edge makes the padding larger.
// Throws Unsupported for sizes that do not fit.
Window window_of(const Translator& t, const ExtentShape& input, std::vector<std::int64_t> kernel);

// An attribute of `count` sizes, each `otherwise` where it is absent. Throws Unsupported for others
// than `least` to a million.
std::vector<std::int64_t> window_sizes(const OnnxNode& node, const char* name, std::size_t count,
                                       std::int64_t otherwise, std::int64_t least);

// The node that gives images, with a border of its own where the window's is not the same on both
// sides; the window's padding is 0 then.
std::string padded_image(Translator& t, const std::string& image, Window& window, double value);

// [N, channels, outputs...].
ExtentShape window_output(const ExtentShape& input, std::int64_t channels, const Window& window);

// A sequence [N, C, L] is an image [N, C, 1, L].
ExtentShape as_image(ExtentShape shape);
// Input 0 as images with channels last.
std::string image_of(Translator& t);
// Declares an output of images [N, C, H, W], or of sequences where input 0 is one.
void give_image(Translator& t, const std::string& node, ExtentShape out);

}  // namespace steelyard::imports
