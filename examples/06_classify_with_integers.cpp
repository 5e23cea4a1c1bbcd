// Classifies images with an exported model, using integers only, without the training engine.
//   06_classify_with_integers MODEL.safetensors IMAGES.idx.gz LABELS.idx.gz
#include <fmt/core.h>

#include <exception>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

int main(int argc, char** argv) try {
  using namespace steelyard;
  if (argc != 4) {
    fmt::print(stderr, "usage: {} MODEL.safetensors IMAGES LABELS\n", argv[0]);
    return 2;
  }
  const deploy::Interpreter model(deploy::load_graph(argv[1]), deploy::Engine::kFast);
  const Dataset data{read_idx_images(argv[2]), read_idx_labels(argv[3]), 10};
  const Normalization& normalization = model.graph().preprocessing.normalization;
  DataLoader batches(data, {.batch_size = 500, .normalization = normalization, .augment = {}});

  std::int64_t correct = 0;
  batches.start(/*epoch=*/0);
  while (const auto batch = batches.next()) {
    correct += count_correct(model.run(batch->inputs), batch->targets);
  }
  const double top1 = 100.0 * static_cast<double>(correct) / static_cast<double>(data.size());
  fmt::print("{}: {} bytes of parameters, top-1 {:.2f} % of {} images\n", argv[1],
             deploy::parameter_bytes(model.graph()), top1, data.size());
  return top1 > 50 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
