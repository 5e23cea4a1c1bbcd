#include "steelyard/recipes/searches/whole_file.h"

#include <algorithm>

namespace steelyard {
namespace {

// Whether the output has one size, above 0, in all samples of both.
bool has_one_size(std::size_t output, const WholeOutputs& in_float, const WholeOutputs& quantized) {
  const std::size_t size = in_float[0][output].values.size();
  const auto is_of_it = [&](const std::vector<deploy::OnnxValues>& sample) {
    return sample[output].values.size() == size;
  };
  return size > 0 && std::all_of(in_float.begin(), in_float.end(), is_of_it) &&
         std::all_of(quantized.begin(), quantized.end(), is_of_it);
}

Tensor output_of(const WholeOutputs& samples, std::size_t output) {
  std::vector<float> values;
  for (const std::vector<deploy::OnnxValues>& sample : samples) {
    for (const double value : sample[output].values) values.push_back(static_cast<float>(value));
  }
  const auto count = static_cast<std::int64_t>(samples.size());
  return Tensor::from(values, {count, static_cast<std::int64_t>(values.size()) / count});
}

}  // namespace

WholeFidelity whole_fidelity(const std::vector<std::string>& names, const WholeOutputs& in_float,
                             const WholeOutputs& quantized) {
  WholeFidelity found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!has_one_size(i, in_float, quantized)) {
      found.others.push_back(names[i]);
      continue;
    }
    const auto size = static_cast<std::int64_t>(in_float[0][i].values.size());
    const OutputSpan span{.name = names[i], .size = size, .decides_each = in_float[0][i].whole};
    const Fidelity one = fidelity(output_of(in_float, i), output_of(quantized, i), {span});
    found.fidelity.outputs.push_back(one.outputs[0]);
  }
  return found;
}

}  // namespace steelyard
