#include "steelyard/import/ops/windows.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/layers/reorder.h"

#include <algorithm>

namespace steelyard::imports {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 20;  // of a window's sizes

}  // namespace

std::vector<std::int64_t> window_sizes(const OnnxNode& node, const char* name, std::size_t count,
                                       std::int64_t otherwise, std::int64_t least) {
  std::vector<std::int64_t> values = node.integers(name);
  if (values.empty()) values.assign(count, otherwise);
  const bool fits =
      values.size() == count && std::all_of(values.begin(), values.end(),
                                            [&](auto v) { return v >= least && v <= kMostPixels; });
  if (!fits) {
    refuse(std::string(name) + ": expected " + std::to_string(count) + " from " +
           std::to_string(least) + " to " + std::to_string(kMostPixels) + ", got " +
           shape_string(values));
  }
  return values;
}

Window window_of(const Translator& t, const ExtentShape& input, std::vector<std::int64_t> kernel) {
  if (input.size() < 3) refuse("expected images, got " + to_string(input));
  const std::size_t count = input.size() - 2;
  Window w;
  w.kernel =
      kernel.empty() ? window_sizes(t.node(), "kernel_shape", count, 0, 1) : std::move(kernel);
  w.stride = window_sizes(t.node(), "strides", count, 1, 1);
  w.dilation = window_sizes(t.node(), "dilations", count, 1, 1);
  const std::vector<std::int64_t> pads = window_sizes(t.node(), "pads", 2 * count, 0, 0);
  const std::string automatic = t.node().text("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID" && !automatic.empty()) {
    refuse("auto_pad: " + automatic + " is not supported");
  }
  const bool ceil = t.node().integer("ceil_mode", 0) != 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t size = fixed(input[i + 2]);
    const std::int64_t span = w.dilation[i] * (w.kernel[i] - 1) + 1;
    std::int64_t before = automatic == "NOTSET" || automatic.empty() ? pads[i] : 0;
    std::int64_t after = automatic == "NOTSET" || automatic.empty() ? pads[i + count] : 0;
    if (same) {
      const std::int64_t outputs = (size + w.stride[i] - 1) / w.stride[i];
      const std::int64_t total =
          std::max<std::int64_t>((outputs - 1) * w.stride[i] + span - size, 0);
      before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      after = total - before;
    }
    std::int64_t room = size + before + after - span;
    if (room < 0) refuse("its window is larger than the input " + to_string(input));
    std::int64_t beyond = 0;
    if (const std::int64_t rest = room % w.stride[i]; ceil && rest != 0) {
      const std::int64_t more = w.stride[i] - rest;
      // The window must begin inside of the input or of the padding before it.
      if (room + more < size + before) {
        beyond = more;
        after += more;
        room += more;
      }
    }
    w.before.push_back(before);
    w.after.push_back(after);
    w.beyond.push_back(beyond);
    w.outputs.push_back(room / w.stride[i] + 1);
  }
  return w;
}

ExtentShape as_image(ExtentShape shape) {
  if (shape.size() == 3) shape.insert(shape.begin() + 2, {1});
  if (shape.size() != 4) refuse("expected [N, C, L] or [N, C, H, W], got " + to_string(shape));
  return shape;
}

std::string image_of(Translator& t) {
  const ExtentShape& in = t.input(0).shape;
  if (in.size() != 3) return t.image(0);
  // A row of any length.
  const Shape row{0, 1, -1, fixed(in[1])};
  return t.add("Reshape", {t.image(0)}, NewShape{row});
}

void give_image(Translator& t, const std::string& node, ExtentShape out) {
  if (t.input(0).shape.size() == 4) return t.give(node, out, true);
  out.erase(out.begin() + 2);
  const Shape sequence{0, -1, fixed(out[1])};
  t.give(t.add("Reshape", {node}, NewShape{sequence}), out, true);
}

std::string padded_image(Translator& t, const std::string& image, Window& window, double value) {
  if (window.symmetric()) return image;
  std::vector<std::int64_t> before{0}, after{0};
  before.insert(before.end(), window.before.begin(), window.before.end());
  after.insert(after.end(), window.after.begin(), window.after.end());
  before.push_back(0);
  after.push_back(0);
  window.before.assign(window.before.size(), 0);
  window.after = window.before;
  return t.add("Pad", {image}, PadOptions{before, after, value});
}

ExtentShape window_output(const ExtentShape& input, std::int64_t channels, const Window& window) {
  ExtentShape shape{input[0], {channels}};
  for (const std::int64_t size : window.outputs) shape.push_back({size});
  return shape;
}

}  // namespace steelyard::imports
