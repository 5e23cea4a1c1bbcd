// Parts of the built-in architectures. A part that does not fit its place in the model is an
// InputError there.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/recipes/models/model_registry.h"

namespace steelyard {

using NamedModules = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

// "conv1".
std::string numbered(const char* word, std::size_t i);

std::shared_ptr<Linear> make_linear_part(const LayerSpec& spec, std::int64_t in, std::int64_t out,
                                         Rng& rng);

// A square kernel, padded so that only the stride makes the image smaller.
struct ConvPart {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
  bool bias = false;
};
// With PyTorch's default initial values.
std::shared_ptr<Conv2d> make_conv_part(const LayerSpec& spec, const ConvPart& part, Rng& rng);
// With normal weights of variance 2 / fan_out (He et al., ICCV 2015) and biases of 0.
std::shared_ptr<Conv2d> make_normal_conv_part(const LayerSpec& spec, const ConvPart& part,
                                              Rng& rng);

// The key `dropout` of a model.
template <typename T>
Row<T> dropout_row(double T::*member, const std::string& what) {
  return key("dropout", "probability of dropping " + what, member).by_default().within(0, 0.99);
}

}  // namespace steelyard
