// The class of a photograph, by a model that was trained on a folder of them:
//   photo MODEL.safetensors PHOTO.jpg
// STEELYARD_IMAGES=ON builds the library that reads image files (docs/deployment.md).
#include <steelyard/framework/data/images/image.h>
#include <steelyard/runtime/graph_file.h>
#include <steelyard/runtime/interpreter.h>
#include <steelyard/runtime/preprocessing.h>

#include <algorithm>
#include <cstdio>
#include <exception>

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL.safetensors PHOTO\n", argv[0]), 2;
  using namespace steelyard;
  const deploy::Interpreter model(deploy::load_graph(argv[1]), deploy::Engine::kLean);
  const Image photo = read_image(argv[2], 3);
  const Tensor scores = model.run_raw(deploy::image_samples(model.graph(), {&photo, 1}));
  const auto values = scores.span<float>();
  const auto best = std::max_element(values.begin(), values.end()) - values.begin();
  std::printf("%td %s\n", best, model.graph().class_names.at(best).c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
