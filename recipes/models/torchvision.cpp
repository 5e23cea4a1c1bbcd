// torchvision's classification networks, with its names of modules, numbers and initial values:
// its checkpoints fit by name. Differences: any number of input channels; no stochastic depth.
#include <algorithm>
#include <array>
#include <cmath>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/init.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/recipes/models/model_parts.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

using ModulePointer = std::shared_ptr<Module>;
using Activation = ModulePointer (*)();

template <typename T>
ModulePointer plain() {
  return std::make_shared<T>();
}

// Makes layers one after another and knows the image that the next one gets.
class ImageNetwork {
 public:
  ImageNetwork(const LayerSpec& spec, Rng& rng, BatchNorm2dOptions norm = {})
      : spec_(&spec), rng_(&rng), norm_(norm), channels_(spec.channels()) {
    height_ = spec.input_shape()[0];
    width_ = spec.input_shape()[1];
  }

  std::int64_t channels() const { return channels_; }

  ModulePointer conv(std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
                     std::int64_t groups = 1, bool bias = false) {
    const ConvPart part{channels_, out, kernel, stride, groups, bias};
    auto layer = make_normal_conv_part(*spec_, part, *rng_);
    channels_ = out;
    height_ = (height_ + stride - 1) / stride;
    width_ = (width_ + stride - 1) / stride;
    return layer;
  }

  ModulePointer norm() const {
    BatchNorm2dOptions options = norm_;
    options.channels = channels_;
    return std::make_shared<BatchNorm2d>(options);
  }

  // Convolution "0", norm "1" and, unless null, activation "2".
  ModulePointer block(std::int64_t out, std::int64_t kernel, std::int64_t stride,
                      std::int64_t groups, Activation activation) {
    NamedModules layers{{"0", conv(out, kernel, stride, groups)}};
    layers.emplace_back("1", norm());
    if (activation != nullptr) layers.emplace_back("2", activation());
    return std::make_shared<Sequential>(layers);
  }
  ModulePointer depthwise(std::int64_t kernel, std::int64_t stride, Activation activation) {
    return block(channels_, kernel, stride, channels_, activation);
  }

  // Hu et al., "Squeeze-and-Excitation Networks", arXiv:1709.01507: x times a gate for each
  // channel.
  ModulePointer squeeze_excite(std::int64_t squeezed, Activation activation, Activation gate) {
    const std::int64_t channels = channels_, height = height_, width = width_;
    const auto average = std::make_shared<AvgPool2d>(
        AvgPool2dOptions{.geometry = {.kernel = {height, width}, .stride = {1, 1}}});
    ModulePointer fc1 = conv(squeezed, 1, 1, 1, true);
    ModulePointer fc2 = conv(channels, 1, 1, 1, true);
    return std::make_shared<Graph>(
        std::vector<Graph::NamedNode>{{"avgpool", average, {"input"}},
                                      {"fc1", fc1},
                                      {"activation", activation()},
                                      {"fc2", fc2},
                                      {"scale_activation", gate()},
                                      {"scale",
                                       std::make_shared<PairArithmetic>(Arithmetic::kMultiply),
                                       {"scale_activation", "input"}}});
  }

  // The parts of a block that torchvision calls `name`, with a shortcut around them if the image
  // stays as it was.
  ModulePointer inverted_residual(const char* name, const NamedModules& parts, std::int64_t in,
                                  std::int64_t stride) const {
    const auto block =
        std::make_shared<Sequential>(NamedModules{{name, std::make_shared<Sequential>(parts)}});
    if (stride != 1 || in != channels_) return block;
    return std::make_shared<Residual>(block);
  }

  // With biases of 0.
  std::shared_ptr<Linear> linear(std::int64_t in, std::int64_t out) const {
    auto layer = make_linear_part(*spec_, in, out, *rng_);
    layer->bias().value().fill(0);
    return layer;
  }
  std::shared_ptr<Linear> normal_linear(std::int64_t in, std::int64_t out) const {
    auto layer = linear(in, out);
    fill_normal(layer->weight().value(), 0.01, *rng_);
    return layer;
  }

 private:
  const LayerSpec* spec_;
  Rng* rng_;
  BatchNorm2dOptions norm_;
  std::int64_t channels_, height_ = 0, width_ = 0;
};

NamedModules indexed(const std::vector<ModulePointer>& layers) {
  NamedModules named;
  for (const ModulePointer& layer : layers) {
    named.emplace_back(std::to_string(named.size()), layer);
  }
  return named;
}

// "features", a mean over the image, "classifier".
ModulePointer classifier_of(const std::vector<ModulePointer>& features,
                            const std::vector<ModulePointer>& classifier) {
  return std::make_shared<Sequential>(
      NamedModules{{"features", std::make_shared<Sequential>(features)},
                   {"avgpool", std::make_shared<GlobalAvgPool>()},
                   {"classifier", std::make_shared<Sequential>(classifier)}});
}

// --- He et al., "Deep Residual Learning for Image Recognition", 2015; a bottleneck's stride is
// that of its 3x3 convolution.

struct ResnetDesign {
  bool bottleneck = false;
  std::array<int, 4> blocks{};
};

ModulePointer residual_block(ImageNetwork& network, bool bottleneck, std::int64_t width,
                             std::int64_t stride) {
  const std::int64_t in = network.channels();
  const std::int64_t out = bottleneck ? 4 * width : width;
  ImageNetwork shortcut = network;
  NamedModules main;
  const auto add = [&](std::size_t i, std::int64_t channels, std::int64_t kernel, std::int64_t s) {
    main.emplace_back(numbered("conv", i), network.conv(channels, kernel, s));
    main.emplace_back(numbered("bn", i), network.norm());
  };
  const auto activate = [&](std::size_t i) {
    main.emplace_back(numbered("relu", i), std::make_shared<ReLU>());
  };
  if (bottleneck) {
    add(1, width, 1, 1);
    activate(1);
  }
  const std::size_t next = bottleneck ? 2 : 1;
  add(next, width, 3, stride);
  activate(next);
  add(next + 1, out, bottleneck ? 1 : 3, 1);
  ModulePointer downsample;
  if (stride != 1 || in != out) downsample = shortcut.block(out, 1, stride, 1, nullptr);
  return std::make_shared<Residual>(std::make_shared<Sequential>(main), downsample,
                                    std::make_shared<ReLU>());
}

ModulePointer build_resnet(const ResnetDesign& design, const LayerSpec& spec, Rng& rng) {
  ImageNetwork network(spec, rng);
  NamedModules modules{{"conv1", network.conv(64, 7, 2)}};
  modules.emplace_back("bn1", network.norm());
  modules.emplace_back("relu", std::make_shared<ReLU>());
  modules.emplace_back("maxpool", std::make_shared<MaxPool2d>(Pool2dGeometry{
                                      .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}));
  for (std::size_t stage = 0; stage < design.blocks.size(); ++stage) {
    std::vector<ModulePointer> blocks;
    for (int block = 0; block < design.blocks[stage]; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      blocks.push_back(
          residual_block(network, design.bottleneck, std::int64_t{64} << stage, stride));
    }
    modules.emplace_back(numbered("layer", stage + 1), std::make_shared<Sequential>(blocks));
  }
  modules.emplace_back("avgpool", std::make_shared<GlobalAvgPool>());
  modules.emplace_back("fc", make_linear_part(spec, network.channels(), spec.classes(), rng));
  return std::make_shared<Sequential>(modules);
}

struct DropoutOption {
  double dropout = 0.2;
};

// --- Sandler et al., "MobileNetV2", arXiv:1801.04381, table 2.

struct V2Stage {
  std::int64_t expansion, out;
  int blocks;
  std::int64_t stride;
};

ModulePointer build_mobilenet_v2(DropoutOption options, const LayerSpec& spec, Rng& rng) {
  constexpr V2Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  constexpr std::int64_t kLast = 1280;
  ImageNetwork network(spec, rng);
  std::vector<ModulePointer> features{network.block(32, 3, 2, 1, plain<ReLU6>)};
  for (const V2Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      const std::int64_t in = network.channels(), stride = i == 0 ? stage.stride : 1;
      std::vector<ModulePointer> parts;
      if (stage.expansion != 1) {
        parts.push_back(network.block(in * stage.expansion, 1, 1, 1, plain<ReLU6>));
      }
      parts.push_back(network.depthwise(3, stride, plain<ReLU6>));
      parts.push_back(network.conv(stage.out, 1));
      parts.push_back(network.norm());
      features.push_back(network.inverted_residual("conv", indexed(parts), in, stride));
    }
  }
  features.push_back(network.block(kLast, 1, 1, 1, plain<ReLU6>));
  return classifier_of(features, {std::make_shared<Dropout>(options.dropout),
                                  network.normal_linear(kLast, spec.classes())});
}

// --- Howard et al., "Searching for MobileNetV3", arXiv:1905.02244, tables 1 and 2.

struct V3Block {
  std::int64_t kernel, expanded, out;
  bool squeezes, hardswish;
  std::int64_t stride;
};

struct V3Design {
  std::vector<V3Block> blocks;
  std::int64_t last;
};

const V3Design& mobilenet_v3_small() {
  static const V3Design kDesign{{{3, 16, 16, true, false, 2},
                                 {3, 72, 24, false, false, 2},
                                 {3, 88, 24, false, false, 1},
                                 {5, 96, 40, true, true, 2},
                                 {5, 240, 40, true, true, 1},
                                 {5, 240, 40, true, true, 1},
                                 {5, 120, 48, true, true, 1},
                                 {5, 144, 48, true, true, 1},
                                 {5, 288, 96, true, true, 2},
                                 {5, 576, 96, true, true, 1},
                                 {5, 576, 96, true, true, 1}},
                                1024};
  return kDesign;
}

const V3Design& mobilenet_v3_large() {
  static const V3Design kDesign{{{3, 16, 16, false, false, 1},
                                 {3, 64, 24, false, false, 2},
                                 {3, 72, 24, false, false, 1},
                                 {5, 72, 40, true, false, 2},
                                 {5, 120, 40, true, false, 1},
                                 {5, 120, 40, true, false, 1},
                                 {3, 240, 80, false, true, 2},
                                 {3, 200, 80, false, true, 1},
                                 {3, 184, 80, false, true, 1},
                                 {3, 184, 80, false, true, 1},
                                 {3, 480, 112, true, true, 1},
                                 {3, 672, 112, true, true, 1},
                                 {5, 672, 160, true, true, 2},
                                 {5, 960, 160, true, true, 1},
                                 {5, 960, 160, true, true, 1}},
                                1280};
  return kDesign;
}

// The nearest multiple of 8, but no less than 90 % of it.
std::int64_t multiple_of_8(std::int64_t channels) {
  const std::int64_t nearest = std::max<std::int64_t>(8, (channels + 4) / 8 * 8);
  return 10 * nearest < 9 * channels ? nearest + 8 : nearest;
}

ModulePointer build_mobilenet_v3(const V3Design& design, const DropoutOption& options,
                                 const LayerSpec& spec, Rng& rng) {
  ImageNetwork network(spec, rng, {.eps = 1e-3, .momentum = 0.01});
  std::vector<ModulePointer> features{network.block(16, 3, 2, 1, plain<Hardswish>)};
  for (const V3Block& block : design.blocks) {
    const std::int64_t in = network.channels();
    const Activation activation = block.hardswish ? plain<Hardswish> : plain<ReLU>;
    std::vector<ModulePointer> parts;
    if (block.expanded != in) parts.push_back(network.block(block.expanded, 1, 1, 1, activation));
    parts.push_back(network.depthwise(block.kernel, block.stride, activation));
    if (block.squeezes) {
      parts.push_back(network.squeeze_excite(multiple_of_8(block.expanded / 4), plain<ReLU>,
                                             plain<HardSigmoid>));
    }
    parts.push_back(network.block(block.out, 1, 1, 1, nullptr));
    features.push_back(network.inverted_residual("block", indexed(parts), in, block.stride));
  }
  const std::int64_t wide = 6 * network.channels();
  features.push_back(network.block(wide, 1, 1, 1, plain<Hardswish>));
  return classifier_of(features, {network.normal_linear(wide, design.last), plain<Hardswish>(),
                                  std::make_shared<Dropout>(options.dropout),
                                  network.normal_linear(design.last, spec.classes())});
}

// --- Tan and Le, "EfficientNet", arXiv:1905.11946, table 1.

struct EfficientStage {
  std::int64_t expansion, kernel, stride, out;
  int blocks;
};

ModulePointer build_efficientnet_b0(DropoutOption options, const LayerSpec& spec, Rng& rng) {
  constexpr EfficientStage kStages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                        {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                        {6, 3, 1, 320, 1}};
  ImageNetwork network(spec, rng);
  std::vector<ModulePointer> features{network.block(32, 3, 2, 1, plain<SiLU>)};
  for (const EfficientStage& stage : kStages) {
    std::vector<ModulePointer> blocks;
    for (int i = 0; i < stage.blocks; ++i) {
      const std::int64_t in = network.channels(), stride = i == 0 ? stage.stride : 1;
      std::vector<ModulePointer> parts;
      if (stage.expansion != 1) {
        parts.push_back(network.block(in * stage.expansion, 1, 1, 1, plain<SiLU>));
      }
      parts.push_back(network.depthwise(stage.kernel, stride, plain<SiLU>));
      parts.push_back(network.squeeze_excite(in / 4, plain<SiLU>, plain<Sigmoid>));
      parts.push_back(network.block(stage.out, 1, 1, 1, nullptr));
      blocks.push_back(network.inverted_residual("block", indexed(parts), in, stride));
    }
    features.push_back(std::make_shared<Sequential>(blocks));
  }
  const std::int64_t wide = 4 * network.channels();
  features.push_back(network.block(wide, 1, 1, 1, plain<SiLU>));
  auto last = network.linear(wide, spec.classes());
  fill_uniform(last->weight().value(), 1 / std::sqrt(static_cast<double>(spec.classes())), rng);
  return classifier_of(features, {std::make_shared<Dropout>(options.dropout), last});
}

}  // namespace

void add_torchvision_models(ModelRegistry& registry) {
  const auto add_resnet = [&](const char* type, const char* help, const ResnetDesign& design) {
    registry.add_model(type, help, {}, [design](const LayerSpec& spec, Rng& rng) {
      return build_resnet(design, spec, rng);
    });
  };
  add_resnet("resnet18", "torchvision's, for images of about 224 x 224 (He et al., 2015)",
             {false, {2, 2, 2, 2}});
  add_resnet("resnet34", "torchvision's", {false, {3, 4, 6, 3}});
  add_resnet("resnet50", "torchvision's", {true, {3, 4, 6, 3}});
  const std::vector<Row<DropoutOption>> rows{
      dropout_row(&DropoutOption::dropout, "an input of the last layer in training")};
  registry.add_model<DropoutOption>("mobilenet_v2", "torchvision's (Sandler et al., 2018)", rows,
                                    build_mobilenet_v2);
  registry.add_model<DropoutOption>(
      "mobilenet_v3_small", "torchvision's (Howard et al., 2019)", rows,
      [](DropoutOption options, const LayerSpec& spec, Rng& rng) {
        return build_mobilenet_v3(mobilenet_v3_small(), options, spec, rng);
      });
  registry.add_model<DropoutOption>("mobilenet_v3_large", "torchvision's", rows,
                                    [](DropoutOption options, const LayerSpec& spec, Rng& rng) {
                                      return build_mobilenet_v3(mobilenet_v3_large(), options, spec,
                                                                rng);
                                    });
  registry.add_model<DropoutOption>("efficientnet_b0",
                                    "torchvision's, without stochastic depth (Tan and Le, 2019)",
                                    rows, build_efficientnet_b0);
}

}  // namespace steelyard
