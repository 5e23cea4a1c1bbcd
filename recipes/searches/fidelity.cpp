#include "steelyard/recipes/searches/fidelity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/metrics.h"
#include "steelyard/import/output_sources.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

using Values = std::span<const float>;

Values values_of(const Tensor& outputs, std::int64_t sample, const OutputSpan& output) {
  const std::int64_t all = outputs.size() / outputs.dim(0);
  return {outputs.data<float>() + sample * all + output.first,
          static_cast<std::size_t>(output.size)};
}

bool is_same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

struct Powers {
  double signal = 0, noise = 0;
  double squares = 0;  // of the noise of each sample
  double decibels() const {
    return std::isfinite(noise) ? steelyard::decibels(signal, noise) : -kMostDecibels;
  }
  void add_sample(const Powers& own) {
    signal += own.signal;
    noise += own.noise;
    squares += own.noise * own.noise;
  }
  // With a standard error more of noise.
  Powers sure(double samples) const {
    const double variance = (squares - noise * noise / samples) / std::max(samples - 1, 1.0);
    return {signal, noise + std::sqrt(samples * std::max(variance, 0.0))};
  }
};

// Of the values of each source; of decisions, each of which has the power 1.
std::vector<Powers> powers_of(Values in_float, Values quantized, const OutputSpan& output) {
  const std::vector<std::int32_t>& sources = output.sources;
  std::vector<Powers> powers(1);
  for (std::size_t i = 0; i < in_float.size(); ++i) {
    const std::size_t source = sources.empty() ? 0 : static_cast<std::size_t>(sources[i]);
    if (source >= powers.size()) powers.resize(source + 1);
    if (!std::isfinite(in_float[i]) && is_same(in_float[i], quantized[i])) continue;
    double x = static_cast<double>(in_float[i]), y = static_cast<double>(quantized[i]);
    if (output.decides_each) {
      x = 1;
      y = is_same(in_float[i], quantized[i]) ? 1 : 0;
    }
    powers[source].signal += x * x;
    powers[source].noise += (x - y) * (x - y);
  }
  return powers;
}

// The least that one of them has; values of zeros that stay zeros are exact.
double least_decibels(const std::vector<Powers>& powers) {
  double least = kMostDecibels;
  for (const Powers& one : powers) least = std::min(least, one.decibels());
  return least;
}

std::int64_t decisions_of(const OutputSpan& output) {
  return output.decides_each ? output.size : output.size / output.classes;
}

std::int64_t same_decisions(Values in_float, Values quantized, const OutputSpan& output) {
  const auto decision = [&](Values values, std::int64_t row) {
    const auto begin = values.begin() + row * output.classes;
    return std::max_element(begin, begin + output.classes) - begin;
  };
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < decisions_of(output); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool equal = output.decides_each ? is_same(in_float[at], quantized[at])
                                           : decision(in_float, i) == decision(quantized, i);
    same += equal ? 1 : 0;
  }
  return same;
}

// Whether the largest is not always the same.
bool chooses(const Tensor& in_float, const OutputSpan& output) {
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < in_float.dim(0); ++i) {
    const Values values = values_of(in_float, i, output);
    for (std::int64_t row = 0; row < output.size; row += output.classes) {
      const auto begin = values.begin() + row;
      const std::int64_t largest = std::max_element(begin, begin + output.classes) - begin;
      if (first < 0) first = largest;
      if (largest != first) return true;
    }
  }
  return false;
}

// Of the whole output, a sample after the other.
void count_decisions(OutputFidelity& result, const Tensor& in_float, const Tensor& quantized,
                     const OutputSpan& output) {
  const std::int64_t samples = in_float.dim(0);
  const std::optional<DetectionHead> head =
      output.head ? settled(*output.head, in_float) : std::nullopt;
  if (head) {
    const BoxAgreement all = compare_boxes(*head, in_float, quantized);
    result.boxes = true;
    result.decisions = all.in_float;
    result.agreement = all.percent();
  } else if (output.decides_each ||
             (output.classes > 0 && (!output.may_be_numbers || chooses(in_float, output)))) {
    std::int64_t same = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
      same +=
          same_decisions(values_of(in_float, i, output), values_of(quantized, i, output), output);
    }
    result.decisions = samples * decisions_of(output);
    result.agreement = 100 * static_cast<double>(same) / static_cast<double>(result.decisions);
  }
}

OutputFidelity fidelity_of(const Tensor& in_float, const Tensor& quantized,
                           const OutputSpan& output) {
  OutputFidelity result{
      .name = output.name, .may_be_numbers = output.may_be_numbers, .worst_sqnr_db = kMostDecibels};
  std::vector<Powers> all;
  for (std::int64_t i = 0; i < in_float.dim(0); ++i) {
    const std::vector<Powers> own =
        powers_of(values_of(in_float, i, output), values_of(quantized, i, output), output);
    all.resize(std::max(all.size(), own.size()));
    for (std::size_t j = 0; j < own.size(); ++j) all[j].add_sample(own[j]);
    const double decibels = least_decibels(own);
    if (decibels >= result.worst_sqnr_db) continue;
    result.worst_sample = i;
    result.worst_sqnr_db = decibels;
  }
  result.sqnr_db = least_decibels(all);
  for (Powers& one : all) one = one.sure(static_cast<double>(in_float.dim(0)));
  result.sure_db = least_decibels(all);
  count_decisions(result, in_float, quantized, output);
  return result;
}

// Whether a module gives scores of classes: a Softmax, or a linear layer whose output is a vector.
bool gives_scores(const std::string& type, const Shape& shape) {
  return type == "Softmax" || type == "LogSoftmax" || (type == "Linear" && shape.size() == 1);
}

OutputSpan span_of(const std::string& name, std::int64_t first, const Shape& shape,
                   const std::string& type, const imports::OutputSources& sources) {
  const std::int64_t classes = shape.empty() ? 1 : shape.back();
  OutputSpan span{name, first, shape_size(shape),
                  gives_scores(type, shape) && classes > 1 ? classes : 0};
  span.may_be_numbers = type == "Linear";
  const auto begin = sources.of_values.begin() + first;
  span.sources = {begin, begin + span.size};
  span.head = detection_head({first, shape, span.sources}, sources.types);
  return span;
}

// Outputs that are the boxes and the scores of one detector: each decides by its boxes. What more
// than one other output would fit is left alone.
void pair_boxes(std::vector<OutputSpan>& spans, const std::vector<imports::PartSpec>& parts,
                const std::vector<std::string>& types) {
  struct Pair {
    std::size_t boxes, scores;
    DetectionHead head;
  };
  std::vector<Pair> pairs;
  const auto part = [&](std::size_t i) {
    return HeadOutput{spans[i].first, parts[i].shape, spans[i].sources};
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t j = 0; j < spans.size(); ++j) {
      if (i == j) continue;
      if (const auto head = detection_head(part(i), part(j), types)) pairs.push_back({i, j, *head});
    }
  }
  for (const Pair& pair : pairs) {
    const auto meets = [&](const Pair& other) {
      return other.boxes == pair.boxes || other.scores == pair.scores ||
             other.boxes == pair.scores || other.scores == pair.boxes;
    };
    if (std::count_if(pairs.begin(), pairs.end(), meets) > 1) continue;
    spans[pair.boxes].head = spans[pair.scores].head = pair.head;
  }
}

}  // namespace

std::vector<OutputSpan> output_spans(const imports::GraphSpec& network) {
  const auto type_of = [&](const std::string& node) {
    const auto found = std::find_if(network.nodes.begin(), network.nodes.end(),
                                    [&](const imports::NodeSpec& n) { return n.name == node; });
    return found == network.nodes.end() ? std::string() : found->type;
  };
  const imports::OutputSources sources = imports::output_sources(network);
  if (network.output_parts.empty()) {
    const std::string& last = network.head.empty() ? network.nodes.back().type : network.head;
    return {span_of(network.output.name, 0, network.output_sample, last, sources)};
  }
  std::vector<OutputSpan> spans;
  for (std::size_t i = 0; i < network.output_parts.size(); ++i) {
    const imports::PartSpec& part = network.output_parts[i];
    spans.push_back(span_of(part.port.name, part.first, part.shape,
                            type_of(network.nodes.back().inputs.at(i)), sources));
  }
  pair_boxes(spans, network.output_parts, sources.types);
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

bool Fidelity::of_boxes() const {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const OutputFidelity& o) { return o.boxes || !o.agreement; });
}

// Of fewer decisions one or two that differ say little.
bool FidelityGoal::tells(const OutputFidelity& output) const {
  const double least = output.boxes ? boxes : agreement;
  return output.agreement &&
         static_cast<double>(output.decisions) >= 200 / std::max(100 - least, 0.1);
}

std::string FidelityGoal::why_by_numbers(const OutputFidelity& output) const {
  if (!output.agreement) return "";
  const double least = output.boxes ? boxes : agreement;
  const std::string name = "output " + printable(output.name) + ": ";
  if (!tells(output) && *output.agreement < least) {
    return name + std::to_string(output.decisions) + " decisions are too few to tell " +
           format_number(least) + " %: its SQNR chooses; more samples would";
  }
  if (tells(output) && output.may_be_numbers && *output.agreement >= least &&
      output.sure_db < sqnr_db) {
    return name +
           "may be scores or numbers, so its SQNR counts beside its decisions (--sqnr 0: these "
           "alone)";
  }
  return "";
}

bool FidelityGoal::reached(const Fidelity& fidelity) const {
  return std::all_of(
      fidelity.outputs.begin(), fidelity.outputs.end(), [&](const OutputFidelity& output) {
        const bool decides = tells(output);
        const bool by_numbers = !decides || output.may_be_numbers;
        return (!decides || *output.agreement >= (output.boxes ? boxes : agreement)) &&
               (!by_numbers || output.sure_db >= sqnr_db);
      });
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
