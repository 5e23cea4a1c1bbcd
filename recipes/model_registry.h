// The table of layers and models that recipes can name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/module.h"
#include "framework/rng.h"
#include "recipes/option_table.h"

namespace steelyard {

class ModelRegistry;

// A module and the shape that it gives, without the batch.
struct BuiltModule {
  std::shared_ptr<Module> module;
  Shape output_shape;
};

// What a factory is given: the checked options of one layer or model, and what it must fit.
class LayerSpec : public OptionReader {
 public:
  LayerSpec(const YamlNode& resolved, const ModelRegistry& registry, Shape input_shape,
            std::int64_t classes)
      : OptionReader(resolved),
        registry_(&registry),
        input_shape_(std::move(input_shape)),
        classes_(classes) {}

  // Without the batch: {features} or {height, width, channels}.
  const Shape& input_shape() const { return input_shape_; }
  // Outputs that the whole model must give.
  std::int64_t classes() const { return classes_; }
  bool is_image() const { return input_shape_.size() == 3; }

  // The input's only dimension; InputError for an image.
  std::int64_t features() const;
  // The channels of an image; InputError for flat features.
  std::int64_t channels() const;

  // Builds the list of layers under `key` (a list of definition "layer"), the first of which takes
  // `input_shape`.
  BuiltModule build_layers(std::string_view key, const Shape& input_shape, Rng& rng) const;

  // The same for a list of such lists, all of which take this layer's input.
  std::vector<BuiltModule> build_branches(std::string_view key, Rng& rng) const;

  // Throws InputError with this layer's place.
  [[noreturn]] void fail(const std::string& message) const { fail_at(place(), message); }

 private:
  const ModelRegistry* registry_;
  Shape input_shape_;
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
  // Adds a `model: {type: ...}`.
  void add_model(const std::string& type, const std::string& help,
                 std::vector<RecipeOption> options, ModuleFactory factory);

  // The option `name`: a list of layers.
  RecipeOption layer_list(const std::string& name, const std::string& help) const;
  // The option `name`: a list of lists of layers.
  RecipeOption branches(const std::string& name, const std::string& help) const;
  // The option `model`.
  RecipeOption model_option() const;

  const ModuleFactory& layer(const std::string& type) const;
  const ModuleFactory& model(const std::string& type) const;

 private:
  struct Table {
    OptionCases cases;
    std::vector<ModuleFactory> factories;  // of the same index

    void add(const std::string& type, const std::string& help, std::vector<RecipeOption> options,
             ModuleFactory factory);
    const ModuleFactory& at(const std::string& type) const;
  };

  // On the heap: options point at the cases, which must stay when the registry moves.
  std::unique_ptr<Table> layers_;
  std::unique_ptr<Table> models_;
};

// Builds one module; whatever its constructor or first forward refuses is an InputError with the
// place of `spec`.
BuiltModule build_module(const ModuleFactory& factory, const LayerSpec& spec, Rng& rng);

// A resolved list of layers as one Sequential with the names "0", "1", ... or those given.
BuiltModule build_layer_list(const YamlNode& list, const ModelRegistry& registry,
                             const Shape& input_shape, std::int64_t classes, Rng& rng);

// The most weights that one layer of a recipe may have.
inline constexpr std::int64_t kMaxLayerWeights = std::int64_t{1} << 28;

// Throws InputError for a layer of more weights than that.
void require_weights(const LayerSpec& spec, std::int64_t in, std::int64_t per_input);

}  // namespace steelyard
