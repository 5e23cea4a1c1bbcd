#include "steelyard/export/saturation.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace steelyard::deploy {
namespace {

// Any two weights of an output channel count, because the kernel decides which ones are added as a
// pair.
bool may_saturate(std::span<const std::int8_t> codes, std::size_t channels, int largest_input) {
  const std::size_t terms = channels == 0 ? 0 : codes.size() / channels;
  for (std::size_t i = 0; terms > 0 && i < codes.size(); i += terms) {
    int most[] = {0, 0};   // the two largest of the channel, largest first
    int least[] = {0, 0};  // the two smallest, smallest first
    for (const int code : codes.subspan(i, terms)) {
      most[1] = std::max(most[1], std::min(most[0], code));
      most[0] = std::max(most[0], code);
      least[1] = std::min(least[1], std::max(least[0], code));
      least[0] = std::min(least[0], code);
    }
    if (largest_input * (most[0] + most[1]) > INT16_MAX ||
        largest_input * (least[0] + least[1]) < INT16_MIN) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool may_saturate(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (!node.weights || !node.weights->one_scale_per_channel()) return false;
    const Quantization& input = *graph.values[node.inputs[0]].quantization;
    // Weights are u8 there (export/ops/real_sum.h).
    if (rounds_reals(input, graph.values[node.output].quantization)) return false;
    // ONNX Runtime turns s8 activations into u8 and adds 128.
    const int largest = input.range.qmax + (input.dtype == DType::kI8 ? 128 : 0);
    const Tensor& codes = node.weights->weight;
    return may_saturate(codes.span<std::int8_t>(), static_cast<std::size_t>(codes.dim(0)), largest);
  });
}

}  // namespace steelyard::deploy
