// Operations with weights: convolutions, products with matrices, normalisations.
#include "steelyard/import/ops/windows.h"

namespace steelyard::imports {
namespace {

std::int64_t channels_of(const ExtentShape& shape) {
  if (shape.size() < 2) refuse("expected channels, got " + to_string(shape));
  return fixed(shape[1]);
}

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
  Options options{{"in_channels", channels},
                  {"out_channels", w[0]},
                  {"groups", groups},
                  {"bias", t.has_input(2)}};
  const auto size = [&](const char* name, const std::vector<std::int64_t>& values) {
    if (rank == 4) {
      options[name] = values;
    } else {
      options[name] = values[0];
    }
  };
  size("kernel", window.kernel);
  size("stride", window.stride);
  size("padding", window.before);
  size("dilation", window.dilation);
  const std::string module =
      t.add_named(t.node().input(1), rank == 4 ? "Conv2d" : "Conv1d", {image}, options);
  t.set_weight(module, "weight", weight);
  set_bias(t, module, 2, w[0]);
  t.give(module, window_output(in, w[0], window), true);
}

void conv_transpose(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const Constant& weight = t.constant(1, "weight");
  const Shape& w = weight.shape;
  const OnnxNode& node = t.node();
  const std::int64_t groups = node.integer("group", 1);
  if (in.size() != 4) refuse("of other than 2 spatial dimensions");
  if (w.size() != 4 || groups < 1 || groups > w[0] || w[0] != channels_of(in)) {
    refuse("its weight " + shape_string(w) + " does not fit the input " + to_string(in));
  }
  if (node.has("output_shape")) refuse("output_shape is not supported");
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID") refuse("auto_pad is not supported");
  const auto stride = window_sizes(node, "strides", 2, 1, 1);
  const auto dilation = window_sizes(node, "dilations", 2, 1, 1);
  const auto pads = window_sizes(node, "pads", 4, 0, 0);
  const auto extra = window_sizes(node, "output_padding", 2, 0, 0);
  if (pads[0] != pads[2] || pads[1] != pads[3]) refuse("pads differ at both ends");
  ExtentShape out{in[0], {w[1] * groups}};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t size = (fixed(in[i + 2]) - 1) * stride[i] - 2 * pads[i] +
                              dilation[i] * (w[i + 2] - 1) + extra[i] + 1;
    if (size < 1) refuse("its output would be empty");
    out.push_back({size});
  }
  const std::string module = t.add_named(node.input(1), "ConvTranspose2d", {t.image(0)},
                                         {{"in_channels", w[0]},
                                          {"out_channels", w[1] * groups},
                                          {"kernel", std::vector<std::int64_t>{w[2], w[3]}},
                                          {"stride", stride},
                                          {"padding", std::vector<std::int64_t>{pads[0], pads[1]}},
                                          {"output_padding", extra},
                                          {"dilation", dilation},
                                          {"groups", groups},
                                          {"bias", t.has_input(2)}});
  t.set_weight(module, "weight", weight);
  set_bias(t, module, 2, w[1] * groups);
  t.give(module, out, true);
}

void linear(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const Constant& weight = t.constant(1, "weight");
  if (weight.shape.size() != 2) refuse("its weight " + shape_string(weight.shape));
  const std::int64_t inputs = weight.shape[1], outputs = weight.shape[0];
  if (t.input(0).one_hot == inputs && !t.has_input(2)) {
    const ExtentShape positions(in.begin(), in.end() - 1);
    return give_rows(t, t.classes(0), positions, t.node().input(1), transposed(weight, {1, 0}));
  }
  if (t.input(0).whole) refuse("of whole numbers");
  if (in.size() < 2 || fixed(in.back()) != inputs) {
    refuse("its weight [" + std::to_string(inputs) + ", " + std::to_string(outputs) +
           "] does not fit the input " + to_string(in));
  }
  const std::string module =
      t.add_named(t.node().input(1), "Linear", {t.rows(0)},
                  {{"in_features", inputs}, {"out_features", outputs}, {"bias", t.has_input(2)}});
  t.set_weight(module, "weight", weight);
  set_bias(t, module, 2, outputs);
  t.give_rows_of(0, module, with_last(in, {outputs}));
}

void matmul(Translator& t) {
  const ExtentShape a = t.input(0).shape, b = t.input(1).shape;
  if (t.input(0).known) refuse("its first operand is a constant");
  if (t.input(1).known) refuse("its second operand is a constant of other than two dimensions");
  const bool alike = a.size() == b.size() && a.size() >= 2 &&
                     std::equal(a.begin(), a.end() - 2, b.begin()) && a.back() == b[b.size() - 2];
  if (!alike) refuse("operands " + to_string(a) + " and " + to_string(b));
  t.give(t.add("MatMul", {t.plain(0), t.plain(1)}), with_last(a, b.back()), false);
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

double epsilon(const Translator& t) {
  const double eps = t.node().real("epsilon", 1e-5F);
  if (!(eps > 0)) refuse("epsilon: expected more than 0");
  return eps;
}

void batch_norm(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const std::int64_t channels = channels_of(in);
  if (t.node().integer("training_mode", 0) != 0) refuse("training_mode is not supported");
  if (t.node().integer("spatial", 1) == 0) refuse("spatial: 0 is not supported");
  const double eps = epsilon(t);
  const bool image = in.size() > 2;
  const std::string module =
      t.add_named(t.node().input(1), "BatchNorm2d", {t.held(0, image)},
                  {{"channels", channels},
                   {"eps", eps},
                   {"momentum", 1.0 - static_cast<double>(t.node().real("momentum", 0.9F))}});
  const char* parameters[] = {"weight", "bias", "running_mean", "running_var"};
  for (std::size_t i = 0; i < 4; ++i) {
    t.set_weight(module, parameters[i], t.constant(i + 1, parameters[i]), {channels});
  }
  t.give(module, in, image);
}

void instance_norm(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const std::int64_t channels = channels_of(in);
  if (in.size() < 3) refuse("expected [N, C, ...], got " + to_string(in));
  const std::string module = t.add_named(t.node().input(1), "InstanceNorm", {t.held(0, true)},
                                         {{"channels", channels}, {"eps", epsilon(t)}});
  t.set_weight(module, "weight", t.constant(1, "scale"), {channels});
  t.set_weight(module, "bias", t.constant(2, "bias"), {channels});
  t.give(module, in, true);
}

void layer_norm(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  if (in.empty()) refuse("expected features");
  const std::int64_t features = fixed(in.back());
  if (axis_of(t.node().integer("axis", -1), in.size()) + 1 != in.size()) {
    refuse("over more than the last dimension");
  }
  const double eps = epsilon(t);
  const std::string module = t.add_named(t.node().input(1), "LayerNorm", {t.plain(0)},
                                         {{"features", features}, {"eps", eps}});
  t.set_weight(module, "weight", t.constant(1, "scale"), {features});
  const std::vector<float> none(static_cast<std::size_t>(features), 0);
  const Constant zeros{.shape = {features}, .floating = true, .reals = none};
  t.set_weight(module, "bias", t.has_input(2) ? t.constant(2, "bias") : zeros, {features});
  t.give(module, in, false);
}

}  // namespace

std::vector<OperationRow> layer_operations() {
  return {
      {"Conv", conv, "weights that are computed, 3 spatial dimensions"},
      {"ConvTranspose", conv_transpose, "one spatial dimension, auto_pad, output_shape"},
      {"Gemm", gemm,
       "matrices that are both computed, transA, a third operand other than a number for each "
       "output"},
      {"Linear", linear, "", kOwnDomain, WholeNumbers::kRead},
      {"MatMul", matmul, "operands of different leading dimensions, a constant first operand"},
      {"BatchNormalization", batch_norm, "training_mode"},
      {"InstanceNormalization", instance_norm},
      {"LayerNormalization", layer_norm, "more than the last dimension"},
  };
}

}  // namespace steelyard::imports
