// Short ways to make layers, for models that are written in C++:
//
//   auto model = sequential({{"conv", conv2d(1, 8, 3, rng, {.padding = {1, 1}})},
//                            {"relu", relu()},
//                            {"flatten", flatten()},
//                            {"fc", linear(8 * 28 * 28, 10, rng)}});
//   Variable logits = model(x, context);
//
// Each throws what its layer's constructor throws.
#pragma once

#include "steelyard/layers/activations.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"

namespace steelyard {

inline ModulePtr<Linear> linear(std::int64_t in_features, std::int64_t out_features, Rng& rng,
                                bool bias = true) {
  return make_module<Linear>(
      LinearOptions{.in_features = in_features, .out_features = out_features, .bias = bias}, rng);
}

// Rarely used options of a convolution.
struct Conv2dDetails {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
};
// A square kernel.
inline ModulePtr<Conv2d> conv2d(std::int64_t in_channels, std::int64_t out_channels,
                                std::int64_t kernel_size, Rng& rng,
                                const Conv2dDetails& details = {}) {
  return make_module<Conv2d>(Conv2dOptions{.in_channels = in_channels,
                                           .out_channels = out_channels,
                                           .kernel_size = {kernel_size, kernel_size},
                                           .stride = details.stride,
                                           .padding = details.padding,
                                           .dilation = details.dilation,
                                           .groups = details.groups,
                                           .bias = details.bias},
                             rng);
}

inline ModulePtr<Conv1d> conv1d(const Conv1dOptions& options, Rng& rng) {
  return make_module<Conv1d>(options, rng);
}
inline ModulePtr<ConvTranspose2d> conv_transpose2d(const ConvTranspose2dOptions& options,
                                                   Rng& rng) {
  return make_module<ConvTranspose2d>(options, rng);
}

inline ModulePtr<BatchNorm1d> batch_norm1d(std::int64_t channels) {
  return make_module<BatchNorm1d>(BatchNormOptions{.channels = channels});
}
inline ModulePtr<BatchNorm2d> batch_norm2d(std::int64_t channels) {
  return make_module<BatchNorm2d>(BatchNormOptions{.channels = channels});
}
inline ModulePtr<LayerNorm> layer_norm(std::int64_t features) {
  return make_module<LayerNorm>(LayerNormOptions{.features = features});
}
inline ModulePtr<Embedding> embedding(std::int64_t count, std::int64_t width, Rng& rng) {
  return make_module<Embedding>(EmbeddingOptions{.count = count, .width = width}, rng);
}
// One direction, the whole sequence out.
inline ModulePtr<LSTM> lstm(std::int64_t inputs, std::int64_t units, Rng& rng) {
  return make_module<LSTM>(LstmLayerOptions{.inputs = inputs, .units = units}, rng);
}
inline ModulePtr<GRU> gru(std::int64_t inputs, std::int64_t units, Rng& rng) {
  return make_module<GRU>(GruLayerOptions{.inputs = inputs, .units = units}, rng);
}
inline ModulePtr<Dropout> dropout(double p) { return make_module<Dropout>(p); }
inline ModulePtr<Flatten> flatten() { return make_module<Flatten>(); }

inline ModulePtr<ReLU> relu() { return make_module<ReLU>(); }
inline ModulePtr<ReLU6> relu6() { return make_module<ReLU6>(); }
inline ModulePtr<LeakyReLU> leaky_relu(double slope = 0.01) {
  return make_module<LeakyReLU>(slope);
}
inline ModulePtr<Sigmoid> sigmoid() { return make_module<Sigmoid>(); }
inline ModulePtr<HardSigmoid> hard_sigmoid() { return make_module<HardSigmoid>(); }
inline ModulePtr<Softmax> softmax() { return make_module<Softmax>(); }
inline ModulePtr<LogSoftmax> log_softmax() { return make_module<LogSoftmax>(); }
inline ModulePtr<GELU> gelu() { return make_module<GELU>(); }
inline ModulePtr<SiLU> silu() { return make_module<SiLU>(); }
inline ModulePtr<Hardswish> hardswish() { return make_module<Hardswish>(); }

// Square windows that do not overlap.
inline ModulePtr<MaxPool2d> max_pool2d(std::int64_t size) {
  return make_module<MaxPool2d>(Pool2dGeometry{.kernel = {size, size}, .stride = {size, size}});
}
inline ModulePtr<AvgPool2d> avg_pool2d(std::int64_t size) {
  return make_module<AvgPool2d>(
      AvgPool2dOptions{.geometry = {.kernel = {size, size}, .stride = {size, size}}});
}
// Windows of a sequence that do not overlap.
inline ModulePtr<MaxPool1d> max_pool1d(std::int64_t size) {
  return make_module<MaxPool1d>(Pool1dGeometry{.kernel = size, .stride = size});
}
inline ModulePtr<AvgPool1d> avg_pool1d(std::int64_t size) {
  return make_module<AvgPool1d>(Pool1dGeometry{.kernel = size, .stride = size});
}
inline ModulePtr<GlobalAvgPool> global_avg_pool() { return make_module<GlobalAvgPool>(); }

inline ModulePtr<Sequential> sequential(const Sequential::NamedChildren& layers) {
  return make_module<Sequential>(layers);
}
// main(x) + shortcut(x), then the activation; without a shortcut main(x) + x.
inline ModulePtr<Residual> residual(std::shared_ptr<Module> main,
                                    std::shared_ptr<Module> shortcut = nullptr,
                                    std::shared_ptr<Module> activation = nullptr) {
  return make_module<Residual>(std::move(main), std::move(shortcut), std::move(activation));
}
// The channels of all branches, one after another.
inline ModulePtr<Concat> concat(const Concat::NamedBranches& branches) {
  return make_module<Concat>(branches);
}

}  // namespace steelyard
