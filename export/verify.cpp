#include "steelyard/export/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>

#include "steelyard/export/trace.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/qat/quantizers/quantized_value.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {
namespace {

void require_same_network(const Graph& trained, const Graph& deployed) {
  bool same = trained.values.size() == deployed.values.size();
  for (std::size_t i = 0; same && i < trained.values.size(); ++i) {
    const Value& a = trained.values[i];
    const Value& b = deployed.values[i];
    same = a.name == b.name && a.shape == b.shape &&
           a.quantization.has_value() == b.quantization.has_value();
  }
  same = same && trained.nodes.size() == deployed.nodes.size();
  if (!same) {
    throw InputError("verify: the deployed model is another network than the checkpoint's");
  }
}

template <typename T>
void count_differences(std::span<const T> x, std::span<const T> y, ValueComparison& comparison) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (x[i] != x[i] && y[i] != y[i])) continue;
    ++comparison.differing;
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    comparison.largest =
        std::isnan(difference) ? difference : std::max(comparison.largest, difference);
  }
}

template <typename T>
void count_differences(const Tensor& a, const Tensor& b, ValueComparison& comparison) {
  count_differences<T>(std::span<const T>(a.span<T>()), b.span<T>(), comparison);
}

Tensor codes_or_floats(const Variable& variable) {
  const auto codes = qat::quantized(variable);
  return (codes ? codes->codes : variable.value()).to(Device{});
}

bool equal_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

double largest_magnitude(const Tensor& values) {
  double largest = 0;
  for (const float x : values.span<float>()) largest = std::max(largest, std::abs(double{x}));
  return largest;
}

// Appends a comparison of one parameter, unless both are the same.
template <typename T>
void compare_parameter(const std::string& name, std::span<const T> trained,
                       std::span<const T> deployed, std::vector<ValueComparison>& others) {
  ValueComparison found{.name = name,
                        .quantized = std::is_integral_v<T>,
                        .elements = std::ssize(deployed),
                        .mismatch = true};
  if (trained.size() == deployed.size()) {
    count_differences(trained, deployed, found);
  } else {
    found.differing = found.elements;
  }
  if (found.differing > 0 || trained.size() != deployed.size()) others.push_back(found);
}

void compare_tensors(const std::string& name, const Tensor& trained, const Tensor& deployed,
                     std::vector<ValueComparison>& others) {
  if (trained.defined() != deployed.defined() ||
      (trained.defined() && trained.dtype() != deployed.dtype())) {
    others.push_back({.name = name, .mismatch = true});
  } else if (!trained.defined()) {
    return;
  } else if (trained.dtype() == DType::kI8) {
    compare_parameter<std::int8_t>(name, trained.span<std::int8_t>(), deployed.span<std::int8_t>(),
                                   others);
  } else if (trained.dtype() == DType::kI32) {
    compare_parameter<std::int32_t>(name, trained.span<std::int32_t>(),
                                    deployed.span<std::int32_t>(), others);
  } else {
    compare_parameter<float>(name, trained.span<float>(), deployed.span<float>(), others);
  }
}

std::vector<ValueComparison> other_parameters(const Graph& trained, const Graph& deployed) {
  std::vector<ValueComparison> others;
  for (std::size_t i = 0; i < deployed.nodes.size(); ++i) {
    const auto& [a, b] = std::tie(trained.nodes[i].weights, deployed.nodes[i].weights);
    if (!a || !b) continue;  // the values of such nodes differ
    const std::string& name = deployed.nodes[i].name;
    compare_tensors(name + ".weight", a->weight, b->weight, others);
    compare_parameter<float>(name + ".weight scale", a->scales, b->scales, others);
    compare_parameter<std::int8_t>(name + ".weight zero point", a->zero_points, b->zero_points,
                                   others);
    compare_tensors(name + ".bias", a->bias, b->bias, others);
  }
  return others;
}

// The difference that two orders of a float sum may cause, relative to the largest value of the
// tensor.
double rounding_of(const Graph& graph, const Node& node, const Tensor& values) {
  const bool float_rounding =
      op_info(node.op).rounds_floats && !graph.values[node.output].quantization;
  if (!float_rounding && !(node.weights && !node.weights->integer())) return 0;
  constexpr double kRounding = 1e-3;
  return kRounding * largest_magnitude(values);
}

std::string quantization_text(const Quantization& q) {
  return fmt::format("scale {}, zero point {}, codes {} to {}", q.scale, q.zero_point, q.range.qmin,
                     q.range.qmax);
}

// Compares training's output of a node with the deployed model's output for the same inputs.
void compare(const Graph& trained, const Graph& deployed, const Node& node, const Tensor& expected,
             const Tensor& got, ValueComparison& comparison) {
  ValueComparison batch;
  double allowed = 0;
  if (!comparison.quantized) {
    count_differences<float>(expected, got, batch);
    allowed = rounding_of(deployed, node, expected);
  } else if (trained.values[node.output].quantization !=
             deployed.values[node.output].quantization) {
    batch.differing = got.size();  // equal codes would stand for other values
    allowed = -1;
    comparison.other_quantization = fmt::format(
        "{} in training, {} deployed", quantization_text(*trained.values[node.output].quantization),
        quantization_text(*deployed.values[node.output].quantization));
  } else {
    visit_all_codes(got.dtype(), [&](auto* tag) {
      count_differences<CodeOf<decltype(tag)>>(expected, got, batch);
    });
  }
  comparison.elements += got.size();
  comparison.differing += batch.differing;
  comparison.mismatch |= batch.differing > 0 && !(batch.largest <= allowed);
  comparison.largest =
      std::isnan(batch.largest) ? batch.largest : std::max(comparison.largest, batch.largest);
}

// Runs a batch from end to end and compares every node's output with training's. Gives the model's
// output.
Tensor run_and_compare(const Interpreter& interpreter, const Trace& trained, const Tensor& inputs,
                       std::vector<ValueComparison>& comparisons) {
  const Graph& graph = interpreter.graph();
  std::vector<Tensor> expected;
  for (const Variable& value : trained.values) expected.push_back(codes_or_floats(value));
  std::vector<Tensor> deployed(expected.size());
  deployed[graph.input] = inputs;
  comparisons[graph.input].elements += inputs.size();
  for (const Node& node : graph.nodes) {
    deployed[node.output] = interpreter.run_node(node, deployed);
    const bool same_inputs =
        std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&](std::size_t i) { return equal_bytes(deployed[i], expected[i]); });
    compare(trained.graph, graph, node, expected[node.output],
            same_inputs ? deployed[node.output] : interpreter.run_node(node, expected),
            comparisons[node.output]);
  }
  return dequantized(graph.values[graph.output], deployed[graph.output]);
}

// Whether the class of `theirs` has the largest output of `ours`, or one as large up to the
// rounding of a runtime that adds in float.
bool same_class(std::span<const float> ours, std::span<const float> theirs) {
  constexpr float kRounding = 1e-5F;
  std::int64_t at = 0;
  kernels::run(kernels::ArgmaxRows<float>{.rows = 1,
                                          .columns = static_cast<std::int64_t>(theirs.size()),
                                          .logits = theirs.data(),
                                          .predictions = &at});
  const auto [lo, hi] = std::minmax_element(ours.begin(), ours.end());
  return ours[static_cast<std::size_t>(at)] >=
         *hi - kRounding * std::max(std::abs(*lo), std::abs(*hi));
}

// Percent of the rows that choose the same class.
double same_classes(const Tensor& expected, const Tensor& other) {
  const std::int64_t rows = expected.dim(0);
  if (rows == 0) return 100;
  const auto width = static_cast<std::size_t>(expected.size() / rows);
  std::int64_t same = 0;
  for (std::size_t first = 0; first < expected.span<float>().size(); first += width) {
    same += same_class(expected.span<float>().subspan(first, width),
                       other.span<float>().subspan(first, width));
  }
  return 100.0 * static_cast<double>(same) / static_cast<double>(rows);
}

// Percent of the values that differ by at most a hundredth of the largest.
double close_values(const Tensor& expected, const Tensor& other) {
  if (expected.size() == 0) return 100;
  const double distance = 0.01 * largest_magnitude(expected);
  std::int64_t close = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double a = expected.data<float>()[i], b = other.data<float>()[i];
    close += std::abs(a - b) <= distance || (std::isnan(a) && std::isnan(b));
  }
  return 100.0 * static_cast<double>(close) / static_cast<double>(expected.size());
}

double relative_error(const Tensor& expected, const Tensor& other) {
  double error = 0, whole = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double a = expected.data<float>()[i], b = other.data<float>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    error += (a - b) * (a - b);
  }
  if (error == 0) return 0;
  for (const float a : expected.span<float>()) whole += double{a} * a;
  const double relative = std::sqrt(error / whole);
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

LoaderOptions plain_batches(const Interpreter& interpreter, std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.normalization = interpreter.graph().preprocessing.normalization;
  return options;
}

}  // namespace

const ValueComparison* Verification::first_mismatch() const {
  for (const ValueComparison& value : values) {
    if (value.mismatch) return &value;
  }
  return other_parameters.empty() ? nullptr : &other_parameters.front();
}

Verification verify(Module& model, const Interpreter& interpreter, const Dataset& dataset,
                    std::int64_t samples, std::int64_t batch_size) {
  const Graph& graph = interpreter.graph();
  Verification result;
  for (const Value& value : graph.values) {
    result.values.push_back({.name = value.name, .quantized = value.quantization.has_value()});
  }
  result.samples = std::min(samples, dataset.size());
  const Shape& sample = graph.values[graph.input].shape;
  const Shape given = dataset.sample_shape();
  if (given != sample) {
    throw InputError("verify: the deployed model takes inputs " + shape_string(sample) +
                     ", the dataset has " + shape_string(given));
  }
  const LoaderOptions options = plain_batches(interpreter, std::min(batch_size, result.samples));
  const Dataset chosen = load_samples(spread_samples(dataset, samples));
  result.inputs = normalized(chosen.inputs, options.normalization);
  Shape output_shape = graph.values[graph.output].shape;
  output_shape.insert(output_shape.begin(), result.samples);
  result.trained_outputs = Tensor::empty(output_shape);
  result.outputs = Tensor::empty(output_shape);
  const bool classes = target_kind(chosen.targets, chosen.classes) == TargetKind::kClass;
  std::int64_t trained_correct = 0;
  std::int64_t deployed_correct = 0;
  for (std::int64_t b = 0; b < batches_per_epoch(chosen, options); ++b) {
    const Batch batch = make_batch(chosen, options, 0, b);
    const Trace trained = trace(model, batch.inputs, graph.name);
    require_same_network(trained.graph, graph);
    if (b == 0) result.other_parameters = other_parameters(trained.graph, graph);
    const Tensor expected = trained.values[graph.output].value();
    const Tensor outputs = run_and_compare(interpreter, trained, batch.inputs, result.values);
    const std::int64_t first_element = b * options.batch_size * (outputs.size() / outputs.dim(0));
    std::copy_n(expected.data<float>(), outputs.size(),
                result.trained_outputs.data<float>() + first_element);
    std::copy_n(outputs.data<float>(), outputs.size(),
                result.outputs.data<float>() + first_element);
    if (!classes) continue;
    trained_correct += count_correct(expected, batch.targets);
    deployed_correct += count_correct(outputs, batch.targets);
  }
  if (classes) {
    const auto percent = [&](std::int64_t correct) {
      return 100.0 * static_cast<double>(correct) / static_cast<double>(result.samples);
    };
    result.trained_top1 = percent(trained_correct);
    result.deployed_top1 = percent(deployed_correct);
  }
  return result;
}

OutputComparison compare_outputs(const Tensor& expected, const Tensor& other, bool classifies) {
  if (expected.size() != other.size() || expected.dim(0) != other.dim(0)) {
    throw std::runtime_error("[verify] expected outputs " + shape_string(expected.shape()) +
                             ", got " + shape_string(other.shape()));
  }
  ValueComparison values;
  count_differences<float>(expected, other, values);
  return {.elements = expected.size(),
          .differing = values.differing,
          .largest = values.largest,
          .agreement = classifies ? same_classes(expected, other) : close_values(expected, other),
          .relative_error = relative_error(expected, other)};
}

std::string to_string(const Verification& verification) {
  std::string text;
  std::int64_t tensors = 0;
  std::int64_t codes = 0;
  for (const ValueComparison& value : verification.other_parameters) {
    text += fmt::format("{}: {} of {} values differ, by at most {}\n", printable(value.name),
                        value.differing, value.elements, value.largest);
  }
  for (const ValueComparison& value : verification.values) {
    if (value.quantized) {
      ++tensors;
      codes += value.elements;
    }
    if (value.differing == 0) continue;
    if (!value.other_quantization.empty()) {
      text += fmt::format("{}: another quantization: {}\n", printable(value.name),
                          value.other_quantization);
      continue;
    }
    text += fmt::format("{}: {} of {} {} differ, by at most {}{}\n", printable(value.name),
                        value.differing, value.elements, value.quantized ? "codes" : "floats",
                        value.largest, value.mismatch ? "" : " (rounding)");
  }
  ValueComparison ends;
  count_differences<float>(verification.trained_outputs, verification.outputs, ends);
  if (ends.differing > 0) {
    text += fmt::format("from end to end {} of {} outputs differ, by at most {}\n", ends.differing,
                        verification.outputs.size(), ends.largest);
  }
  const ValueComparison* first = verification.first_mismatch();
  if (first == nullptr) {
    text += fmt::format("0 of {} codes differ, in {} quantized tensors over {} samples\n", codes,
                        tensors, verification.samples);
  } else {
    text += fmt::format("the first tensor that differs is {}\n", first->name);
  }
  return text;
}

}  // namespace steelyard::deploy
