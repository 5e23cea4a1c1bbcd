// Windows that slide over images, as ONNX's attributes say it.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/import/translator.h"

namespace steelyard::imports {

// Of so many spatial dimensions.
struct Window {
  std::vector<std::int64_t> kernel, stride, dilation;
  std::vector<std::int64_t> before, after;  // padding
  std::vector<std::int64_t> outputs;        // sizes

  bool symmetric() const { return before == after; }
};

// What happens if ceil_mode lets a last window reach over the edge.
enum class OverEdge { kRefuses, kPads };

// Reads kernel_shape (or that of the weight), strides, dilations, pads and auto_pad for an input of
// [N, C, ...]. Throws Unsupported for sizes that do not fit.
Window window_of(const Translator& t, const ExtentShape& input, std::vector<std::int64_t> kernel,
                 OverEdge over_edge = OverEdge::kRefuses);

// An attribute of `count` sizes, each `otherwise` where it is absent. Throws Unsupported for others
// than `least` to a million.
std::vector<std::int64_t> window_sizes(const OnnxNode& node, const char* name, std::size_t count,
                                       std::int64_t otherwise, std::int64_t least);

// The node that gives images, with a border of its own where the window's is not the same on both
// sides; the window's padding is 0 then.
std::string padded_image(Translator& t, const std::string& image, Window& window, double value);

// [N, channels, outputs...].
ExtentShape window_output(const ExtentShape& input, std::int64_t channels, const Window& window);

}  // namespace steelyard::imports
