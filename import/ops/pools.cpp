// Pooling, and images of other sizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/ops/windows.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/reorder.h"

namespace steelyard::imports {
namespace {

void require_image(const ExtentShape& shape) {
  if (shape.size() != 4) refuse("expected [N, C, H, W], got " + to_string(shape));
}

Pool2dGeometry geometry_of(const Window& window) {
  return {pair_of(window.kernel), pair_of(window.stride), pair_of(window.before)};
}

// The window of a pool of images; a sequence is an image of one row.
Window pool_window(const Translator& t, const ExtentShape& in) {
  Window window = window_of(t, in, {});
  if (std::any_of(window.dilation.begin(), window.dilation.end(), [](auto d) { return d != 1; })) {
    refuse("dilations are not supported");
  }
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    if (2 * window.before[i] > window.kernel[i]) refuse("padding of more than half the window");
  }
  if (in.size() == 4) return window;
  for (auto* ones : {&window.kernel, &window.stride, &window.dilation, &window.outputs}) {
    ones->insert(ones->begin(), 1);
  }
  for (auto* zeros : {&window.before, &window.after, &window.beyond})
    zeros->insert(zeros->begin(), 0);
  return window;
}

void max_pool(Translator& t) {
  const ExtentShape in = as_image(t.input(0).shape);
  Window window = pool_window(t, t.input(0).shape);
  if (t.is_read(1)) refuse("its second output, the indices");
  const ExtentShape out = window_output(in, fixed(in[1]), window);
  const std::string padded =
      padded_image(t, image_of(t), window, std::numeric_limits<float>::lowest());
  give_image(t, t.add("MaxPool2d", {padded}, geometry_of(window)), out);
}

// [1, height, width, 1]: the window's size by the pixels of it that count, which are those of the
// image or of its padding too, but none that ceil_mode takes beyond.
Constant shares_counted(const ExtentShape& in, const Window& window, bool padding_counts) {
  Constant shares{.shape = {1, window.outputs[0], window.outputs[1], 1}, .floating = true};
  const auto inside = [&](std::size_t i, std::int64_t output) {
    const std::int64_t before = padding_counts ? window.before[i] : 0;
    const std::int64_t after = padding_counts ? window.after[i] - window.beyond[i] : 0;
    const std::int64_t begin = output * window.stride[i] - window.before[i];
    return std::min(begin + window.kernel[i], fixed(in[i + 2]) + after) - std::max(begin, -before);
  };
  const std::int64_t size = window.kernel[0] * window.kernel[1];
  constexpr std::int64_t kMost = std::int64_t{1} << 12;
  if (std::max(window.outputs[0], window.outputs[1]) > kMost) refuse("an image that is too large");
  for (std::int64_t y = 0; y < window.outputs[0]; ++y) {
    for (std::int64_t x = 0; x < window.outputs[1]; ++x) {
      const std::int64_t count = inside(0, y) * inside(1, x);
      if (count < 1) refuse("a window of padding alone");
      shares.reals.push_back(static_cast<float>(size) / static_cast<float>(count));
    }
  }
  return shares;
}

bool is_all_zero(const std::vector<std::int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](std::int64_t v) { return v == 0; });
}

// By a pool in which padding counts, as exports have it, and factors. Padding that differs at both
// ends is a Pad in front.
void average_of_padded(Translator& t, const ExtentShape& in, Window window) {
  const bool padding_counts = t.node().integer("count_include_pad", 0) != 0;
  const bool all_count = padding_counts && is_all_zero(window.beyond);
  const Constant shares = all_count ? Constant{} : shares_counted(in, window, padding_counts);
  const ExtentShape out = window_output(in, fixed(in[1]), window);
  const std::string padded = padded_image(t, image_of(t), window, 0);
  std::string node = t.add("AvgPool2d", {padded}, AvgPool2dOptions{geometry_of(window)});
  if (!all_count) {
    node = t.add("MulConstant", {node}, StoredConstant{shares.shape});
    t.set_weight(node, "value", shares);
  }
  give_image(t, node, out);
}

void average_pool(Translator& t) {
  const ExtentShape in = as_image(t.input(0).shape);
  const Window window = pool_window(t, t.input(0).shape);
  const bool padding_counts = t.node().integer("count_include_pad", 0) != 0;
  const bool counts = is_all_zero(window.beyond) && (padding_counts || is_all_zero(window.before));
  if (!window.symmetric() || !counts) return average_of_padded(t, in, window);
  give_image(t, t.add("AvgPool2d", {image_of(t)}, AvgPool2dOptions{geometry_of(window)}),
             window_output(in, fixed(in[1]), window));
}

// Over all dimensions after the channels, which there need not be two of.
void global_reduction(Translator& t, const char* type) {
  const ExtentShape in = t.input(0).shape;
  if (in.size() < 3) refuse("expected [N, C, ...], got " + to_string(in));
  std::vector<std::int64_t> axes;
  ExtentShape out{in[0], in[1]};
  const bool last = t.input(0).channels_last;
  for (std::size_t i = 2; i < in.size(); ++i) {
    fixed(in[i]);
    axes.push_back(static_cast<std::int64_t>(held_axis(i, in.size(), last)));
    out.push_back({1});
  }
  t.give(t.add(type, {t.held(0, last)}, ReduceOptions{axes, true}), out, last);
}

void global_average_pool(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  if (in.size() == 3) {  // of any length
    const std::string row = t.add("GlobalAvgPool", {image_of(t)});
    const Shape one{0, 1, fixed(in[1])};
    return t.give(t.add("Reshape", {row}, NewShape{one}), {in[0], in[1], {1}}, true);
  }
  if (in.size() != 4) return global_reduction(t, "ReduceMean");
  require_image(in);
  fixed(in[2]);
  fixed(in[3]);
  t.give({.shape = {in[0], in[1], {1}, {1}},
          .channels_last = true,
          .averaged = t.node().input(0),
          .label = t.node().label()});
}

void global_max_pool(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  if (in.size() != 4) return global_reduction(t, "ReduceMax");
  require_image(in);
  t.give(t.add("MaxPool2d", {t.image(0)},
               Pool2dGeometry{.kernel = {fixed(in[2]), fixed(in[3])}, .stride = {1, 1}}),
         {in[0], in[1], {1}, {1}}, true);
}

// x / (bias + alpha * mean of x^2 over `size` neighbouring channels)^beta, where what is beyond the
// first and the last channel counts as 0.
void local_response_norm(Translator& t) {
  const ExtentShape shape = t.input(0).shape;
  require_image(shape);
  const std::int64_t size = t.node().integer("size", 0), channels = fixed(shape[1]);
  if (size < 1 || size > 2 * channels) refuse("a size of " + std::to_string(size));
  const std::string x = t.image(0);
  // Channels as the width of images that have one channel.
  const std::int64_t pixels = fixed(elements({shape[2], shape[3]}));
  std::string node = t.add("Mul", {x, x});
  node = t.add("Reshape", {node}, NewShape{{-1, pixels, channels, 1}});
  const std::int64_t before = (size - 1) / 2, after = size - 1 - before;
  if (before != after) {
    node = t.add("Pad", {node}, PadOptions{.before = {0, 0, before, 0}, .after = {0, 0, after, 0}});
  }
  node = t.add(
      "AvgPool2d", {node},
      AvgPool2dOptions{
          {.kernel = {1, size}, .stride = {1, 1}, .padding = {0, before == after ? before : 0}}});
  ExtentShape held;
  for (const std::size_t axis : held_order(4, true)) held.push_back(shape[axis]);
  node = t.add("Reshape", {node}, NewShape{open_sizes(held)});
  const auto with_number = [&](const char* type, float number) {
    node = t.add(type, {node}, StoredConstant{});
    t.set_weight(node, "value", {.shape = {}, .floating = true, .reals = {number}});
  };
  with_number("MulConstant", t.node().real("alpha", 1e-4F));
  with_number("AddConstant", t.node().real("bias", 1));
  node = t.add("Pow", {node}, Exponent{double{t.node().real("beta", 0.75F)}});
  t.give(t.add("Div", {x, node}), shape, true);
}

// --- resizing

// How output positions lie among the inputs, in the float32 arithmetic of ONNX Runtime: a position
// between two pixels is rounded as there.
struct ResizeRule {
  std::string mode;       // nearest, linear
  std::string transform;  // ONNX's coordinate_transformation_mode
  std::string rounding;   // ONNX's nearest_mode; "" before it had one
  double bend = -0.75;    // of cubic: ONNX's cubic_coeff_a

  float source(std::int64_t at, float scale, std::int64_t inputs, std::int64_t outputs) const {
    const auto x = static_cast<float>(at);
    if (scale == 1) return x;
    if (transform == "asymmetric") return x / scale;
    if (transform == "align_corners") {
      if (outputs == 1) return 0;
      return x * static_cast<float>(inputs - 1) / static_cast<float>(outputs - 1);
    }
    if (transform == "pytorch_half_pixel" && outputs == 1) return 0;
    return (x + 0.5F) / scale - 0.5F;
  }

  std::int64_t nearest(float x, float scale) const {
    const bool half = x == std::trunc(x) + 0.5F;
    float at = std::floor(x);
    if (rounding.empty() && scale < 1) at = std::ceil(x);
    if (rounding == "ceil") at = std::ceil(x);
    if (rounding == "round_prefer_floor" && !half) at = std::round(x);
    if (rounding == "round_prefer_ceil") at = std::round(x);
    return static_cast<std::int64_t>(at);
  }
};

// The weights of the pixels at -1, 0, 1 and 2 for a position that far behind 0 (R. Keys, "Cubic
// convolution interpolation for digital image processing", doi:10.1109/TASSP.1981.1163711).
std::array<double, 4> cubic_weights(double share, double bend) {
  const auto near = [bend](double d) { return ((bend + 2) * d - (bend + 3)) * d * d + 1; };
  const auto far = [bend](double d) {
    return ((bend * d - 5 * bend) * d + 8 * bend) * d - 4 * bend;
  };
  return {far(share + 1), near(share), near(1 - share), far(2 - share)};
}

// How the rule resizes one dimension.
ResizedAxis resized_axis(const ResizeRule& rule, std::int64_t inputs, std::int64_t outputs,
                         float scale) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (outputs < 1 || outputs > kMost || inputs > kMost / outputs) {
    refuse("from " + std::to_string(inputs) + " to " + std::to_string(outputs) + " pixels");
  }
  std::vector<double> weights(static_cast<std::size_t>(inputs * outputs), 0);
  const auto weight = [&](std::int64_t to, std::int64_t from) -> double& {
    const std::int64_t at = std::clamp<std::int64_t>(from, 0, inputs - 1);
    return weights[static_cast<std::size_t>(to * inputs + at)];
  };
  bool repeats = outputs % inputs == 0;
  for (std::int64_t to = 0; to < outputs; ++to) {
    const float x = rule.source(to, scale, inputs, outputs);
    if (rule.mode == "nearest") {
      const std::int64_t from = rule.nearest(x, scale);
      weight(to, from) = 1;
      repeats = repeats && std::clamp<std::int64_t>(from, 0, inputs - 1) == to / (outputs / inputs);
      continue;
    }
    const auto low = static_cast<std::int64_t>(std::floor(x));
    const double share = double{x} - static_cast<double>(low);
    if (rule.mode == "cubic") {
      const std::array<double, 4> shares = cubic_weights(share, rule.bend);
      for (std::int64_t i = 0; i < 4; ++i) {
        weight(to, low + i - 1) += shares[static_cast<std::size_t>(i)];
      }
    } else {
      weight(to, low) += 1 - share;
      weight(to, low + 1) += share;
    }
    repeats = repeats && outputs == inputs && weight(to, to) == 1;
  }
  if (repeats) return {.repeats = outputs / inputs};  // of an image of any size
  return {.inputs = inputs, .outputs = outputs, .weights = std::move(weights)};
}

std::vector<float> reals_of(const Constant& constant, const char* what) {
  if (!constant.floating) refuse(std::string(what) + ": expected floats");
  return constant.reals;
}

// One dimension of a constant.
Constant resized_constant(const Constant& x, std::size_t axis, const ResizedAxis& rule) {
  const std::int64_t inputs = x.shape[axis];
  const std::int64_t outputs = rule.repeats > 0 ? inputs * rule.repeats : rule.outputs;
  Constant y{.shape = x.shape, .floating = true};
  y.shape[axis] = outputs;
  const std::int64_t inner = strides_of(x.shape)[axis];
  const std::int64_t size = grown_size(y.shape, /*floating=*/true, x.size());
  for (std::int64_t at = 0; at < size; ++at) {
    const std::int64_t to = at / inner % outputs, outer = at / inner / outputs;
    const auto from = [&](std::int64_t i) {
      return double{x.reals[static_cast<std::size_t>((outer * inputs + i) * inner + at % inner)]};
    };
    double sum = rule.repeats > 0 ? from(to / rule.repeats) : 0;
    for (std::int64_t i = 0; rule.repeats <= 0 && i < inputs; ++i) {
      sum += rule.weights[static_cast<std::size_t>(to * inputs + i)] * from(i);
    }
    y.reals.push_back(static_cast<float>(sum));
  }
  return y;
}

void give_resized_constant(Translator& t, const ResizeOptions& options) {
  const ImportedValue& in = t.input(0);
  const Shape shape = in.known->shape;
  if (!in.known->floating) refuse("of integers");
  Constant image = *in.known;
  if (shape.size() == 3) image.shape.insert(image.shape.begin() + 2, 1);
  Constant y = resized_constant(resized_constant(image, 2, options.height), 3, options.width);
  if (shape.size() == 3) y.shape.erase(y.shape.begin() + 2);
  t.give({.shape = {}, .known = std::move(y), .repeated = in.repeated});
}

void resized(Translator& t, const ResizeRule& rule, std::vector<float> scales,
             std::vector<std::int64_t> sizes) {
  const ImportedValue& value = t.input(0);
  ExtentShape held = value.shape;
  if (value.known) {
    for (const std::int64_t dim : value.known->shape) held.push_back({dim});
  }
  const ExtentShape in = as_image(held);
  const std::size_t rank = held.size();
  if (sizes.size() != rank && scales.size() != rank) {
    refuse("expected " + std::to_string(rank) + " scales or sizes");
  }
  if (rank == 3 && scales.size() == rank) scales.insert(scales.begin() + 2, 1);
  if (rank == 3 && sizes.size() == rank) sizes.insert(sizes.begin() + 2, 1);
  for (const std::size_t axis : {0U, 1U}) {
    const bool same =
        sizes.size() == 4 ? Extent{sizes[axis]} == in[axis] || axis == 0 : scales[axis] == 1;
    if (!same) refuse("of the batch or of channels");
  }
  ExtentShape out = in;
  ResizeOptions options;
  for (const std::size_t axis : {2U, 3U}) {
    const std::int64_t inputs = fixed(in[axis]);
    std::int64_t outputs = 0;
    float scale = 0;
    if (sizes.size() == 4) {
      outputs = sizes[axis];
      scale = static_cast<float>(outputs) / static_cast<float>(inputs);
    } else {
      scale = scales[axis];
      // In float32, as ONNX's shape inference and its runtimes multiply.
      const float size = std::floor(static_cast<float>(inputs) * scale);
      if (!(size >= 1 && size < 1e9)) refuse("a scale of " + std::to_string(scale));
      outputs = static_cast<std::int64_t>(size);
    }
    (axis == 2 ? options.height : options.width) = resized_axis(rule, inputs, outputs, scale);
    out[axis] = {outputs};
  }
  if (value.known) return give_resized_constant(t, options);
  const bool same = options.height.repeats == 1 && options.width.repeats == 1;
  // ONNX Runtime copies images that keep their size, whatever the scales are.
  if (same || out == in) return t.give(t.input(0));
  give_image(t, t.add("Resize", {image_of(t)}, options), out);
}

void require_known(const std::string& word, std::initializer_list<const char*> known,
                   const char* what) {
  if (std::find(known.begin(), known.end(), word) == known.end()) {
    refuse(std::string(what) + ": " + word + " is not supported");
  }
}

void resize(Translator& t) {
  const OnnxNode& node = t.node();
  ResizeRule rule{node.text("mode", "nearest"),
                  node.text("coordinate_transformation_mode", "half_pixel"),
                  node.text("nearest_mode", "round_prefer_floor")};
  require_known(rule.mode, {"nearest", "linear", "cubic"}, "mode");
  require_known(rule.transform, {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"},
                "coordinate_transformation_mode");
  require_known(rule.rounding, {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"},
                "nearest_mode");
  if (t.opset() < 11) {  // (input, scales)
    rule.transform = "asymmetric";
    rule.rounding = "";
  }
  rule.bend = double{node.real("cubic_coeff_a", -0.75F)};
  if (node.integer("exclude_outside", 0) != 0) refuse("exclude_outside is not supported");
  if (node.integer("antialias", 0) != 0) refuse("antialias is not supported");
  if (node.has("axes")) refuse("axes are not supported");
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    refuse("keep_aspect_ratio_policy is not supported");
  }
  const std::size_t at = t.opset() < 11 ? 1 : 2;
  std::vector<float> scales;
  std::vector<std::int64_t> sizes;
  if (const Constant* given = t.optional_constant(at, "scales"))
    scales = reals_of(*given, "scales");
  if (at == 2 && t.has_input(3)) {
    for (const Extent& e : t.constant(3, "sizes").integers) sizes.push_back(e.value);
  }
  resized(t, rule, scales, sizes);
}

// Resize's name before operation set 10.
void upsample(Translator& t) {
  const ResizeRule rule{t.node().text("mode", "nearest"), "asymmetric", ""};
  require_known(rule.mode, {"nearest", "linear"}, "mode");
  std::vector<float> scales = t.node().reals("scales");  // before operation set 9
  if (const Constant* given = t.optional_constant(1, "scales")) scales = reals_of(*given, "scales");
  resized(t, rule, scales, {});
}

}  // namespace

std::vector<OperationRow> window_operations() {
  return {
      {"MaxPool", max_pool, "3 spatial dimensions, dilations, indices that are read"},
      {"AveragePool", average_pool, "3 spatial dimensions, dilations"},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalMaxPool", global_max_pool},
      {"LRN", local_response_norm, "other than two spatial dimensions"},
      {"Resize", resize, "3 spatial dimensions, exclude_outside, antialias, regions, axes"},
      {"Upsample", upsample},
  };
}

}  // namespace steelyard::imports
