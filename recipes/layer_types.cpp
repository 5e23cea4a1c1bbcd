// The rows of the layer table: options and factory of each type.
#include <array>

#include "layers/activations.h"
#include "layers/batch_norm2d.h"
#include "layers/concat.h"
#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/flatten.h"
#include "layers/identity.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"
#include "layers/pooling.h"
#include "layers/residual.h"
#include "recipes/models.h"

namespace steelyard {
namespace {

constexpr double kMaxSize = 65536;

std::array<std::int64_t, 2> pair(const LayerSpec& spec, std::string_view key) {
  const std::vector<std::int64_t> values = spec.integers(key);
  return {values[0], values[1]};
}

RecipeOption size_option(const std::string& name, const std::string& help) {
  return {.name = name,
          .kind = OptionKind::kInteger,
          .help = help,
          .required = true,
          .min = 1,
          .max = kMaxSize};
}

RecipeOption pair_option(const std::string& name, double min,
                         std::optional<std::string> default_yaml, const std::string& help = "") {
  return {.name = name,
          .kind = OptionKind::kPair,
          .help = help,
          .default_yaml = std::move(default_yaml),
          .min = min,
          .max = 1024};
}

RecipeOption required(RecipeOption option) {
  option.required = true;
  return option;
}

RecipeOption bias_option() {
  return {.name = "bias", .kind = OptionKind::kBoolean, .default_yaml = "true"};
}

std::shared_ptr<Module> make_linear(const LayerSpec& spec, Rng& rng) {
  const LinearOptions options{.in_features = spec.features(),
                              .out_features = spec.integer("out_features"),
                              .bias = spec.boolean("bias")};
  require_weights(spec, options.in_features, options.out_features);
  return std::make_shared<Linear>(options, rng);
}

std::shared_ptr<Module> make_conv2d(const LayerSpec& spec, Rng& rng) {
  const Conv2dOptions options{.in_channels = spec.channels(),
                              .out_channels = spec.integer("out_channels"),
                              .kernel_size = pair(spec, "kernel_size"),
                              .stride = pair(spec, "stride"),
                              .padding = pair(spec, "padding"),
                              .dilation = pair(spec, "dilation"),
                              .groups = spec.integer("groups"),
                              .bias = spec.boolean("bias")};
  if (options.in_channels % options.groups != 0 || options.out_channels % options.groups != 0) {
    fail_at(spec.at("groups").place,
            "expected a divisor of the channels " + std::to_string(options.in_channels) + " and " +
                std::to_string(options.out_channels) + ", got " + std::to_string(options.groups));
  }
  require_weights(spec, options.in_channels / options.groups * options.out_channels,
                  options.kernel_size[0] * options.kernel_size[1]);
  return std::make_shared<Conv2d>(options, rng);
}

Pool2dGeometry pool_geometry(const LayerSpec& spec) {
  spec.channels();
  return {.kernel = pair(spec, "kernel_size"),
          .stride = pair(spec, spec.has("stride") ? "stride" : "kernel_size"),
          .padding = pair(spec, "padding")};
}

std::shared_ptr<Module> make_residual(const LayerSpec& spec, Rng& rng) {
  BuiltModule main = spec.build_layers("main", spec.input_shape(), rng);
  BuiltModule shortcut{std::make_shared<Identity>(), spec.input_shape()};
  if (spec.has("shortcut")) shortcut = spec.build_layers("shortcut", spec.input_shape(), rng);
  if (main.output_shape != shortcut.output_shape) {
    spec.fail("Residual expected main and shortcut of one shape, got " +
              shape_string(main.output_shape) + " and " + shape_string(shortcut.output_shape));
  }
  std::shared_ptr<Module> activation = std::make_shared<Identity>();
  if (spec.text("activation") == "relu") activation = std::make_shared<ReLU>();
  return std::make_shared<Residual>(main.module, shortcut.module, activation);
}

std::shared_ptr<Module> make_concat(const LayerSpec& spec, Rng& rng) {
  std::vector<std::shared_ptr<Module>> branches;
  for (BuiltModule& branch : spec.build_branches("branches", rng)) {
    branches.push_back(std::move(branch.module));
  }
  return std::make_shared<Concat>(branches);
}

template <typename T>
std::shared_ptr<Module> make_plain(const LayerSpec&, Rng&) {
  return std::make_shared<T>();
}

void add_layers_with_weights(ModelRegistry& registry) {
  const RecipeOption groups{.name = "groups",
                            .kind = OptionKind::kInteger,
                            .default_yaml = "1",
                            .min = 1,
                            .max = kMaxSize};
  registry.add_layer("Linear", "fully connected",
                     {size_option("out_features", "outputs"), bias_option()}, make_linear);
  registry.add_layer("Conv2d", "two-dimensional convolution",
                     {size_option("out_channels", "outputs"),
                      required(pair_option("kernel_size", 1, {}, "height and width")),
                      pair_option("stride", 1, "1"), pair_option("padding", 0, "0"),
                      pair_option("dilation", 1, "1"), groups, bias_option()},
                     make_conv2d);
  registry.add_layer(
      "BatchNorm2d", "normalisation of each channel", {}, [](const LayerSpec& spec, Rng&) {
        return std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = spec.channels()});
      });
  registry.add_layer(
      "LayerNorm", "normalisation over the channels or features; in float", {},
      [](const LayerSpec& spec, Rng&) {
        return std::make_shared<LayerNorm>(LayerNormOptions{.features = spec.input_shape().back()});
      });
}

void add_pools(ModelRegistry& registry) {
  const std::vector<RecipeOption> options{
      required(pair_option("kernel_size", 1, {}, "height and width")),
      pair_option("stride", 1, {}, "kernel_size when absent"), pair_option("padding", 0, "0")};
  registry.add_layer(
      "MaxPool2d", "largest value of each window", options,
      [](const LayerSpec& spec, Rng&) { return std::make_shared<MaxPool2d>(pool_geometry(spec)); });
  registry.add_layer(
      "AvgPool2d", "mean of each window, padding counted", options,
      [](const LayerSpec& spec, Rng&) {
        return std::make_shared<AvgPool2d>(AvgPool2dOptions{.geometry = pool_geometry(spec)});
      });
  registry.add_layer("GlobalAvgPool", "mean of each channel: an image becomes flat features", {},
                     make_plain<GlobalAvgPool>);
}

void add_containers(ModelRegistry& registry) {
  const RecipeOption activation{.name = "activation",
                                .kind = OptionKind::kChoice,
                                .help = "after the sum",
                                .default_yaml = "relu",
                                .choices = {"relu", "none"}};
  registry.add_layer(
      "Residual", "activation(main(x) + shortcut(x))",
      {required(registry.layer_list("main", "the branch with the work")),
       registry.layer_list("shortcut", "the other branch; the input when absent"), activation},
      make_residual);
  registry.add_layer("Concat", "branches of one input, joined along channels or features",
                     {required(registry.branches("branches",
                                                 "lists of layers, named branch1, branch2, ...; an "
                                                 "empty one is the input"))},
                     make_concat);
  registry.add_layer("Sequential", "layers in a row under one name",
                     {required(registry.layer_list("layers", "first to last"))},
                     [](const LayerSpec& spec, Rng& rng) {
                       return spec.build_layers("layers", spec.input_shape(), rng).module;
                     });
}

}  // namespace

void add_layers(ModelRegistry& registry) {
  add_layers_with_weights(registry);
  registry.add_layer("ReLU", "max(x, 0)", {}, make_plain<ReLU>);
  registry.add_layer("ReLU6", "min(max(x, 0), 6)", {}, make_plain<ReLU6>);
  registry.add_layer("GELU", "x * Phi(x), by erf; in float", {}, make_plain<GELU>);
  registry.add_layer("SiLU", "x * sigmoid(x); in float", {}, make_plain<SiLU>);
  registry.add_layer("Hardswish", "x * ReLU6(x + 3) / 6; in float", {}, make_plain<Hardswish>);
  add_pools(registry);
  registry.add_layer("Flatten", "an image becomes flat features, channel by channel", {},
                     make_plain<Flatten>);
  const RecipeOption probability{.name = "p",
                                 .kind = OptionKind::kNumber,
                                 .help = "probability of dropping a value in training",
                                 .default_yaml = "0.5",
                                 .min = 0,
                                 .max = 0.99};
  registry.add_layer(
      "Dropout", "drops values in training", {probability},
      [](const LayerSpec& spec, Rng&) { return std::make_shared<Dropout>(spec.number("p")); });
  add_containers(registry);
}

}  // namespace steelyard
