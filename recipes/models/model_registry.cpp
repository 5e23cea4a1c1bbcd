#include "steelyard/recipes/models/model_registry.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/catalogue.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

constexpr const char* kGraphInputName = "input";  // of nodes of a Graph: what the graph reads

// The cases of a table that may contain itself: the registry owns them.
std::shared_ptr<const OptionCases> not_owned(const OptionCases& cases) {
  return {std::shared_ptr<void>(), &cases};
}

// Samples of zeros.
Variable samples_of(Shape shape, std::int64_t count) {
  shape.insert(shape.begin(), count);
  return Variable(Tensor::zeros(shape));
}

// Of two samples, so that what would join one with the other does not fit.
Variable joined(JoinModule& join, const LayerInput& input, ForwardContext& context) {
  std::vector<Variable> values{samples_of(input.shape, 2)};
  for (const Shape& other : input.others) {
    if (other.size() != input.shape.size()) {
      throw std::invalid_argument("expected values of as many dimensions, got " +
                                  shape_string(input.shape) + " and " + shape_string(other));
    }
    values.push_back(samples_of(other, 2));
  }
  if (values.size() < 2) {
    throw std::invalid_argument(
        "it joins several values: expected a node of a Graph with two or more `inputs`, got one");
  }
  const Variable output = join.join(values, context);
  if (output.shape().empty() || output.dim(0) != 2) {
    throw std::invalid_argument("it joins values of different samples");
  }
  return output;
}

// The shape after a module, without the batch, from a forward pass that computes nothing large.
Shape shape_after(Module& module, const LayerInput& input) {
  const NoGradGuard no_grad;
  const ShapesOnlyGuard shapes_only;
  ForwardContext context;
  Variable output;
  if (auto* join = dynamic_cast<JoinModule*>(&module)) {
    output = joined(*join, input, context);
  } else if (input.others.empty()) {
    output = module(samples_of(input.shape, 1), context);
  } else {
    throw std::invalid_argument("it takes one input, got " +
                                std::to_string(input.others.size() + 1));
  }
  return {output.shape().begin() + 1, output.shape().end()};
}

// The names of the values that a node of a graph reads: those of its `inputs`, or the one before
// it.
std::vector<std::string> values_read(const YamlNode& node, const std::string& before) {
  const YamlNode* inputs = node.find("inputs");
  if (inputs == nullptr) {
    return {node.find("type")->text == kInputPartLayer ? kGraphInputName : before};
  }
  std::vector<std::string> names;
  for (const YamlNode& input : inputs->items) names.push_back(input.text);
  return names;
}

}  // namespace

std::int64_t LayerSpec::features() const {
  if (input_shape().size() != 1) {
    fail(text("type") + " expected flat features, got an input of " + shape_string(input_shape()) +
         " (put Flatten or GlobalAvgPool before it)");
  }
  return input_shape()[0];
}

std::int64_t LayerSpec::channels() const {
  if (!is_image()) {
    fail(text("type") + " expected an image [height, width, channels], got an input of " +
         shape_string(input_shape()));
  }
  return input_shape()[2];
}

std::shared_ptr<Module> LayerSpec::build_graph(const YamlNode& nodes, Rng& rng) const {
  std::map<std::string, Shape> shapes{{kGraphInputName, input_.shape}};
  std::vector<Graph::NamedNode> made;
  std::string before = kGraphInputName;
  for (const YamlNode& node : nodes.items) {
    if (node.find("name") == nullptr) fail_at(node.place, "expected a `name` of the graph's node");
    const std::string name = node.find("name")->text;
    LayerInput input;
    const std::vector<std::string> read = values_read(node, before);
    for (std::size_t i = 0; i < read.size(); ++i) {
      const auto found = shapes.find(read[i]);
      if (found == shapes.end()) {
        const YamlNode* inputs = node.find("inputs");
        fail_at(inputs->items[i].place, "expected `input` or the name of a node before this one, " +
                                            std::string("got ") + quote_for_message(read[i]));
      }
      if (i > 0) {
        input.others.push_back(found->second);
        continue;
      }
      input.shape = found->second;
      if (read[i] == kGraphInputName) input.parts = input_.parts;
    }
    const LayerSpec spec(node, *registry_, std::move(input), classes_);
    BuiltModule built = build_module(registry_->layer(spec.text("type")), spec, rng);
    if (!shapes.emplace(name, std::move(built.output_shape)).second) {
      spec.fail("the name " + quote_for_message(name) + " stands for another value of the graph");
    }
    made.push_back({name, std::move(built.module), read});
    before = name;
  }
  return std::make_shared<Graph>(made);
}

BuiltModule LayerSpec::build_layers(const YamlNode& list, Rng& rng) const {
  return build_layer_list(list, *registry_, input_, classes_, rng);
}

ModelRegistry::ModelRegistry()
    : layers_(std::make_unique<Types>()), models_(std::make_unique<Types>()) {}

void ModelRegistry::Types::add(const std::string& type, const std::string& help,
                               std::vector<RecipeOption> options, ModuleFactory factory) {
  for (const OptionCase& c : cases.cases) {
    if (c.value == type) throw std::invalid_argument("[recipes] type '" + type + "' is taken");
  }
  cases.cases.push_back({type, help, std::move(options)});
  factories.push_back(std::move(factory));
}

const ModuleFactory& ModelRegistry::Types::at(const std::string& type) const {
  const auto found = std::find_if(cases.cases.begin(), cases.cases.end(),
                                  [&](const OptionCase& c) { return c.value == type; });
  if (found == cases.cases.end()) throw std::out_of_range("[recipes] no type '" + type + "'");
  return factories[static_cast<std::size_t>(found - cases.cases.begin())];
}

void ModelRegistry::add_layer(const std::string& type, const std::string& help,
                              std::vector<RecipeOption> options, ModuleFactory factory) {
  layers_->add(type, help, std::move(options), std::move(factory));
}

void ModelRegistry::add_model(const std::string& type, const std::string& help,
                              std::vector<RecipeOption> options, ModuleFactory factory) {
  models_->add(type, help, std::move(options), std::move(factory));
}

RecipeOption ModelRegistry::layer_option() const {
  RecipeOption type{
      .name = "type", .kind = OptionKind::kChoice, .help = "the kind of layer", .required = true};
  RecipeOption label{.name = "name",
                     .help =
                         "the layer's name in the model's paths; its index when absent, which a "
                         "node of a Graph cannot be",
                     .pattern = "[A-Za-z0-9_]+",
                     .pattern_help = "a name of letters, digits and _"};
  RecipeOption inputs = option_of<std::vector<std::string>>();
  inputs.name = "inputs";
  inputs.help =
      "of a node of a Graph: the values that it reads, which are nodes before it or `input`, what "
      "the graph reads; absent: the node before it";
  inputs.min_items = 1;
  return {
      .kind = OptionKind::kTable,
      .help = "One module of a `layers` list or node of a `Graph`; sizes of inputs are inferred.",
      .members = {type, label, inputs},
      .discriminator = "type",
      .cases = not_owned(layers_->cases),
      .definition = "layer"};
}

RecipeOption ModelRegistry::layer_list(const std::string& name, const std::string& help) const {
  return {.name = name,
          .kind = OptionKind::kList,
          .help = help,
          .min_items = 1,
          .members = {layer_option()}};
}

RecipeOption ModelRegistry::branches(const std::string& name, const std::string& help) const {
  RecipeOption branch = layer_list("", "");
  branch.min_items = 0;  // an empty branch is the input itself
  return {
      .name = name, .kind = OptionKind::kList, .help = help, .min_items = 1, .members = {branch}};
}

Table<ModelSpec> ModelRegistry::model_table() const {
  const Row<ModelSpec> layers{
      layer_list("layers",
                 "the modules, first to last; a `Graph` among them has branches that meet"),
      {}};
  return Table<ModelSpec>(
             "The network: a built-in architecture, a list of layers, an ONNX file, or a language "
             "model in a GGUF file or a folder of transformers. Its weights must fit in memory.",
             {key("type",
                  "a built-in architecture; exactly one of `type`, `layers`, `onnx`, `gguf` and "
                  "`huggingface` is given",
                  &ModelSpec::type),
              key("onnx",
                  "a float ONNX file with the network and its weights, or a checkpoint of a run "
                  "that imported one; relative to the current folder. The file is read once: "
                  "checkpoints contain the network",
                  &ModelSpec::onnx)
                  .role(OptionRole::kNotEssential),
              key("gguf",
                  "a GGUF file of llama.cpp's with a language model of the architecture llama, "
                  "qwen2 or qwen3 and its weights (f32, f16, bf16, q8_0, q4_0, q4_1, q2_0, iq4_nl, "
                  "mxfp4), or a checkpoint of a run that imported one; relative to the current "
                  "folder (docs/language_models.md)",
                  &ModelSpec::gguf)
                  .role(OptionRole::kNotEssential),
              key("huggingface",
                  "a folder with config.json and safetensors of a language model of the "
                  "model_type llama, mistral, qwen2 or qwen3, as transformers writes it (f32, f16, "
                  "bf16), or a checkpoint of a run that imported one; relative to the current "
                  "folder (docs/language_models.md)",
                  &ModelSpec::huggingface)
                  .role(OptionRole::kNotEssential),
              key("output",
                  "the outputs of the ONNX file, or values inside of it, that alone are trained "
                  "and "
                  "exported; absent: all outputs of the file",
                  &ModelSpec::choices, &OnnxChoices::outputs)
                  .role(OptionRole::kNotEssential)
                  .or_one()
                  .items(1),
              key("batch_axis",
                  "which dimension of an input of the ONNX file is the batch, the first being 0, "
                  "where the file does not say it: `state=1` of the input `state`, or `1` of the "
                  "only one",
                  &ModelSpec::choices, &OnnxChoices::batch_axes)
                  .role(OptionRole::kNotEssential)
                  .items(1),
              key("freeze",
                  "inputs of the ONNX file that become constants, each with its value "
                  "(`sr=16000`) or its values (`scale=1,0.5`): samples and exports are without "
                  "them",
                  &ModelSpec::choices, &OnnxChoices::freeze),
              key("classes",
                  "number of outputs, one for each class; absent: the dataset's classes; a "
                  "regression must give it: one for each value of a sample's targets",
                  &ModelSpec::classes)
                  .within(1, static_cast<double>(kMaxClasses)),
              layers})
      .cases("type", not_owned(models_->cases))
      .check([](const OptionReader& from, ModelSpec& model) {
        model.options = from.node();
        int given = 0;
        for (const char* key : {"type", "layers", "onnx", "gguf", "huggingface"}) {
          given += int{from.has(key)};
        }
        if (given != 1) {
          fail_at(from.place(),
                  "expected exactly one of 'type', 'layers', 'onnx', 'gguf' and 'huggingface' in "
                  "the model");
        }
        for (const char* key : {"output", "batch_axis", "freeze"}) {
          if (!from.has(key) || from.has("onnx")) continue;
          fail_at(from.at(key).place,
                  std::string("model.") + key + ": is for ONNX files: 'model.onnx' is absent");
        }
      });
}

std::vector<std::string> ModelRegistry::Types::names() const {
  std::vector<std::string> names;
  for (const OptionCase& c : cases.cases) names.push_back(c.value);
  return names;
}

std::vector<std::string> ModelRegistry::layer_types() const { return layers_->names(); }

std::vector<std::string> ModelRegistry::model_types() const { return models_->names(); }

const ModuleFactory& ModelRegistry::layer(const std::string& type) const {
  return layers_->at(type);
}

const ModuleFactory& ModelRegistry::model(const std::string& type) const {
  return models_->at(type);
}

void require_weights(const LayerSpec& spec, std::int64_t in, std::int64_t per_input) {
  if (in > kMostLayerWeights / per_input) {
    spec.fail("expected a layer of at most " + std::to_string(kMostLayerWeights) +
              " weights, got " + std::to_string(in) + " x " + std::to_string(per_input));
  }
}

namespace {

// "an input of [3]", "inputs of [3] and [10]".
std::string inputs_text(const LayerInput& input) {
  if (input.others.empty()) return "an input of " + shape_string(input.shape);
  std::vector<std::string> shapes{shape_string(input.shape)};
  for (const Shape& other : input.others) shapes.push_back(shape_string(other));
  const std::string last = std::move(shapes.back());
  shapes.pop_back();
  return "inputs of " + join(shapes) + " and " + last;
}

}  // namespace

BuiltModule build_module(const ModuleFactory& factory, const LayerSpec& spec, Rng& rng) {
  try {
    BuiltModule built{factory(spec, rng), {}};
    if (built.module == nullptr) throw std::invalid_argument("its factory gave no module");
    built.output_shape = shape_after(*built.module, spec.input());
    return built;
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    spec.fail(spec.text("type") + " on " + inputs_text(spec.input()) + ": " + error.what());
  }
}

BuiltModule build_layer_list(const YamlNode& list, const ModelRegistry& registry, LayerInput input,
                             std::int64_t classes, Rng& rng) {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules;
  std::map<std::string, std::string> places;  // of the layers' names
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const LayerSpec spec(list.items[i], registry, input, classes);
    if (spec.has("inputs")) {
      fail_at(spec.at("inputs").place,
              "a layer of a list reads the one before it: `inputs` is of nodes of a Graph");
    }
    const std::string name = spec.has("name") ? spec.text("name") : std::to_string(i);
    const auto [earlier, added] = places.emplace(name, list.items[i].place);
    if (!added) {
      spec.fail("the layer at " + earlier->second + " has the name " + quote_for_message(name) +
                ", too; a layer without a name is called by its position in the list, from 0");
    }
    BuiltModule built = build_module(registry.layer(spec.text("type")), spec, rng);
    modules.emplace_back(name, std::move(built.module));
    input = {std::move(built.output_shape)};
  }
  return {std::make_shared<Sequential>(std::move(modules)), input.shape};
}

}  // namespace steelyard
