// A network of codes that are moved and multiplied with each other, for inputs [N, 9, 8, 3]:
// pixels that repeat, a border, parts, permutations, shapes, and one head of attention over rows.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"

namespace steelyard::testing {

inline std::shared_ptr<Module> attention_net(Rng& rng) {
  using Order = std::vector<std::int64_t>;
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return std::make_shared<Linear>(LinearOptions{in, out}, rng);
  };
  const auto twice = [](std::int64_t inputs) {
    return ResizedAxis{.repeats = 2, .inputs = inputs, .outputs = 2 * inputs};
  };
  const auto stem = std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3,
                                                           .out_channels = 4,
                                                           .kernel_size = {3, 3},
                                                           .stride = {2, 2},
                                                           .padding = {1, 1}},
                                             rng);
  return std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"stem", stem},                                                           // 5 x 4
      {"up", std::make_shared<Resize>(twice(5), twice(4))},                     // 10 x 8
      {"pad", std::make_shared<Pad>(Order{0, 1, 0, 0}, Order{0, 0, 2, 0}, 0)},  // 11 x 10
      {"rows", std::make_shared<Slice>(1, TakenAxis{9, 5, -2})},                // 5 x 10, backwards
      {"turn", std::make_shared<Permute>(Order{0, 1, 3, 2})},
      {"features", std::make_shared<Reshape>(Shape{-1, 5, 40})},
      {"query", linear(40, 6), {"features"}},
      {"key", linear(40, 6), {"features"}},
      {"value", linear(40, 6), {"features"}},
      {"keys", std::make_shared<Permute>(Order{0, 2, 1}), {"key"}},
      {"scores", std::make_shared<MatMul>(), {"query", "keys"}},
      {"shares", std::make_shared<Softmax>()},
      {"mixed", std::make_shared<MatMul>(), {"shares", "value"}},
      {"flat", std::make_shared<Reshape>(Shape{-1, 30})},
      {"fc", linear(30, 7)}});
}

// Convolutions of images whose dimensions change places between them, for the same inputs.
inline std::shared_ptr<Module> moved_net(Rng& rng) {
  const auto conv = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return std::make_shared<Conv2d>(Conv2dOptions{.in_channels = in,
                                                  .out_channels = out,
                                                  .kernel_size = {kernel, kernel},
                                                  .padding = {kernel / 2, kernel / 2}},
                                    rng);
  };
  return std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"first", conv(3, 4, 3)},                                                    // 9 x 8
      {"turn", std::make_shared<Permute>(std::vector<std::int64_t>{0, 3, 1, 2})},  // 4 x 9, 8
      {"second", conv(8, 5, 1)},
      {"flat", std::make_shared<Reshape>(Shape{-1, 4 * 9 * 5})},
      {"fc", std::make_shared<Linear>(LinearOptions{4 * 9 * 5, 7}, rng)}});
}

}  // namespace steelyard::testing
