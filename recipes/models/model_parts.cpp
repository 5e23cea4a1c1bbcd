#include "steelyard/recipes/models/model_parts.h"

#include "steelyard/layers/init.h"

namespace steelyard {

std::string numbered(const char* word, std::size_t i) { return word + std::to_string(i); }

std::shared_ptr<Linear> make_linear_part(const LayerSpec& spec, std::int64_t in, std::int64_t out,
                                         Rng& rng) {
  require_weights(spec, in, out);
  return std::make_shared<Linear>(LinearOptions{.in_features = in, .out_features = out}, rng);
}

std::shared_ptr<Conv2d> make_conv_part(const LayerSpec& spec, const ConvPart& part, Rng& rng) {
  require_weights(spec, part.in / part.groups * part.kernel * part.kernel, part.out);
  const std::int64_t padding = part.kernel / 2;
  return std::make_shared<Conv2d>(Conv2dOptions{.in_channels = part.in,
                                                .out_channels = part.out,
                                                .kernel_size = {part.kernel, part.kernel},
                                                .stride = {part.stride, part.stride},
                                                .padding = {padding, padding},
                                                .groups = part.groups,
                                                .bias = part.bias},
                                  rng);
}

std::shared_ptr<Conv2d> make_normal_conv_part(const LayerSpec& spec, const ConvPart& part,
                                              Rng& rng) {
  auto layer = make_conv_part(spec, part, rng);
  fill_fan_out_normal(layer->weight().value(), rng);
  if (part.bias) layer->bias().value().fill(0);
  return layer;
}

}  // namespace steelyard
