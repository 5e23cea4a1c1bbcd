// Normalisations.
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/reorder.h"

namespace steelyard::imports {
namespace {

double epsilon(const Translator& t, float otherwise = 1e-5F) {
  const double eps = t.node().real("epsilon", otherwise);
  if (!(eps > 0)) refuse("epsilon: expected more than 0");
  return eps;
}

Constant filled(std::int64_t count, float value) {
  return {.shape = {count},
          .floating = true,
          .reals = std::vector<float>(static_cast<std::size_t>(count), value)};
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
                  BatchNormOptions{channels, eps, 1.0 - double{t.node().real("momentum", 0.9F)}});
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
                                         InstanceNormOptions{channels, epsilon(t)});
  t.set_weight(module, "weight", t.constant(1, "scale"), {channels});
  t.set_weight(module, "bias", t.constant(2, "bias"), {channels});
  t.give(module, in, true);
}

// An instance norm of [N, ..., C / groups, groups]; before operation set 21 it has scale and bias
// of each group, since each channel then has its own after it.
void group_norm(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  const std::int64_t channels = channels_of(in), groups = t.node().integer("num_groups", 0);
  if (in.size() < 3) refuse("expected [N, C, ...], got " + to_string(in));
  if (groups < 1 || channels % groups != 0) refuse("groups that do not divide the channels");
  const Constant &scale = t.constant(1, "scale"), &bias = t.constant(2, "bias");
  ExtentShape held;
  for (const std::size_t axis : held_order(in.size(), true)) held.push_back(in[axis]);
  Shape parts = open_sizes(held);
  parts.back() = groups;
  parts.push_back(channels / groups);
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < parts.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
  std::swap(order.back(), order[order.size() - 2]);
  std::string node = t.add("Reshape", {t.held(0, true)}, NewShape{parts});
  node = t.add("Permute", {node}, AxisOrder{order});
  const bool of_groups = scale.size() == groups;
  node = t.add_named(of_groups ? t.node().input(1) : "", "InstanceNorm", {node},
                     InstanceNormOptions{groups, epsilon(t)});
  t.set_weight(node, "weight", of_groups ? scale : filled(groups, 1), {groups});
  t.set_weight(node, "bias", of_groups ? bias : filled(groups, 0), {groups});
  node = t.add("Permute", {node}, AxisOrder{order});
  node = t.add("Reshape", {node}, NewShape{open_sizes(held)});
  if (!of_groups) {
    if (scale.size() != channels || bias.size() != channels)
      refuse("scale and bias of other sizes");
    node = with_features(t, "MulConstant", node, scale);
    node = with_features(t, "AddConstant", node, bias);
  }
  t.give(node, in, true);
}

// Input 0 with the dimensions from `axis` on as one.
struct Rows {
  std::string node;
  std::int64_t features = 1;
  bool joined = false;  // of several dimensions
};
Rows rows_from(Translator& t, std::int64_t axis) {
  const ExtentShape in = t.input(0).shape;
  if (in.empty()) refuse("expected features");
  const std::size_t first = axis_of(axis, in.size());
  if (first + 1 == in.size()) return {t.rows(0), fixed(in.back())};
  ExtentShape to(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(first));
  Rows rows{.node = "", .joined = true};
  for (std::size_t i = first; i < in.size(); ++i) rows.features *= fixed(in[i]);
  to.push_back({rows.features});
  rows.node = t.add("Reshape", {t.plain(0)}, NewShape{open_sizes(to)});
  return rows;
}

void give_rows_back(Translator& t, const Rows& rows, const std::string& node) {
  const ExtentShape in = t.input(0).shape;
  if (!rows.joined) return t.give_rows_of(0, node, in);
  t.give(t.add("Reshape", {node}, NewShape{open_sizes(in)}), in, false);
}

std::string layer_norm_of(Translator& t, const std::string& x, std::int64_t features, double eps,
                          std::size_t scale, std::size_t bias) {
  const std::string module =
      t.add_named(t.node().input(scale), "LayerNorm", {x}, LayerNormOptions{features, eps});
  t.set_weight(module, "weight", t.constant(scale, "scale"), {features});
  t.set_weight(module, "bias", t.has_input(bias) ? t.constant(bias, "bias") : filled(features, 0),
               {features});
  return module;
}

void layer_norm(Translator& t) {
  const Rows rows = rows_from(t, t.node().integer("axis", -1));
  give_rows_back(t, rows, layer_norm_of(t, rows.node, rows.features, epsilon(t), 1, 2));
}

// x / sqrt(mean of x^2 + epsilon) * scale.
std::string rms_norm_of(Translator& t, const std::string& x, std::size_t rank, double eps,
                        std::size_t scale) {
  const auto last = static_cast<std::int64_t>(rank) - 1;
  std::string node = t.add("Mul", {x, x});
  node = t.add("ReduceMean", {node}, ReduceOptions{{last}, /*keep=*/true});
  node = with_number(t, "AddConstant", node, static_cast<float>(eps));
  node = t.add("Div", {x, t.add("Sqrt", {node})});
  return with_features(t, "MulConstant", node, t.constant(scale, "scale"));
}

void rms_norm(Translator& t) {
  const std::int64_t axis = t.node().integer("axis", -1);
  const Rows rows = rows_from(t, axis);
  const std::size_t rank = t.input(0).rank();
  if (t.constant(1, "scale").size() != rows.features) refuse("a scale of another size");
  give_rows_back(t, rows, rms_norm_of(t, rows.node, axis_of(axis, rank) + 1, epsilon(t), 1));
}

// The sum of two values and a bias of the last dimension, which is an output too, and its norm.
void skip_norm(Translator& t, std::size_t bias, bool of_squares) {
  const ExtentShape in = t.input(0).shape;
  if (t.input(1).shape != in) refuse("inputs " + to_string(in) + " and others");
  if (t.is_read(1) || t.is_read(2)) refuse("its second and third outputs");
  std::string sum = t.add("Add", {t.plain(0), t.plain(1)});
  if (t.has_input(bias)) sum = with_features(t, "AddConstant", sum, t.constant(bias, "bias"));
  const std::int64_t features = fixed(in.back());
  const double eps = epsilon(t, 1e-12F);
  const std::string norm = of_squares ? rms_norm_of(t, sum, in.size(), eps, 2)
                                      : layer_norm_of(t, sum, features, eps, 2, 3);
  t.give({.shape = in, .node = norm});
  t.give({.shape = in, .node = sum}, 3);
}
void skip_layer_norm(Translator& t) { skip_norm(t, 4, false); }
void skip_rms_norm(Translator& t) { skip_norm(t, 3, true); }

}  // namespace

std::vector<OperationRow> norm_operations() {
  return {
      {"BatchNormalization", batch_norm, "training_mode"},
      {"InstanceNormalization", instance_norm},
      {"GroupNormalization", group_norm},
      {"LayerNormalization", layer_norm, "its second and third outputs"},
      {"RMSNormalization", rms_norm},
      {"SimplifiedLayerNormalization", rms_norm},
      {"SkipLayerNormalization", skip_layer_norm, "", kContribDomain},
      {"SkipSimplifiedLayerNormalization", skip_rms_norm, "", kContribDomain},
  };
}

}  // namespace steelyard::imports
