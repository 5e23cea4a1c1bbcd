#include "steelyard/qat/model/input_codes.h"

#include <algorithm>
#include <cmath>

#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {
namespace {

constexpr int kByteValues = 256;

// The mean distance of a channel's bytes from the nearest multiple of the scale, in codes.
double distance_from_codes(double mean, double stddev, double scale) {
  double sum = 0;
  for (int byte = 0; byte < kByteValues; ++byte) {
    const double code = (byte / 255.0 - mean) / stddev / scale;
    sum += std::abs(code - std::nearbyint(code));
  }
  return sum / kByteValues;
}

// How many bytes of a channel have another code if they are normalized in f32 at each step, not in
// double and rounded once.
int codes_changed_by_f32(float mean, float stddev, float scale) {
  int changed = 0;
  for (int byte = 0; byte < kByteValues; ++byte) {
    const auto exact = static_cast<float>((byte / 255.0 - double{mean}) / double{stddev});
    const float rounded = (static_cast<float>(byte) / 255.0F - mean) / stddev;
    changed += std::nearbyint(exact / scale) != std::nearbyint(rounded / scale) ? 1 : 0;
  }
  return changed;
}

}  // namespace

std::optional<std::string> note_of_bytes_between_codes(Module& model,
                                                       const Normalization& normalization) {
  constexpr double kHalfWay =
      0.45;  // 0.25 where bytes and codes have nothing to do with each other
  const auto quantizers = named_quantizers(model);
  const auto input = std::find_if(quantizers.begin(), quantizers.end(), [](const auto& entry) {
    return entry.name == "input_quantizer";
  });
  if (input == quantizers.end() || !input->quantizer->observed()) return std::nullopt;
  const std::vector<float> scales = input->quantizer->host_scale();
  if (scales.size() != 1) return std::nullopt;  // dynamic, or in blocks
  std::string advice;
  int changed = 0;  // most of a channel
  for (std::size_t c = 0; c < normalization.mean.size(); ++c) {
    const double mean = normalization.mean[c];
    if (distance_from_codes(mean, normalization.stddev[c], scales[0]) < kHalfWay) continue;
    const long nearest = std::lround(mean * 255);
    changed = std::max(
        changed, codes_changed_by_f32(normalization.mean[c], normalization.stddev[c], scales[0]));
    advice += (advice.empty() ? "" : ", ") + std::to_string(nearest) +
              "/255 = " + std::to_string(nearest / 255.0) + " in place of " + std::to_string(mean);
    if (normalization.mean.size() > 1) advice += " (channel " + std::to_string(c) + ")";
  }
  if (advice.empty()) return std::nullopt;
  return "the input's bytes lie half-way between its codes, which costs half a code of every "
         "value, and a program that normalizes in f32 and not in double gives " +
         std::to_string(changed) + " of the 256 bytes another code: with a mean of " + advice +
         " in data.normalize they lie on codes";
}

}  // namespace steelyard::qat
