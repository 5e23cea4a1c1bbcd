// Float training, then W8A8 fine-tuning from its checkpoint, both by recipe: the same as
// `steelyard train`, but from C++ and with a dataset that the program makes.

#include <fmt/core.h>
#include <steelyard/steelyard.h>

#include <filesystem>
#include <iostream>
#include <random>
#include <string>

#include "made_up_images.h"

using namespace steelyard;

constexpr const char* kFloat = R"(
version: 1
name: bars-float
data: {dataset: bars, batch_size: 64, validation: 128}
model: {type: cnn, channels: [8, 16], hidden: 32}
train:
  epochs: 4
  optimizer: {type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1.0e-4}
  lr_schedule: {type: cosine}
)";

constexpr const char* kW8A8 = R"(
version: 1
name: bars-w8a8
data: {dataset: bars, batch_size: 64, validation: 128}
model: {type: cnn, channels: [8, 16], hidden: 32}
init: {checkpoint: CHECKPOINT}
train:
  epochs: 2
  optimizer: {type: sgd, lr: 0.005, momentum: 0.9, weight_decay: 1.0e-4}
quantize:
  groups:
    - targets: [Linear, Conv2d]
      weights: {num_bits: 8, symmetric: true, strategy: channel, observer: min_max}
      activations: {num_bits: 8, symmetric: false, strategy: tensor, observer: min_max}
schedule: {freeze_observers: {epoch: 1}}
)";

int main() {
  Registries registries;
  registries.datasets.add("bars", "made-up", [](const DatasetRequest&) {
    return DatasetSplits{made_up_images(1152, 1), made_up_images(512, 2)};
  });
  const auto folder = std::filesystem::temp_directory_path() /
                      ("steelyard-example-" + std::to_string(std::random_device{}()));
  const auto train = [&](const std::string& recipe, const std::string& name) {
    Run run(parse_recipe(recipe, name, {}, registries), {.folder = folder / name}, registries);
    if (run.experiment().plan()) std::cout << *run.experiment().plan() << "\n";
    const double top1 = *run.train().final.top1;
    fmt::print("{}: top-1 {:.2f} %\n", name, top1);
    return top1;
  };
  const double in_float = train(kFloat, "float");
  std::string recipe = kW8A8;
  recipe.replace(recipe.find("CHECKPOINT"), 10, (folder / "float" / "last.safetensors").string());
  const double quantized = train(recipe, "w8a8");
  std::filesystem::remove_all(folder);
  return in_float > 95 && quantized > in_float - 1 ? 0 : 1;
}
