#include "export/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "export/trace.h"
#include "framework/error.h"
#include "framework/evaluate.h"
#include "kernels/softmax.h"
#include "qat/quantized_value.h"

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
  if (!same) {
    throw InputError("verify: the deployed model is another network than the checkpoint's");
  }
}

template <typename T>
void count_differences(const Tensor& a, const Tensor& b, ValueComparison& comparison) {
  const auto x = a.span<T>();
  const auto y = b.span<T>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (x[i] != x[i] && y[i] != y[i])) continue;
    ++comparison.differing;
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    comparison.largest =
        std::isnan(difference) ? difference : std::max(comparison.largest, difference);
  }
}

void compare(const Variable& trained, const Value& trained_value, const Tensor& deployed,
             const Value& deployed_value, ValueComparison& comparison) {
  comparison.elements += deployed.size();
  const auto codes = qat::quantized(trained);
  if (!codes) {
    count_differences<float>(trained.value(), deployed, comparison);
  } else if (trained_value.quantization != deployed_value.quantization) {
    comparison.differing += deployed.size();  // equal codes would stand for other values
  } else {
    qat::visit_codes(deployed.dtype(), [&](auto* tag) {
      count_differences<qat::CodeOf<decltype(tag)>>(codes->codes, deployed, comparison);
    });
  }
}

// Whether row[at] is the largest, or as large up to the rounding of a runtime that adds in float.
bool is_largest(std::span<const float> row, std::size_t at) {
  constexpr float kRounding = 1e-5F;
  const auto [lo, hi] = std::minmax_element(row.begin(), row.end());
  return row[at] >= *hi - kRounding * std::max(std::abs(*lo), std::abs(*hi));
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
    if (value.quantized && value.differing > 0) return &value;
  }
  return nullptr;
}

Verification verify(Module& model, const Interpreter& interpreter, const Dataset& dataset,
                    std::int64_t samples, std::int64_t batch_size) {
  const Graph& graph = interpreter.graph();
  Verification result;
  for (const Value& value : graph.values) {
    result.values.push_back({.name = value.name, .quantized = value.quantization.has_value()});
  }
  result.samples = std::min(samples, dataset.size());
  const LoaderOptions options = plain_batches(interpreter, std::min(batch_size, result.samples));
  const Dataset chosen = first_samples(dataset, samples);
  result.inputs = normalized(chosen.inputs, options.normalization);
  Shape output_shape = graph.values[graph.output].shape;
  output_shape.insert(output_shape.begin(), result.samples);
  result.outputs = Tensor::empty(output_shape);
  std::int64_t trained_correct = 0;
  std::int64_t deployed_correct = 0;
  for (std::int64_t b = 0; b < batches_per_epoch(chosen, options); ++b) {
    const Batch batch = make_batch(chosen, options, 0, b);
    const Trace trained = trace(model, batch.inputs, graph.name);
    require_same_network(trained.graph, graph);
    const std::vector<Tensor> deployed = interpreter.run_all(batch.inputs);
    for (std::size_t i = 0; i < deployed.size(); ++i) {
      compare(trained.values[i], trained.graph.values[i], deployed[i], graph.values[i],
              result.values[i]);
    }
    const Tensor outputs = dequantized(graph.values[graph.output], deployed[graph.output]);
    std::copy_n(
        outputs.data<float>(), outputs.size(),
        result.outputs.data<float>() + b * options.batch_size * (outputs.size() / outputs.dim(0)));
    if (chosen.classes == 0) continue;
    trained_correct += count_correct(trained.values[graph.output].value(), batch.targets);
    deployed_correct += count_correct(outputs, batch.targets);
  }
  if (chosen.classes != 0) {
    const auto percent = [&](std::int64_t correct) {
      return 100.0 * static_cast<double>(correct) / static_cast<double>(result.samples);
    };
    result.trained_top1 = percent(trained_correct);
    result.deployed_top1 = percent(deployed_correct);
  }
  return result;
}

OutputComparison compare_outputs(const Tensor& deployed, const Tensor& other) {
  if (deployed.size() != other.size() || deployed.dim(0) != other.dim(0)) {
    throw std::runtime_error("[verify] expected outputs " + shape_string(deployed.shape()) +
                             ", got " + shape_string(other.shape()));
  }
  ValueComparison values;
  count_differences<float>(deployed, other, values);
  const std::int64_t samples = deployed.dim(0);
  const std::int64_t width = samples == 0 ? 0 : deployed.size() / samples;
  std::vector<std::int64_t> classes(static_cast<std::size_t>(samples));
  kernels::argmax_rows(samples, width, other.data<float>(), classes.data());
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto row = deployed.span<float>().subspan(static_cast<std::size_t>(i * width),
                                                    static_cast<std::size_t>(width));
    same += is_largest(row, static_cast<std::size_t>(classes[static_cast<std::size_t>(i)]));
  }
  return {deployed.size(), values.differing, values.largest,
          samples == 0 ? 100.0 : 100.0 * static_cast<double>(same) / static_cast<double>(samples)};
}

std::string to_string(const Verification& verification) {
  std::string text;
  std::int64_t tensors = 0;
  std::int64_t codes = 0;
  for (const ValueComparison& value : verification.values) {
    if (value.quantized) {
      ++tensors;
      codes += value.elements;
    }
    if (value.differing == 0) continue;
    text += fmt::format("{}: {} of {} {} differ, by at most {}\n", value.name, value.differing,
                        value.elements, value.quantized ? "codes" : "floats", value.largest);
  }
  const ValueComparison* first = verification.first_mismatch();
  if (first == nullptr) {
    text += fmt::format("0 of {} codes differ, in {} quantized tensors over {} samples\n", codes,
                        tensors, verification.samples);
  } else {
    text += fmt::format("the first quantized tensor that differs is {}\n", first->name);
  }
  return text;
}

}  // namespace steelyard::deploy
