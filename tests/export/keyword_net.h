// A network of the size that microcontrollers run: keyword spotting as in MLPerf Tiny (DS-CNN, with
// batch norms folded), 49 frames of 10 coefficients. Its weights are random.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "tests/export/export_support.h"

namespace steelyard::testing {

inline Tensor frames(std::int64_t count, std::uint64_t seed) {
  return random_tensor({count, 49, 10, 1}, seed, DType::kF32);
}

// `padding`: of frames, before and after them, in the first layer and in the others.
inline std::shared_ptr<Module> keyword_net(Rng& rng, std::array<std::int64_t, 2> padding) {
  constexpr std::int64_t kChannels = 64;
  const Conv2dOptions first{.in_channels = 1,
                            .out_channels = kChannels,
                            .kernel_size = {10, 4},
                            .stride = {2, 2},
                            .padding = {padding[0], 1}};
  const Conv2dOptions depthwise{.in_channels = kChannels,
                                .out_channels = kChannels,
                                .kernel_size = {3, 3},
                                .padding = {padding[1], 1},
                                .groups = kChannels};
  Sequential::NamedChildren layers{{"conv", std::make_shared<Conv2d>(first, rng)},
                                   {"relu", std::make_shared<ReLU>()}};
  for (int i = 1; i <= 4; ++i) {
    const std::string block = "block" + std::to_string(i);
    layers.emplace_back(block + "_depthwise", std::make_shared<Conv2d>(depthwise, rng));
    layers.emplace_back(block + "_relu1", std::make_shared<ReLU>());
    layers.emplace_back(block + "_pointwise", conv(kChannels, kChannels, 1, 1, rng));
    layers.emplace_back(block + "_relu2", std::make_shared<ReLU>());
  }
  layers.emplace_back("average", std::make_shared<GlobalAvgPool>());
  layers.emplace_back("fc", std::make_shared<Linear>(LinearOptions{kChannels, 12}, rng));
  layers.emplace_back("shares", std::make_shared<Softmax>());
  return std::make_shared<Sequential>(std::move(layers));
}

// Its graph in fixed point; its observers have seen a batch.
inline deploy::Graph keyword_graph(int weight_bits, qat::Profile profile = qat::Profile::kTflm,
                                   std::array<std::int64_t, 2> padding = {5, 1}) {
  Rng rng(2);
  const qat::PreparedModel prepared =
      qat::prepare(keyword_net(rng, padding), tflm(weight_bits, profile));
  Rng noise(5);
  ForwardContext training{.training = true, .rng = &noise};
  prepared.model->forward(Variable(frames(4, 100)), training);
  return deploy::trace(*prepared.model, frames(1, 8), "keyword").graph;
}

}  // namespace steelyard::testing
