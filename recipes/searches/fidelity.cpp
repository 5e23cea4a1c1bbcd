#include "steelyard/recipes/searches/fidelity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "steelyard/framework/train/metrics.h"

namespace steelyard {
namespace {

using Values = std::span<const float>;

Values values_of(const Tensor& outputs, std::int64_t sample, const OutputSpan& output) {
  const std::int64_t all = outputs.size() / outputs.dim(0);
  return {outputs.data<float>() + sample * all + output.first,
          static_cast<std::size_t>(output.size)};
}

struct Powers {
  double signal = 0, noise = 0;
  double decibels() const {
    return std::isfinite(noise) ? steelyard::decibels(signal, noise) : -kMostDecibels;
  }
};

Powers powers_of(Values in_float, Values quantized) {
  Powers powers;
  for (std::size_t i = 0; i < in_float.size(); ++i) {
    const double x = static_cast<double>(in_float[i]), y = static_cast<double>(quantized[i]);
    powers.signal += x * x;
    powers.noise += (x - y) * (x - y);
  }
  return powers;
}

std::int64_t same_decisions(Values in_float, Values quantized, std::int64_t classes) {
  const auto largest = [classes](Values scores, std::size_t row) {
    const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(row) * classes;
    return std::max_element(begin, begin + classes) - begin;
  };
  std::int64_t same = 0;
  for (std::size_t row = 0; row < in_float.size() / static_cast<std::size_t>(classes); ++row) {
    same += largest(in_float, row) == largest(quantized, row) ? 1 : 0;
  }
  return same;
}

OutputFidelity fidelity_of(const Tensor& in_float, const Tensor& quantized,
                           const OutputSpan& output) {
  OutputFidelity result{.name = output.name, .worst_sqnr_db = kMostDecibels};
  Powers all;
  double squares = 0;  // of the noise
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < in_float.dim(0); ++i) {
    const Values x = values_of(in_float, i, output), y = values_of(quantized, i, output);
    const Powers own = powers_of(x, y);
    all.signal += own.signal;
    all.noise += own.noise;
    squares += own.noise * own.noise;
    if (own.decibels() < result.worst_sqnr_db) {
      result.worst_sample = i;
      result.worst_sqnr_db = own.decibels();
    }
    if (output.classes > 0) same += same_decisions(x, y, output.classes);
  }
  result.sqnr_db = all.decibels();
  const double samples = static_cast<double>(in_float.dim(0));
  const double variance = (squares - all.noise * all.noise / samples) / std::max(samples - 1, 1.0);
  all.noise += std::sqrt(samples * std::max(variance, 0.0));
  result.sure_db = all.decibels();
  if (output.classes > 0) {
    result.decisions = in_float.dim(0) * (output.size / output.classes);
    result.agreement = 100 * static_cast<double>(same) / static_cast<double>(result.decisions);
  }
  return result;
}

// Whether a module gives scores of classes: a Softmax, or a linear layer whose output is a vector.
bool gives_scores(const std::string& type, const Shape& shape) {
  return type == "Softmax" || type == "LogSoftmax" || (type == "Linear" && shape.size() == 1);
}

OutputSpan span_of(const std::string& name, std::int64_t first, const Shape& shape,
                   const std::string& type) {
  const std::int64_t classes = shape.empty() ? 1 : shape.back();
  return {name, first, shape_size(shape), gives_scores(type, shape) && classes > 1 ? classes : 0};
}

}  // namespace

std::vector<OutputSpan> output_spans(const imports::GraphSpec& network) {
  const auto type_of = [&](const std::string& node) {
    const auto found = std::find_if(network.nodes.begin(), network.nodes.end(),
                                    [&](const imports::NodeSpec& n) { return n.name == node; });
    return found == network.nodes.end() ? std::string() : found->type;
  };
  if (network.output_parts.empty()) {
    const std::string& last = network.head.empty() ? network.nodes.back().type : network.head;
    return {span_of(network.output.name, 0, network.output_sample, last)};
  }
  std::vector<OutputSpan> spans;
  for (std::size_t i = 0; i < network.output_parts.size(); ++i) {
    const imports::PartSpec& part = network.output_parts[i];
    spans.push_back(span_of(part.port.name, part.first, part.shape,
                            type_of(network.nodes.back().inputs.at(i))));
  }
  return spans;
}

double Fidelity::sqnr_db() const {
  double least = kMostDecibels;
  for (const OutputFidelity& output : outputs) least = std::min(least, output.sqnr_db);
  return least;
}

std::optional<double> Fidelity::agreement() const {
  std::optional<double> least;
  for (const OutputFidelity& output : outputs) {
    if (output.agreement) least = std::min(least.value_or(100), *output.agreement);
  }
  return least;
}

Fidelity fidelity(const Tensor& in_float, const Tensor& quantized,
                  const std::vector<OutputSpan>& outputs) {
  if (in_float.size() != quantized.size() || in_float.dim(0) != quantized.dim(0)) {
    throw std::invalid_argument("[fidelity] expected outputs " + shape_string(in_float.shape()) +
                                ", got " + shape_string(quantized.shape()));
  }
  Fidelity result;
  for (const OutputSpan& output : outputs) {
    result.outputs.push_back(fidelity_of(in_float, quantized, output));
  }
  return result;
}

}  // namespace steelyard
