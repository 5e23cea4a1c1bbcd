#include "steelyard/recipes/models/models.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/framework/tensor/machine_memory.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/init.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/models/model_parts.h"

namespace steelyard {
namespace {

using Modules = NamedModules;

std::shared_ptr<Linear> linear(const LayerSpec& spec, std::int64_t in, std::int64_t out, Rng& rng) {
  return make_linear_part(spec, in, out, rng);
}

std::shared_ptr<Conv2d> conv(const LayerSpec& spec, std::int64_t in, std::int64_t out,
                             std::int64_t kernel, Rng& rng) {
  return make_conv_part(spec, {.in = in, .out = out, .kernel = kernel}, rng);
}

std::shared_ptr<BatchNorm2d> batch_norm(std::int64_t channels) {
  return std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels});
}

struct MlpSpec {
  std::vector<std::int64_t> hidden{256, 128};
  double dropout = 0;
};

std::shared_ptr<Module> build_mlp(MlpSpec options, const LayerSpec& spec, Rng& rng) {
  Modules modules{{"flatten", std::make_shared<Flatten>()}};
  std::int64_t width = shape_size(spec.input_shape());
  std::size_t i = 1;
  for (std::int64_t hidden : options.hidden) {
    modules.emplace_back(numbered("fc", i), linear(spec, width, hidden, rng));
    modules.emplace_back(numbered("relu", i), std::make_shared<ReLU>());
    if (options.dropout > 0) {
      modules.emplace_back(numbered("dropout", i), std::make_shared<Dropout>(options.dropout));
    }
    width = hidden;
    ++i;
  }
  modules.emplace_back(numbered("fc", i), linear(spec, width, spec.classes(), rng));
  return std::make_shared<Sequential>(std::move(modules));
}

struct CnnSpec {
  std::vector<std::int64_t> channels{32, 64};
  std::int64_t hidden = 128;
  double dropout = 0;
};

std::shared_ptr<Module> build_cnn(CnnSpec options, const LayerSpec& spec, Rng& rng) {
  Modules modules;
  std::int64_t in = spec.channels();
  std::int64_t height = spec.input_shape()[0];
  std::int64_t width = spec.input_shape()[1];
  std::size_t i = 1;
  for (std::int64_t out : options.channels) {
    if (height < 2 || width < 2) {
      spec.fail("cnn halves the image " + std::to_string(options.channels.size()) +
                " times, which is too often for an input of " + shape_string(spec.input_shape()) +
                " (height, width, channels)");
    }
    modules.emplace_back(numbered("conv", i), conv(spec, in, out, 3, rng));
    modules.emplace_back(numbered("bn", i), batch_norm(out));
    modules.emplace_back(numbered("relu", i), std::make_shared<ReLU>());
    modules.emplace_back(numbered("pool", i), std::make_shared<MaxPool2d>(Pool2dGeometry{
                                                  .kernel = {2, 2}, .stride = {2, 2}}));
    height /= 2;
    width /= 2;
    in = out;
    ++i;
  }
  modules.emplace_back("flatten", std::make_shared<Flatten>());
  modules.emplace_back("fc1", linear(spec, height * width * in, options.hidden, rng));
  modules.emplace_back(numbered("relu", i), std::make_shared<ReLU>());
  if (options.dropout > 0) {
    modules.emplace_back("dropout", std::make_shared<Dropout>(options.dropout));
  }
  modules.emplace_back("fc2", linear(spec, options.hidden, spec.classes(), rng));
  return std::make_shared<Sequential>(std::move(modules));
}

std::shared_ptr<Module> residual_block(const LayerSpec& spec, std::int64_t in, std::int64_t out,
                                       std::int64_t stride, Rng& rng) {
  auto main = std::make_shared<Sequential>(Modules{
      {"conv1",
       make_normal_conv_part(spec, {.in = in, .out = out, .kernel = 3, .stride = stride}, rng)},
      {"bn1", batch_norm(out)},
      {"relu1", std::make_shared<ReLU>()},
      {"conv2", make_normal_conv_part(spec, {.in = out, .out = out, .kernel = 3}, rng)},
      {"bn2", batch_norm(out)}});
  std::shared_ptr<Module> shortcut = std::make_shared<Identity>();
  if (stride != 1 || in != out) {
    shortcut = std::make_shared<Sequential>(Modules{
        {"0",
         make_normal_conv_part(spec, {.in = in, .out = out, .kernel = 1, .stride = stride}, rng)},
        {"1", batch_norm(out)}});
  }
  return std::make_shared<Residual>(std::move(main), std::move(shortcut), std::make_shared<ReLU>());
}

struct ResnetSpec {
  std::int64_t depth = 8;
  std::int64_t width = 16;
};

// He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2, with projection
// shortcuts (option B).
std::shared_ptr<Module> build_resnet(ResnetSpec options, const LayerSpec& spec, Rng& rng) {
  const std::int64_t depth = options.depth;
  if (depth % 6 != 2) {
    fail_at(spec.at("depth").place,
            "expected a depth of 6n+2 (8, 14, 20, ...), got " + std::to_string(depth));
  }
  std::int64_t in = options.width;
  Modules modules{
      {"conv1", make_normal_conv_part(spec, {.in = spec.channels(), .out = in, .kernel = 3}, rng)},
      {"bn1", batch_norm(in)},
      {"relu", std::make_shared<ReLU>()}};
  for (std::size_t stage = 1; stage <= 3; ++stage) {
    const std::int64_t out = options.width << (stage - 1);
    Modules blocks;
    for (std::int64_t block = 0; block < depth / 6; ++block) {
      const std::int64_t stride = stage > 1 && block == 0 ? 2 : 1;
      blocks.emplace_back(std::to_string(block), residual_block(spec, in, out, stride, rng));
      in = out;
    }
    modules.emplace_back(numbered("layer", stage), std::make_shared<Sequential>(std::move(blocks)));
  }
  modules.emplace_back("avgpool", std::make_shared<GlobalAvgPool>());
  modules.emplace_back("fc", linear(spec, in, spec.classes(), rng));
  return std::make_shared<Sequential>(std::move(modules));
}

struct MobilenetSpec {
  std::int64_t stem = 32;
  std::int64_t stem_stride = 1;
  std::vector<std::int64_t> channels{64, 128, 128, 256, 256};
  std::vector<std::int64_t> strides{1, 2, 1, 2, 1};
  kernels::Activation activation = kernels::Activation::kRelu;
};

std::shared_ptr<Module> separable_block(const MobilenetSpec& options, const LayerSpec& spec,
                                        std::int64_t in, std::int64_t out, std::int64_t stride,
                                        Rng& rng) {
  return std::make_shared<Sequential>(
      Modules{{"conv_dw",
               make_normal_conv_part(
                   spec, {.in = in, .out = in, .kernel = 3, .stride = stride, .groups = in}, rng)},
              {"bn1", batch_norm(in)},
              {"act1", activation_layer(options.activation)},
              {"conv_pw", make_normal_conv_part(spec, {.in = in, .out = out, .kernel = 1}, rng)},
              {"bn2", batch_norm(out)},
              {"act2", activation_layer(options.activation)}});
}

// Howard et al., "MobileNets", 2017, arXiv:1704.04861, table 1, cut down for small images. The
// names are those of timm's depthwise separable blocks.
std::shared_ptr<Module> build_mobilenet(MobilenetSpec options, const LayerSpec& spec, Rng& rng) {
  const std::vector<std::int64_t>& channels = options.channels;
  const std::vector<std::int64_t>& strides = options.strides;
  if (channels.size() != strides.size()) {
    fail_at(spec.at("strides").place, "expected a stride for each of the " +
                                          std::to_string(channels.size()) + " blocks, got " +
                                          std::to_string(strides.size()));
  }
  std::int64_t in = options.stem;
  auto stem = make_normal_conv_part(
      spec, {.in = spec.channels(), .out = in, .kernel = 3, .stride = options.stem_stride}, rng);
  Modules modules{{"conv_stem", std::move(stem)},
                  {"bn1", batch_norm(in)},
                  {"act1", activation_layer(options.activation)}};
  Modules blocks;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    blocks.emplace_back(std::to_string(i),
                        separable_block(options, spec, in, channels[i], strides[i], rng));
    in = channels[i];
  }
  modules.emplace_back("blocks", std::make_shared<Sequential>(std::move(blocks)));
  modules.emplace_back("avgpool", std::make_shared<GlobalAvgPool>());
  modules.emplace_back("fc", linear(spec, in, spec.classes(), rng));
  return std::make_shared<Sequential>(std::move(modules));
}

constexpr const char* kHiddenUnits = "a hidden unit in training; 0: no such layer";

template <typename T>
Row<T> sizes_row(const std::string& name, const std::string& help,
                 std::vector<std::int64_t> T::*member, double max = 65536) {
  return key(name, help, member).within(1, max).items(1, 64);
}

// Outputs of the model: what the recipe and the dataset agree on.
std::int64_t outputs_of(const ModelSpec& spec, std::int64_t classes) {
  const std::int64_t asked = spec.classes.value_or(classes);
  if (asked == 0) {
    fail_at(spec.options.place,
            "missing key 'model.classes': the dataset has no classes, so the recipe must give the "
            "number of outputs, for a regression one for each value of a sample's targets");
  }
  if (classes != 0 && asked != classes) {
    fail_at(spec.options.find("classes")->place, "expected the dataset's " +
                                                     std::to_string(classes) + " classes, got " +
                                                     std::to_string(asked));
  }
  return asked;
}

// Whether an InputPart below the node reads that input.
bool reads_input(const YamlNode& node, const std::string& input) {
  const YamlNode* type = node.find("type");
  const YamlNode* read = node.find("input");
  if (type != nullptr && type->text == kInputPartLayer && read != nullptr && read->text == input) {
    return true;
  }
  const auto in = [&](const YamlNode& below) { return reads_input(below, input); };
  return std::any_of(node.items.begin(), node.items.end(), in) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [&](const YamlEntry& entry) { return in(entry.value); });
}

// A model that reads one input of a sample by name reads them all.
void require_all_parts(const ModelSpec& spec, const LayerInput& input) {
  if (!reads_input_parts(spec)) return;
  for (const NamedInput& part : input.parts) {
    if (reads_input(spec.options, part.name)) continue;
    fail_at(spec.options.place, "model: no InputPart reads the input " +
                                    quote_for_message(part.name) +
                                    " of data.inputs: expected one, or not to list it there");
  }
}

}  // namespace

void add_models(ModelRegistry& registry) {
  registry.add_model<MlpSpec>(
      "mlp", "fully connected, for images and flat features",
      {sizes_row("hidden", "numbers of units of the hidden layers", &MlpSpec::hidden).by_default(),
       dropout_row(&MlpSpec::dropout, kHiddenUnits)},
      build_mlp);
  registry.add_model<CnnSpec>(
      "cnn", "3x3 convolutions with batch norm and 2x2 max pooling",
      {sizes_row("channels", "output channels of each convolution", &CnnSpec::channels)
           .by_default(),
       key("hidden", "number of units of the hidden linear layer", &CnnSpec::hidden)
           .by_default()
           .within(1, 65536),
       dropout_row(&CnnSpec::dropout, kHiddenUnits)},
      build_cnn);
  registry.add_model<ResnetSpec>(
      "resnet", "residual network for small images (He et al., 2015, section 4.2)",
      {key("depth", "layers with weights: 6n+2", &ResnetSpec::depth).by_default().within(8, 1202),
       key("width", "channels of the first stage; each further stage doubles them",
           &ResnetSpec::width)
           .by_default()
           .within(1, 4096)},
      build_resnet);
  registry.add_model<MobilenetSpec>(
      "mobilenet", "depthwise separable convolutions for small images (Howard et al., 2017)",
      {key("stem", "output channels of the first convolution", &MobilenetSpec::stem)
           .by_default()
           .within(1, 4096),
       key("stem_stride",
           "stride of the first convolution: 1, or 2 for images of 64 pixels and more",
           &MobilenetSpec::stem_stride)
           .by_default()
           .within(1, 2),
       sizes_row("channels", "output channels of each block", &MobilenetSpec::channels)
           .by_default(),
       sizes_row("strides", "stride of each block", &MobilenetSpec::strides, 2).by_default(),
       key("activation", "after each batch norm", &MobilenetSpec::activation)
           .only({kernels::Activation::kRelu, kernels::Activation::kRelu6})
           .by_default()},
      build_mobilenet);
}

ModelRegistry builtin_models() {
  ModelRegistry registry;
  add_layers(registry);
  add_models(registry);
  add_torchvision_models(registry);
  return registry;
}

bool has_layer(const YamlNode& node, const std::string& type) {
  const YamlNode* own = node.find("type");
  if (own != nullptr && own->text == type) return true;
  return std::any_of(node.items.begin(), node.items.end(),
                     [&](const YamlNode& item) { return has_layer(item, type); }) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [&](const YamlEntry& entry) { return has_layer(entry.value, type); });
}

namespace {

bool has_one_of(const YamlNode& node, std::initializer_list<const char*> types) {
  return std::any_of(types.begin(), types.end(),
                     [&](const char* type) { return has_layer(node, type); });
}

// The type of the first layer that is not a container, nor one that leaves shapes alone before it.
std::string first_layer(const YamlNode& node) {
  constexpr std::string_view kPassed[] = {"Sequential", "Residual",  "Concat",
                                          "Graph",      "LayerNorm", "Dropout"};
  const YamlNode* type = node.find("type");
  if (type != nullptr &&
      std::find(std::begin(kPassed), std::end(kPassed), type->text) == std::end(kPassed)) {
    return type->text;
  }
  for (const YamlNode& item : node.items) {
    if (std::string first = first_layer(item); !first.empty()) return first;
  }
  for (const YamlEntry& entry : node.entries) {
    if (std::string first = first_layer(entry.value); !first.empty()) return first;
  }
  return "";
}

}  // namespace

bool takes_sequences(const ModelSpec& spec) {
  return spec.file() ||
         has_one_of(spec.options,
                    {"Conv1d", "LSTM", "GRU", "MaxPool1d", "AvgPool1d", "Attention"}) ||
         first_layer(spec.options) == "Linear";  // which takes no image
}

bool takes_images(const ModelSpec& spec) {
  if (!spec.type.empty()) return spec.type != "mlp";
  return has_one_of(spec.options, {"Conv2d", "ConvTranspose2d", "BatchNorm2d", "MaxPool2d",
                                   "AvgPool2d", "Upsample"});
}

bool reads_input_parts(const ModelSpec& spec) { return has_layer(spec.options, kInputPartLayer); }

std::shared_ptr<Module> build_model(const ModelSpec& spec, const Shape& input_shape,
                                    std::int64_t classes, Rng& rng, const ModelRegistry& registry) {
  return build_model(spec, LayerInput{input_shape}, classes, rng, registry);
}

std::shared_ptr<Module> build_model(const ModelSpec& spec, const LayerInput& input,
                                    std::int64_t classes, Rng& rng, const ModelRegistry& registry) {
  const std::int64_t outputs = outputs_of(spec, classes);
  const LayerSpec layer(spec.options, registry, input, outputs);
  const bool ready = !spec.type.empty();
  const auto build = [&](Rng& random) {
    return ready ? build_module(registry.model(spec.type), layer, random)
                 : layer.build_layers(layer.at("layers"), random);
  };
  {  // a trial, which costs neither time nor memory
    const WeightCount count(machine_memory_bytes());
    Rng unused(0);
    build(unused);
  }
  require_all_parts(spec, input);  // after names that no input has, which say what is meant
  BuiltModule built = build(rng);
  if (built.output_shape != Shape{outputs}) {
    fail_at(ready ? layer.at("type").place : layer.at("layers").items.back().place,
            std::string("expected the ") + (ready ? "model" : "last layer") + " to give " +
                std::to_string(outputs) + " outputs, got " + shape_string(built.output_shape));
  }
  return built.module;
}

}  // namespace steelyard
