#include "steelyard/recipes/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>

#include "steelyard/framework/tensor/storage.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/recipes/schema/recipe_options.h"
#include "tests/recipes/recipe_support.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::shared_ptr<Module> build(const std::string& model, const Shape& input, std::int64_t classes,
                              const Registries& registries, std::uint64_t seed = 1) {
  const std::string text = with(kSmallRecipe, "{type: mlp, hidden: [8]}", model);
  const Recipe recipe = parse_recipe(text, "r.yaml", {}, registries);
  Rng rng(seed);
  return build_model(recipe.model, input, classes, rng, registries.models);
}

std::shared_ptr<Module> build(const std::string& model, const Shape& input,
                              std::int64_t classes = 10) {
  return build(model, input, classes, builtin_registries());
}

std::string build_rejection(const std::string& model, const Shape& input,
                            std::int64_t classes = 10) {
  return rejection([&] { build(model, input, classes); });
}

std::vector<std::string> parameters(const Module& module) {
  std::vector<std::string> all;
  for (const NamedParameter& p : module.named_parameters()) {
    all.push_back(p.name + shape_string(p.variable.shape()));
  }
  return all;
}

std::int64_t parameter_count(const Module& module) {
  std::int64_t count = 0;
  for (const NamedParameter& p : module.named_parameters()) count += p.variable.value().size();
  return count;
}

Shape output_shape(Module& module, Shape input) {
  NoGradGuard no_grad;
  ForwardContext context;
  return module.forward(Variable(Tensor::zeros(std::move(input))), context).shape();
}

TEST(Models, MlpHasPyTorchNames) {
  const auto model = build("{type: mlp, hidden: [256, 128], dropout: 0.2}", {28, 28, 1});
  EXPECT_THAT(parameters(*model),
              ElementsAre("fc1.weight[256, 784]", "fc1.bias[256]", "fc2.weight[128, 256]",
                          "fc2.bias[128]", "fc3.weight[10, 128]", "fc3.bias[10]"));
  std::vector<std::string> children;
  for (const auto& child : model->children()) children.push_back(child->name());
  EXPECT_THAT(children, ElementsAre("flatten", "fc1", "relu1", "dropout1", "fc2", "relu2",
                                    "dropout2", "fc3"));
  EXPECT_EQ(output_shape(*model, {3, 28, 28, 1}), (Shape{3, 10}));
}

TEST(Models, MlpTakesFlatFeatures) {
  const auto model = build("{type: mlp, hidden: [4]}", {7}, 3);
  EXPECT_EQ(output_shape(*model, {2, 7}), (Shape{2, 3}));
}

TEST(Models, CnnHasPyTorchNames) {
  const auto model = build("{type: cnn}", {28, 28, 1});
  EXPECT_THAT(
      parameters(*model),
      ElementsAre("conv1.weight[32, 1, 3, 3]", "bn1.weight[32]", "bn1.bias[32]",
                  "conv2.weight[64, 32, 3, 3]", "bn2.weight[64]", "bn2.bias[64]",
                  "fc1.weight[128, 3136]", "fc1.bias[128]", "fc2.weight[10, 128]", "fc2.bias[10]"));
  std::vector<std::string> children;
  for (const auto& child : model->children()) children.push_back(child->name());
  EXPECT_THAT(children, ElementsAre("conv1", "bn1", "relu1", "pool1", "conv2", "bn2", "relu2",
                                    "pool2", "flatten", "fc1", "relu3", "fc2"));
  EXPECT_EQ(output_shape(*model, {2, 28, 28, 1}), (Shape{2, 10}));
}

TEST(Models, CnnTakesOddSizesAndRefusesTooSmallOnes) {
  const auto model = build("{type: cnn, channels: [4, 8]}", {31, 5, 3});
  EXPECT_EQ(output_shape(*model, {1, 31, 5, 3}), (Shape{1, 10}));
  EXPECT_EQ(build_rejection("{type: cnn}", {3, 28, 1}),
            "r.yaml:4:8: cnn halves the image 2 times, which is too often for an input of [3, 28, "
            "1] (height, width, channels)");
  EXPECT_THAT(build_rejection("{type: cnn}", {784}),
              StartsWith("r.yaml:4:8: cnn expected an image"));
}

// He et al., 2015, table 6: the CIFAR ResNet-20 has 0.27 M parameters; projection shortcuts add
// 2 x (1x1 convolution and batch norm).
TEST(Models, ResNet20HasThePapersSize) {
  const auto model = build("{type: resnet, depth: 20, width: 16}", {32, 32, 3});
  const std::int64_t projections = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64);
  EXPECT_EQ(parameter_count(*model), 269'722 + projections);
  EXPECT_EQ(output_shape(*model, {1, 32, 32, 3}), (Shape{1, 10}));
}

TEST(Models, ResNet8HasPyTorchNames) {
  const auto model = build("{type: resnet, depth: 8, width: 4}", {28, 28, 1});
  std::vector<std::string> names;
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.name.ends_with("weight")) names.push_back(p.name);
  }
  EXPECT_THAT(
      names,
      ElementsAre("conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                  "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer2.0.conv1.weight",
                  "layer2.0.bn1.weight", "layer2.0.conv2.weight", "layer2.0.bn2.weight",
                  "layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight",
                  "layer3.0.conv1.weight", "layer3.0.bn1.weight", "layer3.0.conv2.weight",
                  "layer3.0.bn2.weight", "layer3.0.downsample.0.weight",
                  "layer3.0.downsample.1.weight", "fc.weight"));
}

TEST(Models, ResNetTakesAnySizeAndAsksForADepthOf6nPlus2) {
  for (const Shape& size : {Shape{1, 1, 2}, Shape{7, 33, 1}}) {
    const auto model = build("{type: resnet, depth: 14, width: 2}", size);
    EXPECT_EQ(output_shape(*model, {2, size[0], size[1], size[2]}), (Shape{2, 10}));
  }
  EXPECT_EQ(build_rejection("{type: resnet, depth: 18}", {32, 32, 3}),
            "r.yaml:4:30: expected a depth of 6n+2 (8, 14, 20, ...), got 18");
}

TEST(Models, MobileNetHasTimmsNamesAndFitsSmallImages) {
  const auto model = build("{type: mobilenet, channels: [64, 128], strides: [1, 2]}", {28, 28, 1});
  std::vector<std::string> names;
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.name.ends_with("weight")) names.push_back(p.name);
  }
  EXPECT_THAT(names,
              ElementsAre("conv_stem.weight", "bn1.weight", "blocks.0.conv_dw.weight",
                          "blocks.0.bn1.weight", "blocks.0.conv_pw.weight", "blocks.0.bn2.weight",
                          "blocks.1.conv_dw.weight", "blocks.1.bn1.weight",
                          "blocks.1.conv_pw.weight", "blocks.1.bn2.weight", "fc.weight"));
  EXPECT_EQ(model->named_parameters()[3].variable.shape(), (Shape{32, 1, 3, 3}));
  for (const Shape& size : {Shape{28, 28, 1}, Shape{32, 32, 3}, Shape{3, 2, 1}}) {
    EXPECT_EQ(output_shape(*build("{type: mobilenet}", size), {2, size[0], size[1], size[2]}),
              (Shape{2, 10}));
  }
  EXPECT_EQ(build_rejection("{type: mobilenet, strides: [1, 2]}", {28, 28, 1}),
            "r.yaml:4:35: expected a stride for each of the 5 blocks, got 2");
}

TEST(Models, ResNetConvolutionsStartWithVarianceTwoOverFanOut) {
  const auto model = build("{type: resnet, depth: 8, width: 32}", {8, 8, 3});
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.name != "layer3.0.conv2.weight") continue;
    double sum = 0;
    double squares = 0;
    for (float w : p.variable.value().span<float>()) {
      sum += w;
      squares += static_cast<double>(w) * w;
    }
    const auto n = static_cast<double>(p.variable.value().size());
    const double variance = 2.0 / (128 * 9);
    EXPECT_NEAR(squares / n, variance, 6 * variance * std::sqrt(2 / n));
    EXPECT_NEAR(sum / n, 0, 6 * std::sqrt(variance / n));
    return;
  }
  FAIL() << "no layer3.0.conv2.weight";
}

TEST(Models, TheSeedDecidesTheWeights) {
  const auto first = [&](std::uint64_t seed) {
    const auto model = build("{type: resnet, depth: 8}", {8, 8, 1}, 10, builtin_registries(), seed);
    return model->named_parameters()[0].variable.value().span<float>()[0];
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(Models, ClassesMustAgreeWithTheDataset) {
  EXPECT_EQ(build_rejection("{type: mlp, classes: 7}", {4}, 10),
            "r.yaml:4:29: expected the dataset's 10 classes, got 7");
  EXPECT_EQ(build_rejection("{type: mlp}", {4}, 0),
            "r.yaml:4:8: missing key 'model.classes': the dataset has no classes, so the recipe "
            "must give the number of outputs, for a regression one for each value of a sample's "
            "targets");
  EXPECT_EQ(output_shape(*build("{type: mlp, classes: 7}", {4}, 0), {1, 4}), (Shape{1, 7}));
}

TEST(Models, ALayerOfTooManyWeightsIsRefusedBeforeItIsMade) {
  EXPECT_THAT(build_rejection("{type: mlp, hidden: [65536, 65536]}", {4}),
              HasSubstr("expected a layer of at most 268435456 weights, got 65536 x 65536"));
  EXPECT_THAT(build_rejection("{layers: [{type: Conv2d, out_channels: 65536, kernel_size: 1000}]}",
                              {4, 4, 1}),
              HasSubstr("expected a layer of at most 268435456 weights"));
  EXPECT_THAT(build_rejection("{type: cnn, channels: [65536, 65536]}", {8, 8, 1}),
              HasSubstr("expected a layer of at most 268435456 weights, got 589824 x 65536"));
}

// The most memory that this program has touched, in bytes.
std::int64_t most_touched_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// Documented maxima together: hundreds of gigabytes of weights, refused before one is set. A part
// of what was reserved, for AddressSanitizer touches an eighth.
TEST(Models, AModelBeyondTheMemoryIsRefusedBeforeItIsMade) {
  reset_allocator_peak();
  const std::int64_t touched = most_touched_bytes();
  EXPECT_THAT(build_rejection("{type: resnet, depth: 1202, width: 4096}", {28, 28, 1}),
              ::testing::AnyOf(HasSubstr("the weights need more than the "),
                               HasSubstr("expected a layer of at most")));
  EXPECT_THAT(
      build_rejection("{type: resnet, depth: 1202, width: 1365}", {28, 28, 1}),
      ::testing::MatchesRegex("r.yaml:4:8: resnet on an input of \\[28, 28, 1\\]: the weights "
                              "need more than the [0-9.]+ GiB of memory of this machine"));
  std::string layers = "{type: Linear, out_features: 16384}";
  for (int i = 0; i < 1000; ++i) layers += ", {type: Linear, out_features: 16384}";
  EXPECT_THAT(build_rejection("{layers: [" + layers + "]}", {16384}),
              HasSubstr("Linear on an input of [16384]: the weights need more than the "));
  EXPECT_LT(most_touched_bytes() - touched, allocator_stats().peak_bytes / 4);
}

TEST(LayerList, ConcatJoinsBranchesOfLayers) {
  const std::string join =
      "{layers: [{type: Concat, name: join, branches: [[{type: Conv2d, out_channels: 4, "
      "kernel_size: 1}, {type: ReLU}], [{type: Conv2d, name: a, out_channels: 2, kernel_size: 3, "
      "padding: 1}], []]}, {type: GlobalAvgPool}, {type: Linear, out_features: 10}]}";
  const auto model = build(join, {5, 4, 3});
  EXPECT_EQ(output_shape(*model, {2, 5, 4, 3}), (Shape{2, 10}));
  EXPECT_EQ(model->named_parameters()[0].name, "join.branch1.0.weight");
  EXPECT_EQ(model->named_parameters()[2].name, "join.branch2.a.weight");
  EXPECT_EQ(model->slot("join")->children().size(), 4U) << "three branches and the join";
  EXPECT_THAT(
      build_rejection("{layers: [{type: Concat, branches: [[{type: Flatten}], []]}]}", {5, 4, 3}),
      HasSubstr("[concat] expected shapes that differ in the last dimension only"));
}

TEST(LayerList, InfersSizesAndNamesByIndexOrName) {
  const auto model = build(R"({layers: [
    {type: Conv2d, out_channels: 4, kernel_size: [3, 1], padding: [1, 0], bias: false},
    {type: BatchNorm2d, name: norm}, {type: ReLU6}, {type: AvgPool2d, kernel_size: 2},
    {type: Residual, main: [{type: Conv2d, out_channels: 6, kernel_size: 1, groups: 2}],
     shortcut: [{type: Conv2d, name: proj, out_channels: 6, kernel_size: 1}]},
    {type: Sequential, name: head, layers: [{type: MaxPool2d, kernel_size: 3, stride: 2, padding: 1},
     {type: Flatten}, {type: Dropout, p: 0.1}, {type: Linear, out_features: 10}]}]})",
                           {8, 6, 2});
  EXPECT_THAT(
      parameters(*model),
      ElementsAre("0.weight[4, 2, 3, 1]", "norm.weight[4]", "norm.bias[4]",
                  "4.0.weight[6, 2, 1, 1]", "4.0.bias[6]", "4.downsample.proj.weight[6, 4, 1, 1]",
                  "4.downsample.proj.bias[6]", "head.3.weight[10, 24]", "head.3.bias[10]"));
  EXPECT_EQ(output_shape(*model, {2, 8, 6, 2}), (Shape{2, 10}));
}

TEST(LayerList, LayersOfSequences) {
  const auto model = build(R"({layers: [
    {type: Conv1d, out_channels: 6, kernel_size: 3}, {type: BatchNorm1d}, {type: ReLU},
    {type: MaxPool1d, kernel_size: 2}, {type: AvgPool1d, kernel_size: 3, stride: 1, padding: 1},
    {type: LSTM, name: first, units: 5}, {type: LSTM, units: 4, reverse: true, return_sequences: false},
    {type: BatchNorm1d, name: flat}, {type: Linear, out_features: 10}]})",
                           {12, 2});
  EXPECT_THAT(parameters(*model),
              ElementsAre("0.weight[6, 2, 3]", "0.bias[6]", "1.weight[6]", "1.bias[6]",
                          "first.weight[20, 6]", "first.recurrent_weight[20, 5]", "first.bias[20]",
                          "6.weight[16, 5]", "6.recurrent_weight[16, 4]", "6.bias[16]",
                          "flat.weight[4]", "flat.bias[4]", "8.weight[10, 4]", "8.bias[10]"));
  EXPECT_EQ(output_shape(*model, {2, 12, 2}), (Shape{2, 10}));
  EXPECT_EQ(model->slot("first")->description(), "LSTM(6, 5)");
  EXPECT_EQ(model->slot("6")->description(), "LSTM(5, 4, reverse, last output)");
  EXPECT_EQ(model->slot("4")->description(), "AvgPool1d(kernel 3, stride 1, padding 1)");
  EXPECT_EQ(output_shape(*build("{layers: [{type: GlobalAvgPool}]}", {7, 10}), {2, 7, 10}),
            (Shape{2, 10}));
  const auto message = [](const std::string& layer, const Shape& input) {
    return build_rejection("{layers: [" + layer + "]}", input);
  };
  EXPECT_EQ(message("{type: LSTM, units: 4}", {8, 8, 2}),
            "r.yaml:4:18: LSTM expects a sequence [length, channels] of floats, got [8, 8, 2]");
  EXPECT_EQ(message("{type: MaxPool1d, kernel_size: 2}", {8}),
            "r.yaml:4:18: MaxPool1d expects a sequence [length, channels] of floats, got [8]");
  EXPECT_EQ(message("{type: BatchNorm1d}", {8, 8, 2}),
            "r.yaml:4:18: BatchNorm1d expects a sequence [length, channels] or flat features, got "
            "[8, 8, 2]");
  EXPECT_EQ(message("{type: InputPart, input: a}", {8}),
            "r.yaml:4:18: InputPart reads one of the inputs that data.inputs lists: expected it to "
            "be the first layer of the model or of a branch of its first layer");
}

TEST(LayerList, ReadsTheInputsOfASampleByName) {
  const LayerInput input{{14}, {{"image", {3, 4, 1}}, {"age", {2}}}};
  const auto of = [&](const std::string& layers) {
    const Registries& registries = builtin_registries();
    const std::string text =
        with(kSmallRecipe, "{type: mlp, hidden: [8]}", "{layers: [" + layers + "]}");
    const Recipe recipe = parse_recipe(text, "r.yaml", {}, registries);
    Rng rng(1);
    return build_model(recipe.model, input, 10, rng, registries.models);
  };
  const auto model = of(R"({type: Concat, branches: [
      [{type: InputPart, input: image}, {type: Conv2d, out_channels: 2, kernel_size: 3}, {type: Flatten}],
      [{type: InputPart, input: age}]]}, {type: Linear, out_features: 10})");
  EXPECT_EQ(output_shape(*model, {3, 14}), (Shape{3, 10}));
  EXPECT_EQ(model->slot("0.branch2.0")->description(), "InputPart([2] from value 12 on)");
  const auto message = [&](const std::string& layers) { return rejection([&] { of(layers); }); };
  EXPECT_THAT(message("{type: InputPart, input: ages}, {type: Linear, out_features: 10}"),
              HasSubstr("r.yaml:4:43: expected one of the inputs of data.inputs (image, age), got "
                        "'ages' (did you mean 'age'?)"));
  EXPECT_THAT(message("{type: InputPart, input: age}, {type: Linear, out_features: 10}"),
              HasSubstr("no InputPart reads the input 'image' of data.inputs"));
  EXPECT_THAT(
      message("{type: Concat, branches: [[{type: InputPart, input: image}, {type: Flatten}], "
              "[{type: InputPart, input: age}], [{type: InputPart, input: ages}]]}"),
      HasSubstr("expected one of the inputs of data.inputs (image, age), got 'ages'"));
  EXPECT_THAT(
      message("{type: Concat, branches: [[{type: InputPart, input: image}, {type: Flatten}, "
              "{type: InputPart, input: age}]]}"),
      HasSubstr("InputPart reads one of the inputs that data.inputs lists"));
}

TEST(LayerList, LogSoftmaxGivesLogarithmsOfShares) {
  const auto scores = build("{layers: [{type: Linear, out_features: 5}]}", {3}, 5);
  const auto logs =
      build("{layers: [{type: Linear, out_features: 5}, {type: LogSoftmax}]}", {3}, 5);
  const Variable x(testing::random_tensor({2, 3}, 1, DType::kF32));
  ForwardContext context;
  const Tensor raw = scores->forward(x, context).value(), y = logs->forward(x, context).value();
  for (std::int64_t row = 0; row < 2; ++row) {
    double sum = 0, of_exponentials = 0;
    for (std::int64_t c = 0; c < 5; ++c) {
      sum += std::exp(y.data<float>()[5 * row + c]);
      of_exponentials += std::exp(raw.data<float>()[5 * row + c]);
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_NEAR(y.data<float>()[5 * row], raw.data<float>()[5 * row] - std::log(of_exponentials),
                1e-6);
  }
}

TEST(LayerList, ErrorsNameTheLayersPlace) {
  const auto message = [](const std::string& layers) {
    return build_rejection("{layers: [" + layers + "]}", {8, 8, 2});
  };
  EXPECT_EQ(message("{type: Linear, out_features: 10}"),
            "r.yaml:4:18: Linear expected flat features, got an input of [8, 8, 2] (put Flatten or "
            "GlobalAvgPool before it)");
  EXPECT_EQ(message("{type: Flatten}, {type: BatchNorm2d}"),
            "r.yaml:4:35: BatchNorm2d expected an image [height, width, channels], got an input of "
            "[128]");
  EXPECT_EQ(
      message("{type: ReLU, name: a}, {type: ReLU, name: a}"),
      "r.yaml:4:41: the layer at r.yaml:4:18 has the name 'a', too; a layer without a name is "
      "called by its position in the list, from 0");
  EXPECT_THAT(message("{type: ReLU, name: 1}, {type: ReLU}"),
              StartsWith("r.yaml:4:41: the layer at r.yaml:4:18 has the name '1', too"));
  EXPECT_THAT(message("{type: Conv2d, out_channels: 4, kernel: 1}"),
              HasSubstr("unknown key 'kernel' (did you mean 'kernel_size'?)"));
  EXPECT_EQ(message("{type: Conv2d, out_channels: 4, kernel_size: 1, groups: 3}"),
            "r.yaml:4:74: expected a divisor of the channels 2 and 4, got 3");
  EXPECT_EQ(message("{type: ConvTranspose2d, out_channels: 4, kernel_size: 1, groups: 3}"),
            "r.yaml:4:83: expected a divisor of the channels 2 and 4, got 3");
  EXPECT_EQ(message("{type: Conv1d, out_channels: 4, kernel_size: 1}"),
            "r.yaml:4:18: Conv1d expects a sequence [length, channels] of floats, got [8, 8, 2]");
  EXPECT_EQ(build_rejection(
                "{layers: [{type: Conv1d, out_channels: 4, kernel_size: 1, groups: 3}]}", {8, 2}),
            "r.yaml:4:74: expected a divisor of the channels 2 and 4, got 3");
  EXPECT_EQ(message("{type: Flatten}, {type: Linear, out_features: 7}"),
            "r.yaml:4:35: expected the last layer to give 10 outputs, got [7]");
  EXPECT_THAT(message("{type: Residual, main: [{type: MaxPool2d, kernel_size: 2}]}"),
              HasSubstr("Residual expected main and shortcut of one shape, got [4, 4, 2] and [8, "
                        "8, 2]"));
  EXPECT_THAT(message("{type: Conv2d, out_channels: 4, kernel_size: 20}"),
              StartsWith("r.yaml:4:18: Conv2d on an input of [8, 8, 2]: "));
  EXPECT_EQ(message("{type: Linear, out_feature: 10}"),
            "r.yaml:4:33: unknown key 'out_feature' (did you mean 'out_features'?)");
  EXPECT_EQ(message("{type: Linear}"), "r.yaml:4:18: missing key 'model.layers.0.out_features'");
}

// What a user adds from outside the library.
class Scale : public Module {
 public:
  explicit Scale(double) { register_parameter("factor", Tensor::full({1}, 1)); }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Scale"; }
};

TEST(ModelRegistry, TakesModulesFromOutside) {
  Registries registries;
  ModelRegistry& registry = registries.models;
  const RecipeOption by{.name = "by", .kind = OptionKind::kNumber, .required = true};
  registry.add_layer("Scale", "a user's layer", {by}, [](const LayerSpec& spec, Rng&) {
    return std::make_shared<Scale>(spec.number("by"));
  });
  registry.add_model("perceptron", "a user's model", {}, [](const LayerSpec& spec, Rng& rng) {
    return std::make_shared<Linear>(LinearOptions{spec.features(), spec.classes()}, rng);
  });
  const Registries moved = std::move(registries);  // options stay valid
  const auto list = build(
      "{layers: [{type: Sequential, layers: [{type: Scale, by: 2}]}, {type: Linear, out_features: "
      "10}]}",
      {4}, 10, moved);
  EXPECT_THAT(parameters(*list), ElementsAre("0.0.factor[1]", "1.weight[10, 4]", "1.bias[10]"));
  EXPECT_THAT(parameters(*build("{type: perceptron}", {4}, 3, moved)),
              ElementsAre("weight[3, 4]", "bias[3]"));
  EXPECT_EQ(rejection([&] { build("{layers: [{type: Scale, bye: 2}]}", {4}, 4, moved); }),
            "r.yaml:4:32: unknown key 'bye' (did you mean 'by'?)");
  EXPECT_THAT(recipe_schema(moved), HasSubstr("\"perceptron\""));
}

TEST(ModelRegistry, ALayersFactoryGivesAModule) {
  Registries registries;
  registries.models.add_layer("None", "a user's layer", {},
                              [](const LayerSpec&, Rng&) { return std::shared_ptr<Module>(); });
  EXPECT_THAT(rejection([&] { build("{layers: [{type: None}]}", {4}, 4, registries); }),
              HasSubstr("None on an input of [4]: its factory gave no module"));
}

TEST(ModelRegistry, RefusesATypeTwice) {
  ModelRegistry registry = builtin_models();
  EXPECT_THROW(registry.add_layer("ReLU", "", {}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
