// Writes model.safetensors, photo.png, an image of another size than the model takes, and
// image.raw, the sample made of it; prints the number and the name of its class:
// write_shipped_model FOLDER.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "steelyard/export/graph_file.h"
#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/preprocessing.h"
#include "tests/runtime/runtime_models.h"

int main(int argc, char** argv) {
  using namespace steelyard;
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const deploy::Graph graph = steelyard::testing::shipped_model();
  deploy::save_graph(folder / "model.safetensors", graph);
  const Image photo = steelyard::testing::photo();
  if (have_image_libraries()) {
    std::ofstream(folder / "photo.png", std::ios::binary) << encode_png(photo);
  }
  const Tensor image = deploy::image_samples(graph, {&photo, 1});
  std::ofstream(folder / "image.raw", std::ios::binary)
      .write(static_cast<const char*>(image.raw()), image.bytes());
  const Tensor scores = deploy::Interpreter(graph).run_raw(image);
  const auto values = scores.span<float>();
  const auto best = std::max_element(values.begin(), values.end()) - values.begin();
  std::printf("%td %s\n", best, graph.class_names[static_cast<std::size_t>(best)].c_str());
}
