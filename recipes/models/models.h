// The built-in architectures and the layers of `layers:` lists.
#pragma once

#include <cstdint>
#include <memory>

#include "steelyard/recipes/models/model_registry.h"

namespace steelyard {

// The registry with every layer of layers/, the models mlp, cnn, resnet and mobilenet for small
// images, and torchvision's. Names of modules and layouts of weights are PyTorch's.
ModelRegistry builtin_models();

// The models alone, and the layers alone.
void add_models(ModelRegistry& registry);
void add_torchvision_models(ModelRegistry& registry);
void add_layers(ModelRegistry& registry);
void add_function_layers(ModelRegistry& registry);
void add_graph_layers(ModelRegistry& registry);

// Among the layers below a recipe's node.
bool has_layer(const YamlNode& node, const std::string& type);

// Whether samples of two dimensions are sequences [length, channels] to a recipe's model, as to any
// ONNX file, to a model with a layer that takes nothing else (Conv1d, LSTM, GRU, Attention, pools
// of sequences) and to one that begins with Linear, after a LayerNorm or Dropout perhaps; else they
// are images of one channel.
bool takes_sequences(const ModelSpec& spec);
// Whether a recipe's model can only be one of images.
bool takes_images(const ModelSpec& spec);

// Whether a recipe's layers read the inputs of samples that have several, each by an InputPart.
bool reads_input_parts(const ModelSpec& spec);

// Builds a recipe's model for one dataset. `classes` is the dataset's, 0 when it has none (the
// recipe then says it). `registry` must be the one that the recipe was parsed with. Throws
// InputError when the parts do not fit.
std::shared_ptr<Module> build_model(const ModelSpec& spec, const LayerInput& input,
                                    std::int64_t classes, Rng& rng, const ModelRegistry& registry);
// For samples of one input ({28, 28, 1}).
std::shared_ptr<Module> build_model(const ModelSpec& spec, const Shape& input_shape,
                                    std::int64_t classes, Rng& rng, const ModelRegistry& registry);

}  // namespace steelyard
