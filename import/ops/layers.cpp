// Operations with weights: convolutions, products with matrices.
#include <algorithm>
#include <numeric>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/ops/windows.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/linear.h"

namespace steelyard::imports {
namespace {

ExtentShape with_last(const ExtentShape& shape, Extent last) {
  ExtentShape result(shape.begin(), shape.end() - 1);
  result.push_back(last);
  return result;
}

void set_bias(Translator& t, const std::string& module, std::size_t input, std::int64_t size) {
  if (t.has_input(input)) t.set_weight(module, "bias", t.constant(input, "bias"), {size});
}

void conv(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const Constant& weight = t.constant(1, "weight");
  const Shape& w = weight.shape;
  const std::int64_t groups = t.node().integer("group", 1);
  const std::size_t rank = in.size();
  if (rank != 3 && rank != 4) refuse("of " + std::to_string(rank - 2) + " spatial dimensions");
  const std::int64_t channels = channels_of(in);
  if (w.size() != rank || groups < 1 || groups > channels || w[1] * groups != channels) {
    refuse("its weight " + shape_string(w) + " does not fit the input " + to_string(in));
  }
  Window window = window_of(t, in, {w.begin() + 2, w.end()});
  const std::string image = padded_image(t, t.image(0), window, 0);
  const std::string& name = t.node().input(1);
  const std::string module = rank == 4
                                 ? t.add_named(name, "Conv2d", {image},
                                               Conv2dOptions{.in_channels = channels,
                                                             .out_channels = w[0],
                                                             .kernel_size = pair_of(window.kernel),
                                                             .stride = pair_of(window.stride),
                                                             .padding = pair_of(window.before),
                                                             .dilation = pair_of(window.dilation),
                                                             .groups = groups,
                                                             .bias = t.has_input(2)})
                                 : t.add_named(name, "Conv1d", {image},
                                               Conv1dOptions{.in_channels = channels,
                                                             .out_channels = w[0],
                                                             .kernel_size = window.kernel[0],
                                                             .stride = window.stride[0],
                                                             .padding = window.before[0],
                                                             .dilation = window.dilation[0],
                                                             .groups = groups,
                                                             .bias = t.has_input(2)});
  t.set_weight(module, "weight", weight);
  set_bias(t, module, 2, w[0]);
  t.give(module, window_output(in, w[0], window), true);
}

// The sizes of a transposed convolution, for each spatial dimension; of images, so many rows and
// columns.
struct Spread {
  std::vector<std::int64_t> kernel, stride, dilation, extra;
  std::vector<std::int64_t> before = {}, after = {}, outputs = {};
};

// auto_pad and output_shape say the output's size, from which the padding follows.
void set_padding_for(const OnnxNode& node, Spread& s, std::size_t i, std::int64_t full) {
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const std::int64_t total = full - s.outputs[i];
  if (total < 0) {  // rows that nothing reaches
    s.extra[i] -= total;
    s.before[i] = s.after[i] = 0;
    return;
  }
  s.before[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
  s.after[i] = total - s.before[i];
}

// For an input [N, C, ...] and a weight of such a kernel.
Spread spread_of(const OnnxNode& node, const ExtentShape& in, std::vector<std::int64_t> kernel) {
  const std::size_t count = kernel.size();
  Spread s{std::move(kernel), window_sizes(node, "strides", count, 1, 1),
           window_sizes(node, "dilations", count, 1, 1),
           window_sizes(node, "output_padding", count, 0, 0)};
  const auto pads = window_sizes(node, "pads", 2 * count, 0, 0);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID") {
    refuse("auto_pad: " + automatic + " is not supported");
  }
  const auto given = node.integers("output_shape");
  if (!given.empty() && given.size() < count) refuse("output_shape " + shape_string(given));
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t size = fixed(in[i + 2]);
    const std::int64_t full =
        (size - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + s.extra[i] + 1;
    s.before.push_back(automatic == "VALID" ? 0 : pads[i]);
    s.after.push_back(automatic == "VALID" ? 0 : pads[i + count]);
    s.outputs.push_back(!given.empty() ? given[given.size() - count + i]
                        : same         ? size * s.stride[i]
                                       : full - s.before[i] - s.after[i]);
    if (same || !given.empty()) set_padding_for(node, s, i, full);
    if (s.outputs[i] < 1) refuse("its output would be empty");
  }
  return s;
}

// What the layer pads less at the beginning or the end than it should is cut off its output. Rows
// more at the end are its output_padding where that is possible.
std::string cut(Translator& t, std::string node, const Spread& s,
                const std::vector<std::int64_t>& padding) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t front = s.before[i] - padding[i], behind = s.after[i] - padding[i];
    if (front == 0 && behind <= 0) continue;
    node = t.add("Slice", {node},
                 SliceOptions{static_cast<std::int64_t>(i + 1), {front, s.outputs[i]}});
  }
  return node;
}

void conv_transpose(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const Constant& weight = t.constant(1, "weight");
  Shape w = weight.shape;
  const OnnxNode& node = t.node();
  const std::int64_t groups = node.integer("group", 1);
  if (in.size() != 3 && in.size() != 4) refuse("of other than one or two spatial dimensions");
  if (w.size() != in.size() || groups < 1 || groups > w[0] || w[0] != channels_of(in)) {
    refuse("its weight " + shape_string(w) + " does not fit the input " + to_string(in));
  }
  Spread s = spread_of(node, in, {w.begin() + 2, w.end()});
  if (in.size() == 3) {  // images of one row
    w.insert(w.begin() + 2, 1);
    for (auto* ones : {&s.kernel, &s.stride, &s.dilation, &s.outputs}) {
      ones->insert(ones->begin(), 1);
    }
    for (auto* zeros : {&s.extra, &s.before, &s.after}) zeros->insert(zeros->begin(), 0);
  }
  std::vector<std::int64_t> padding(2), extra = s.extra;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t more = s.extra[i] + s.before[i] - s.after[i];
    const bool at_the_end = more >= 0 && (more == 0 || more < std::max(s.stride[i], s.dilation[i]));
    padding[i] = at_the_end ? s.before[i] : std::min(s.before[i], s.after[i]);
    if (at_the_end) extra[i] = more;
  }
  const std::string module = t.add_named(node.input(1), "ConvTranspose2d", {image_of(t)},
                                         ConvTranspose2dOptions{.in_channels = w[0],
                                                                .out_channels = w[1] * groups,
                                                                .kernel_size = pair_of(s.kernel),
                                                                .stride = pair_of(s.stride),
                                                                .padding = pair_of(padding),
                                                                .output_padding = pair_of(extra),
                                                                .dilation = pair_of(s.dilation),
                                                                .groups = groups,
                                                                .bias = t.has_input(2)});
  t.set_weight(module, "weight", weight, w);
  set_bias(t, module, 2, w[1] * groups);
  give_image(t, cut(t, module, s, padding),
             {in[0], {w[1] * groups}, {s.outputs[0]}, {s.outputs[1]}});
}

// Adds a linear layer of values [..., inputs] and a weight [outputs, inputs]; a third operand is
// the bias.
void linear_of(Translator& t, const Constant& weight) {
  const ExtentShape in = t.input(0).shape;
  const std::int64_t inputs = weight.shape[1], outputs = weight.shape[0];
  if (in.size() < 2 || fixed(in.back()) != inputs) {
    refuse("its weight [" + std::to_string(inputs) + ", " + std::to_string(outputs) +
           "] does not fit the input " + to_string(in));
  }
  const std::string module = t.add_named(t.node().input(1), "Linear", {t.rows(0)},
                                         LinearOptions{inputs, outputs, t.has_input(2)});
  t.set_weight(module, "weight", weight);
  set_bias(t, module, 2, outputs);
  t.give_rows_of(0, module, with_last(in, {outputs}));
}

// A constant [..., inputs], as the state before the first step is, times a weight [outputs,
// inputs].
void linear_of_constant(Translator& t, const Constant& weight) {
  const Constant x = *t.input(0).known;
  const std::int64_t inputs = weight.shape[1], outputs = weight.shape[0];
  if (!x.floating || x.shape.empty() || x.shape.back() != inputs || inputs < 1) {
    refuse("its weight " + shape_string(weight.shape) + " does not fit the constant " +
           shape_string(x.shape));
  }
  Constant y{.shape = x.shape, .floating = true};
  y.shape.back() = outputs;
  grown_size(y.shape, /*floating=*/true, x.size());
  const Constant* bias = t.optional_constant(2, "bias");
  if (bias != nullptr && bias->size() != outputs) refuse("its bias " + shape_string(bias->shape));
  const auto width = static_cast<std::ptrdiff_t>(inputs);
  for (auto row = x.reals.begin(); row != x.reals.end(); row += width) {
    for (std::int64_t i = 0; i < outputs; ++i) {
      const double none = bias == nullptr ? 0 : double{bias->reals.at(static_cast<std::size_t>(i))};
      y.reals.push_back(static_cast<float>(
          std::inner_product(row, row + width, weight.reals.begin() + i * width, none)));
    }
  }
  const auto repeated = t.input(0).repeated;
  t.give({.shape = {}, .known = std::move(y), .repeated = repeated});
}

void linear(Translator& t) {
  const Constant& weight = t.constant(1, "weight");
  if (weight.shape.size() != 2) refuse("its weight " + shape_string(weight.shape));
  if (t.input(0).known) return linear_of_constant(t, weight);
  if (t.input(0).one_hot == weight.shape[1] && !t.has_input(2)) {
    const ExtentShape in = t.input(0).shape;
    const ExtentShape positions(in.begin(), in.end() - 1);
    return give_rows(t, t.classes(0), positions, t.node().input(1), transposed(weight, {1, 0}));
  }
  if (t.input(0).whole) refuse("of whole numbers");
  linear_of(t, weight);
}

// A constant matrix times values: the linear map of their columns.
void matmul_of_matrix(Translator& t) {
  const Constant& weight = *t.input(0).known;
  const ExtentShape b = t.input(1).shape;
  if (weight.shape.size() != 2) refuse("its first operand is a constant of other than a matrix");
  const std::size_t rank = b.size();
  if (rank < 3 || fixed(b[rank - 2]) != weight.shape[1]) {
    refuse("operands " + shape_string(weight.shape) + " and " + to_string(b));
  }
  Order order = held_order(rank, false);
  std::swap(order[rank - 2], order[rank - 1]);
  const std::int64_t outputs = weight.shape[0];
  const std::string module = t.add_named(t.node().input(0), "Linear", {t.held_in(1, order)},
                                         LinearOptions{weight.shape[1], outputs, /*bias=*/false});
  t.set_weight(module, "weight", weight);
  ExtentShape to = b;
  to[rank - 2] = {outputs};
  give_in_order(t, module, to, order);
}

// Input i with the leading dimensions `lead`, where it has fewer, or some of size 1.
std::string with_leading(Translator& t, std::size_t i, const ExtentShape& lead) {
  const ExtentShape from = t.input(i).shape;
  ExtentShape to = lead, filled(lead.size() + 2 - from.size(), Extent{1});
  to.insert(to.end(), from.end() - 2, from.end());
  filled.insert(filled.end(), from.begin(), from.end());
  std::string node = t.plain(i);
  for (std::size_t k = 0; k < to.size(); ++k) {
    if (to[k].of_batch && !filled[k].of_batch) refuse("of one value for all samples");
  }
  if (filled != from) node = t.add("Reshape", {node}, NewShape{open_sizes(filled)});
  if (filled != to) node = t.add("Expand", {node}, NewShape{open_sizes(to)});
  return node;
}

void matmul(Translator& t) {
  if (t.input(0).known) return matmul_of_matrix(t);
  if (const auto& weight = t.input(1).known) {  // computed from others, or it would be a Linear
    if (weight->shape.size() != 2) {
      refuse("its second operand is a constant of other than two dimensions");
    }
    return linear_of(t, transposed(*weight, {1, 0}));
  }
  const ExtentShape a = t.input(0).shape, b = t.input(1).shape;
  const bool fits = a.size() >= 2 && b.size() >= 2 && fixed(a.back()) == fixed(b[b.size() - 2]);
  if (!fits) refuse("operands " + to_string(a) + " and " + to_string(b));
  const ExtentShape lead =
      broadcast(ExtentShape(a.begin(), a.end() - 2), ExtentShape(b.begin(), b.end() - 2));
  ExtentShape to = lead;
  to.push_back(a[a.size() - 2]);
  to.push_back(b.back());
  t.give(t.add("MatMul", {with_leading(t, 0, lead), with_leading(t, 1, lead)}), to, false);
}

// One that is no product of matrices.
void einsum(Translator& t) {
  refuse("the equation " + printable(t.node().text("equation", "")) +
         " is no product of two matrices, or of a value and a constant");
}

// One that is no Linear.
void gemm(Translator& t) {
  if (t.node().integer("transA", 0) != 0) refuse("transA is set");
  const Shape& matrix = t.constant(1, "second matrix").shape;
  if (t.has_input(2)) {
    refuse("its third operand " + shape_string(t.constant(2, "third operand").shape) +
           " beside the matrix " + shape_string(matrix) + ": expected a number for each output");
  }
  refuse("its second matrix " + shape_string(matrix) + ": expected floats of two dimensions");
}

}  // namespace

std::vector<OperationRow> layer_operations() {
  return {
      {"Conv", conv, "weights that are computed, 3 spatial dimensions"},
      {"ConvTranspose", conv_transpose, "3 spatial dimensions"},
      {"Einsum", einsum,
       "other than a Transpose, or products of two matrices or of a value and a constant"},
      {"Gemm", gemm,
       "matrices that are both computed, transA, a third operand other than a number for each "
       "output"},
      {"Linear", linear, "", kOwnDomain, WholeNumbers::kRead},
      {"MatMul", matmul, "constants of more than two dimensions"},
  };
}

}  // namespace steelyard::imports
