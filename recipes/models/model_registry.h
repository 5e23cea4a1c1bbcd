// The table of layers and models that recipes can name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/recipes/language/option_rows.h"
#include "steelyard/recipes/models/onnx_choices.h"

namespace steelyard {

class ModelRegistry;

// The layer that reads one of several inputs of a sample: the graph's input if it is a node of one.
inline constexpr const char* kInputPartLayer = "InputPart";

// The section `model` of a recipe.
struct ModelSpec {
  std::string type = {};                        // empty: the options hold `layers` or name a file
  std::optional<std::string> onnx = {};         // recipes/models/imported_model.h
  std::optional<std::string> gguf = {};         // likewise
  std::optional<std::string> huggingface = {};  // likewise, a folder
  OnnxChoices choices = {};                     // of an ONNX file
  std::optional<std::int64_t> classes = {};
  YamlNode options =
      {};  // the resolved `model` table, for build_model() in recipes/models/models.h

  bool is_language_model() const { return gguf || huggingface; }
  // The file or folder of a network that is imported, and the key that names it.
  const std::optional<std::string>& file() const {
    return gguf ? gguf : huggingface ? huggingface : onnx;
  }
  std::string file_key() const { return gguf ? "gguf" : huggingface ? "huggingface" : "onnx"; }
};

// The value that a layer takes, without the batch.
struct LayerInput {
  Shape shape;  // {features}, {length, channels} or {height, width, channels}
  // The inputs that samples consist of, if the value is a sample itself and has several.
  std::vector<NamedInput> parts = {};
  std::vector<Shape> others = {};  // of further values that a node of a graph reads
};

// A module and the shape that it gives, without the batch.
struct BuiltModule {
  std::shared_ptr<Module> module;
  Shape output_shape;
};

// The arguments of a factory: the checked options of one layer or model, and the shape of its
// input.
class LayerSpec : public OptionReader {
 public:
  LayerSpec(const YamlNode& resolved, const ModelRegistry& registry, LayerInput input,
            std::int64_t classes)
      : OptionReader(resolved), registry_(&registry), input_(std::move(input)), classes_(classes) {}

  const LayerInput& input() const { return input_; }
  const Shape& input_shape() const { return input_.shape; }
  const std::vector<NamedInput>& input_parts() const { return input_.parts; }
  // Outputs that the whole model must give.
  std::int64_t classes() const { return classes_; }
  bool is_image() const { return input_shape().size() == 3; }

  // The input's only dimension; InputError for an image.
  std::int64_t features() const;
  // The channels of an image; InputError for flat features.
  std::int64_t channels() const;

  // Builds a list of layers (of ModelRegistry::layer_list()), the first of which takes this layer's
  // input.
  BuiltModule build_layers(const YamlNode& list, Rng& rng) const;
  // Builds the graph of a list of layers (of ModelRegistry::layer_list()) with names, which read
  // this layer's input and each other.
  std::shared_ptr<Module> build_graph(const YamlNode& nodes, Rng& rng) const;

  // Throws InputError with this layer's place.
  [[noreturn]] void fail(const std::string& message) const { fail_at(place(), message); }

 private:
  const ModelRegistry* registry_;
  LayerInput input_;
  std::int64_t classes_;
};

using ModuleFactory = std::function<std::shared_ptr<Module>(const LayerSpec&, Rng&)>;

// An explicit table: names, their options, their factories. The options are checked before the
// factory runs and appear in the schema and in the resolved recipe.
class ModelRegistry {
 public:
  ModelRegistry();
  ModelRegistry(ModelRegistry&&) noexcept = default;
  ModelRegistry& operator=(ModelRegistry&&) noexcept = default;

  // Adds a type for `layers:` lists. Throws std::invalid_argument when the name is taken.
  void add_layer(const std::string& type, const std::string& help,
                 std::vector<RecipeOption> options, ModuleFactory factory);
  // add_layer() with options that are read into a struct: the factory gets it, too.
  template <typename T>
  void add_layer(const std::string& type, const std::string& help, std::vector<Row<T>> rows,
                 std::shared_ptr<Module> (*factory)(T options, const LayerSpec&, Rng&)) {
    Table<T> table("", std::move(rows));
    std::vector<RecipeOption> options = table.option().members;
    add_layer(type, help, std::move(options), bound(std::move(table), factory));
  }
  // Adds a `model: {type: ...}`.
  void add_model(const std::string& type, const std::string& help,
                 std::vector<RecipeOption> options, ModuleFactory factory);

  template <typename T>
  void add_model(const std::string& type, const std::string& help, std::vector<Row<T>> rows,
                 std::shared_ptr<Module> (*factory)(T options, const LayerSpec&, Rng&)) {
    Table<T> table("", std::move(rows));
    std::vector<RecipeOption> options = table.option().members;
    add_model(type, help, std::move(options), bound(std::move(table), factory));
  }

  // The option `name`: a list of layers, whose node goes to a member of T.
  template <typename T, typename Node>
  Row<T> layer_list(const std::string& name, const std::string& help, Node T::*member) const {
    return {layer_list(name, help), {[member](const YamlNode& node, T& to) { to.*member = node; }}};
  }
  // The option `name`: a list of lists of layers, likewise.
  template <typename T>
  Row<T> branches(const std::string& name, const std::string& help,
                  std::vector<YamlNode> T::*member) const {
    return {branches(name, help),
            {[member](const YamlNode& node, T& to) { to.*member = node.items; }}};
  }
  // The section `model`.
  Table<ModelSpec> model_table() const;

  std::vector<std::string> layer_types() const;
  std::vector<std::string> model_types() const;
  const ModuleFactory& layer(const std::string& type) const;
  const ModuleFactory& model(const std::string& type) const;

 private:
  struct Types {
    OptionCases cases;
    std::vector<ModuleFactory> factories;  // of the same index

    void add(const std::string& type, const std::string& help, std::vector<RecipeOption> options,
             ModuleFactory factory);
    const ModuleFactory& at(const std::string& type) const;
    std::vector<std::string> names() const;
  };

  template <typename T>
  static ModuleFactory bound(Table<T> table,
                             std::shared_ptr<Module> (*factory)(T, const LayerSpec&, Rng&)) {
    return [table = std::move(table), factory](const LayerSpec& spec, Rng& rng) {
      return factory(table.read(spec.node()), spec, rng);
    };
  }
  RecipeOption layer_option() const;
  RecipeOption layer_list(const std::string& name, const std::string& help) const;
  RecipeOption branches(const std::string& name, const std::string& help) const;

  // On the heap: options point at the cases, which must stay when the registry moves.
  std::unique_ptr<Types> layers_;
  std::unique_ptr<Types> models_;
};

// Builds one module; whatever its constructor or first forward refuses is an InputError with the
// place of `spec`.
BuiltModule build_module(const ModuleFactory& factory, const LayerSpec& spec, Rng& rng);

// A resolved list of layers as one Sequential with the names "0", "1", ... or those given.
BuiltModule build_layer_list(const YamlNode& list, const ModelRegistry& registry, LayerInput input,
                             std::int64_t classes, Rng& rng);

// Throws InputError for a layer of more than kMostLayerWeights (layers/catalogue.h).
void require_weights(const LayerSpec& spec, std::int64_t in, std::int64_t per_input);

}  // namespace steelyard
