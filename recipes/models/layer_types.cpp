// The rows of the layer table: options and factory of each type.
#include <array>
#include <optional>

#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/catalogue.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/input_part.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

constexpr double kMaxSize = 65536;
constexpr double kMaxExtent = 1024;

std::shared_ptr<Module> make_linear(LinearOptions options, const LayerSpec& spec, Rng& rng) {
  const bool sequence = spec.input_shape().size() == 2;
  options.in_features = sequence ? spec.input_shape().back() : spec.features();
  require_weights(spec, options.in_features, options.out_features);
  return std::make_shared<Linear>(options, rng);
}

void require_sequence(const LayerSpec& spec) {
  if (spec.input_shape().size() == 2) return;
  spec.fail(spec.text("type") + " expects a sequence [length, channels] of floats, got " +
            shape_string(spec.input_shape()));
}

void require_groups(const LayerSpec& spec, std::int64_t in, std::int64_t out, std::int64_t groups) {
  if (in % groups == 0 && out % groups == 0) return;
  fail_at(spec.at("groups").place, "expected a divisor of the channels " + std::to_string(in) +
                                       " and " + std::to_string(out) + ", got " +
                                       std::to_string(groups));
}

std::shared_ptr<Module> make_conv2d(Conv2dOptions options, const LayerSpec& spec, Rng& rng) {
  options.in_channels = spec.channels();
  require_groups(spec, options.in_channels, options.out_channels, options.groups);
  require_weights(spec, options.in_channels / options.groups * options.out_channels,
                  options.kernel_size[0] * options.kernel_size[1]);
  return std::make_shared<Conv2d>(options, rng);
}

std::shared_ptr<Module> make_conv1d(Conv1dOptions options, const LayerSpec& spec, Rng& rng) {
  require_sequence(spec);
  options.in_channels = spec.input_shape().back();
  require_groups(spec, options.in_channels, options.out_channels, options.groups);
  require_weights(spec, options.in_channels / options.groups * options.out_channels,
                  options.kernel_size);
  return std::make_shared<Conv1d>(options, rng);
}

std::shared_ptr<Module> make_conv_transpose2d(ConvTranspose2dOptions options, const LayerSpec& spec,
                                              Rng& rng) {
  options.in_channels = spec.channels();
  require_groups(spec, options.in_channels, options.out_channels, options.groups);
  require_weights(spec, options.in_channels / options.groups * options.out_channels,
                  options.kernel_size[0] * options.kernel_size[1]);
  return std::make_shared<ConvTranspose2d>(options, rng);
}

// A pool whose stride may be that of its windows.
struct PoolSpec {
  Pool2dGeometry geometry;
  std::optional<std::array<std::int64_t, 2>> stride;

  Pool2dGeometry on(const LayerSpec& spec) const {
    spec.channels();
    Pool2dGeometry resolved = geometry;
    resolved.stride = stride.value_or(geometry.kernel);
    return resolved;
  }
};

struct Pool1dSpec {
  Pool1dGeometry geometry;
  std::optional<std::int64_t> stride;

  Pool1dGeometry on(const LayerSpec& spec) const {
    require_sequence(spec);
    Pool1dGeometry resolved = geometry;
    resolved.stride = stride.value_or(geometry.kernel);
    return resolved;
  }
};

struct ResidualSpec {
  YamlNode main;
  std::optional<YamlNode> shortcut;
  kernels::Activation activation = kernels::Activation::kRelu;
};

std::shared_ptr<Module> make_residual(ResidualSpec options, const LayerSpec& spec, Rng& rng) {
  BuiltModule main = spec.build_layers(options.main, rng);
  BuiltModule shortcut{std::make_shared<Identity>(), spec.input_shape()};
  if (options.shortcut) shortcut = spec.build_layers(*options.shortcut, rng);
  if (main.output_shape != shortcut.output_shape) {
    spec.fail("Residual expected main and shortcut of one shape, got " +
              shape_string(main.output_shape) + " and " + shape_string(shortcut.output_shape));
  }
  return std::make_shared<Residual>(main.module, shortcut.module,
                                    activation_layer(options.activation));
}

struct ConcatSpec {
  std::vector<YamlNode> branches;
};

std::shared_ptr<Module> make_concat(ConcatSpec options, const LayerSpec& spec, Rng& rng) {
  std::vector<std::shared_ptr<Module>> branches;
  for (const YamlNode& branch : options.branches) {
    branches.push_back(spec.build_layers(branch, rng).module);
  }
  return std::make_shared<Concat>(branches);
}

struct InputPartSpec {
  std::string input;
};

std::shared_ptr<Module> make_input_part(InputPartSpec options, const LayerSpec& spec, Rng&) {
  const std::vector<NamedInput>& parts = spec.input_parts();
  if (parts.empty()) {
    spec.fail(
        "InputPart reads one of the inputs that data.inputs lists: expected it to be the first "
        "layer of the model or of a branch of its first layer");
  }
  std::int64_t first = 0;
  std::vector<std::string> names;
  for (const NamedInput& part : parts) {
    if (part.name == options.input) {
      return std::make_shared<InputPart>(SamplePart{first, part.shape});
    }
    first += shape_size(part.shape);
    names.push_back(part.name);
  }
  fail_at(spec.at("input").place, "expected one of the inputs of data.inputs (" + join(names) +
                                      "), got " + quote_for_message(options.input) +
                                      did_you_mean(options.input, names));
}

struct SequentialSpec {
  YamlNode layers;
};

struct LeakyReluSpec {
  double slope = 0.01;
};

template <typename T>
std::shared_ptr<Module> make_plain(const LayerSpec&, Rng&) {
  return std::make_shared<T>();
}

template <typename Layer, typename Options, typename Pass, std::int64_t gates>
void add_recurrent(ModelRegistry& registry, const char* type, const char* what) {
  registry.add_layer<Options>(
      type, what,
      {key("units", "outputs of a step", &Options::units).required().within(1, kMaxSize),
       key("reverse", "whether it begins at the sequence's end", &Options::pass, &Pass::reverse)
           .by_default(),
       key("return_sequences",
           "whether it gives the outputs of all steps, a sequence, or the last one computed, flat "
           "features",
           &Options::return_sequences)
           .by_default()},
      [](Options options, const LayerSpec& spec, Rng& rng) -> std::shared_ptr<Module> {
        require_sequence(spec);
        options.inputs = spec.input_shape().back();
        require_weights(spec, options.inputs + options.units, gates * options.units);
        return std::make_shared<Layer>(options, rng);
      });
}

void add_layers_with_weights(ModelRegistry& registry) {
  registry.add_layer<LinearOptions>(
      "Linear", "fully connected: of features, or of each step of a sequence",
      {key("out_features", "outputs", &LinearOptions::out_features).required().within(1, kMaxSize),
       key("bias", "whether a bias is added", &LinearOptions::bias).by_default()},
      make_linear);
  const auto extents = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, member).at_most(kMaxExtent);
  };
  registry.add_layer<Conv2dOptions>(
      "Conv2d", "two-dimensional convolution",
      {key("out_channels", "outputs", &Conv2dOptions::out_channels).required().within(1, kMaxSize),
       extents("kernel_size", "height and width", &Conv2dOptions::kernel_size)
           .required()
           .at_least(1),
       extents("stride", "distance between windows", &Conv2dOptions::stride)
           .by_default()
           .at_least(1),
       extents("padding", "zeros added on each side", &Conv2dOptions::padding)
           .by_default()
           .at_least(0),
       extents("dilation", "distance between the elements of a window", &Conv2dOptions::dilation)
           .by_default()
           .at_least(1),
       key("groups", "groups of channels that are computed separately", &Conv2dOptions::groups)
           .by_default()
           .within(1, kMaxSize),
       key("bias", "whether a bias is added", &Conv2dOptions::bias).by_default()},
      make_conv2d);
  registry.add_layer<Conv1dOptions>(
      "Conv1d",
      "one-dimensional convolution of a sequence [length, channels]; samples of floats with two "
      "dimensions are sequences to a model that has one",
      {key("out_channels", "outputs", &Conv1dOptions::out_channels).required().within(1, kMaxSize),
       key("kernel_size", "length of the window", &Conv1dOptions::kernel_size)
           .required()
           .within(1, kMaxExtent),
       key("stride", "distance between windows", &Conv1dOptions::stride)
           .by_default()
           .within(1, kMaxExtent),
       key("padding", "zeros added on each side", &Conv1dOptions::padding)
           .by_default()
           .within(0, kMaxExtent),
       key("dilation", "distance between the elements of a window", &Conv1dOptions::dilation)
           .by_default()
           .within(1, kMaxExtent),
       key("groups", "groups of channels that are computed separately", &Conv1dOptions::groups)
           .by_default()
           .within(1, kMaxSize),
       key("bias", "whether a bias is added", &Conv1dOptions::bias).by_default()},
      make_conv1d);
  add_recurrent<LSTM, LstmLayerOptions, LstmOptions, 4>(
      registry, "LSTM", "long short-term memory over the steps of a sequence [length, channels]");
  add_recurrent<GRU, GruLayerOptions, GruOptions, 3>(
      registry, "GRU", "gated recurrent unit over the steps of a sequence [length, channels]");
  registry.add_layer<EmbeddingOptions>(
      "Embedding",
      "rows of a learned table at whole numbers, to which values are rounded; numbers of tokens "
      "need `data.normalize: none`",
      {key("count", "rows of the table: the numbers are below it", &EmbeddingOptions::count)
           .required()
           .within(1, static_cast<double>(kMostLayerWeights)),
       key("width", "numbers of a row", &EmbeddingOptions::width).required().within(1, kMaxSize)},
      [](EmbeddingOptions o, const LayerSpec& spec, Rng& rng) -> std::shared_ptr<Module> {
        require_weights(spec, o.count, o.width);
        return std::make_shared<Embedding>(o, rng);
      });
  registry.add_layer<ConvTranspose2dOptions>(
      "ConvTranspose2d", "transposed two-dimensional convolution",
      {key("out_channels", "outputs", &ConvTranspose2dOptions::out_channels)
           .required()
           .within(1, kMaxSize),
       extents("kernel_size", "height and width", &ConvTranspose2dOptions::kernel_size)
           .required()
           .at_least(1),
       extents("stride", "distance between windows", &ConvTranspose2dOptions::stride)
           .by_default()
           .at_least(1),
       extents("padding", "rows and columns left out on each side of the output",
               &ConvTranspose2dOptions::padding)
           .by_default()
           .at_least(0),
       extents("output_padding", "rows and columns added at the end, less than the stride",
               &ConvTranspose2dOptions::output_padding)
           .by_default()
           .at_least(0),
       extents("dilation", "distance between the elements of a window",
               &ConvTranspose2dOptions::dilation)
           .by_default()
           .at_least(1),
       key("groups", "groups of channels that are computed separately",
           &ConvTranspose2dOptions::groups)
           .by_default()
           .within(1, kMaxSize),
       key("bias", "whether a bias is added", &ConvTranspose2dOptions::bias).by_default()},
      make_conv_transpose2d);
}

void add_norms(ModelRegistry& registry) {
  const auto eps = [](auto member) {
    return key("eps", "added to the variance", member).by_default().above(0);
  };
  const std::vector<Row<BatchNormOptions>> batch_norm{
      eps(&BatchNormOptions::eps),
      key("momentum", "the weight of a new batch in the running statistics",
          &BatchNormOptions::momentum)
          .by_default()
          .within(0, 1)};
  registry.add_layer<BatchNormOptions>(
      "BatchNorm2d", "batch normalization of each channel", batch_norm,
      [](BatchNormOptions o, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        o.channels = spec.channels();
        return std::make_shared<BatchNorm2d>(o);
      });
  registry.add_layer<BatchNormOptions>(
      "BatchNorm1d", "batch normalization of each channel of a sequence, or of each feature",
      batch_norm, [](BatchNormOptions o, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        if (spec.is_image()) {
          spec.fail("BatchNorm1d expects a sequence [length, channels] or flat features, got " +
                    shape_string(spec.input_shape()));
        }
        o.channels = spec.input_shape().back();
        return std::make_shared<BatchNorm1d>(o);
      });
  registry.add_layer<LayerNormOptions>(
      "LayerNorm", "normalization over the channels or features", {eps(&LayerNormOptions::eps)},
      [](LayerNormOptions o, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        o.features = spec.input_shape().back();
        return std::make_shared<LayerNorm>(o);
      });
  registry.add_layer<InstanceNormOptions>(
      "InstanceNorm", "normalization of each channel of a sample over its pixels or steps",
      {eps(&InstanceNormOptions::eps)},
      [](InstanceNormOptions o, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        o.channels = spec.input_shape().back();
        return std::make_shared<InstanceNorm>(o);
      });
}

void add_pools(ModelRegistry& registry) {
  const std::vector<Row<PoolSpec>> rows{
      key("kernel_size", "height and width", &PoolSpec::geometry, &Pool2dGeometry::kernel)
          .required()
          .within(1, kMaxExtent),
      key("stride", "distance between windows; absent: kernel_size", &PoolSpec::stride)
          .within(1, kMaxExtent),
      key("padding", "positions added on each side", &PoolSpec::geometry, &Pool2dGeometry::padding)
          .by_default()
          .within(0, kMaxExtent)};
  registry.add_layer<PoolSpec>(
      "MaxPool2d", "largest value of each window", rows,
      [](PoolSpec pool, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<MaxPool2d>(pool.on(spec));
      });
  registry.add_layer<PoolSpec>(
      "AvgPool2d", "mean of each window, padding counted", rows,
      [](PoolSpec pool, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<AvgPool2d>(AvgPool2dOptions{.geometry = pool.on(spec)});
      });
  const std::vector<Row<Pool1dSpec>> rows_1d{
      key("kernel_size", "length of the window", &Pool1dSpec::geometry, &Pool1dGeometry::kernel)
          .required()
          .within(1, kMaxExtent),
      key("stride", "distance between windows; absent: kernel_size", &Pool1dSpec::stride)
          .within(1, kMaxExtent),
      key("padding", "positions added on each side", &Pool1dSpec::geometry,
          &Pool1dGeometry::padding)
          .by_default()
          .within(0, kMaxExtent)};
  registry.add_layer<Pool1dSpec>(
      "MaxPool1d", "largest value of each window of a sequence", rows_1d,
      [](Pool1dSpec pool, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<MaxPool1d>(pool.on(spec));
      });
  registry.add_layer<Pool1dSpec>(
      "AvgPool1d", "mean of each window of a sequence, padding counted", rows_1d,
      [](Pool1dSpec pool, const LayerSpec& spec, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<AvgPool1d>(pool.on(spec));
      });
  registry.add_layer("GlobalAvgPool",
                     "mean of each channel: an image or a sequence becomes flat features", {},
                     make_plain<GlobalAvgPool>);
}

void add_containers(ModelRegistry& registry) {
  registry.add_layer<ResidualSpec>(
      "Residual", "activation(main(x) + shortcut(x))",
      {registry.layer_list("main", "the main branch", &ResidualSpec::main).required(),
       registry.layer_list("shortcut", "the other branch; the input when absent",
                           &ResidualSpec::shortcut),
       key("activation", "after the sum", &ResidualSpec::activation)
           .only({kernels::Activation::kRelu, kernels::Activation::kNone})
           .by_default()},
      make_residual);
  registry.add_layer<ConcatSpec>(
      "Concat", "branches of one input, concatenated along channels or features",
      {registry
           .branches("branches",
                     "lists of layers, named branch1, branch2, ...; an empty one is the input",
                     &ConcatSpec::branches)
           .required()},
      make_concat);
  registry.add_layer<SequentialSpec>(
      "Sequential", "layers one after another under one name",
      {registry.layer_list("layers", "first to last", &SequentialSpec::layers).required()},
      [](SequentialSpec options, const LayerSpec& spec, Rng& rng) {
        return spec.build_layers(options.layers, rng).module;
      });
}

}  // namespace

void add_layers(ModelRegistry& registry) {
  add_layers_with_weights(registry);
  add_norms(registry);
  registry.add_layer("ReLU", "max(x, 0)", {}, make_plain<ReLU>);
  registry.add_layer("ReLU6", "min(max(x, 0), 6)", {}, make_plain<ReLU6>);
  registry.add_layer<LeakyReluSpec>(
      "LeakyReLU", "max(x, 0) + slope * min(x, 0)",
      {key("slope", "factor below zero", &LeakyReluSpec::slope).by_default().within(0, 1)},
      [](LeakyReluSpec options, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<LeakyReLU>(options.slope);
      });
  registry.add_layer("Sigmoid", "1 / (1 + exp(-x))", {}, make_plain<Sigmoid>);
  registry.add_layer("Softmax", "exp(x) / sum of exp(x) over channels or features", {},
                     make_plain<Softmax>);
  registry.add_layer("LogSoftmax",
                     "x - log(sum of exp(x)) over channels or features; as the last layer it "
                     "changes nothing for `cross_entropy`",
                     {}, make_plain<LogSoftmax>);
  registry.add_layer("GELU", "x * Phi(x), by erf", {}, make_plain<GELU>);
  registry.add_layer("SiLU", "x * sigmoid(x)", {}, make_plain<SiLU>);
  registry.add_layer("Hardswish", "x * ReLU6(x + 3) / 6", {}, make_plain<Hardswish>);
  add_pools(registry);
  registry.add_layer("Flatten", "an image becomes flat features, channel by channel", {},
                     make_plain<Flatten>);
  registry.add_layer<DropoutOptions>(
      "Dropout", "drops values in training",
      {key("p", "probability of dropping a value in training", &DropoutOptions::p)
           .by_default()
           .within(0, 0.99),
       key("unit", "what is dropped together", &DropoutOptions::unit).by_default()},
      [](DropoutOptions options, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<Dropout>(options);
      });
  add_containers(registry);
  add_function_layers(registry);
  add_graph_layers(registry);
  registry.add_layer<InputPartSpec>(
      "InputPart",
      "one of the inputs of samples that have several (`data.inputs`); the first layer of a branch",
      {key("input", "the name in `data.inputs`", &InputPartSpec::input).required()},
      make_input_part);
}

}  // namespace steelyard
