// What fuzz targets ask of an imported language model.
#pragma once

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/import/translate.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::fuzz {

inline constexpr std::int64_t kLength = 3;  // of sequences

inline void check_decoder(const imports::Imported& imported) {
  constexpr std::int64_t kMostWeights = 100'000;
  const std::string text = text_of(imported.graph);
  const imports::GraphSpec again = imports::graph_from(text, "text");
  require(text_of(again) == text, "a network that was written reads otherwise");
  std::int64_t weights = 0;
  for (const NamedTensor& tensor : imported.weights) weights += tensor.tensor.size();
  if (weights > kMostWeights || imported.graph.nodes.size() > 64) return;
  const std::shared_ptr<Module> model = imports::build(again, true, "text");
  load_into(*model, imported.weights, "text");
  const NoGradGuard no_grad;
  ForwardContext context;
  const Tensor tokens = Tensor::zeros({1, kLength}, DType::kF32);
  const Tensor logits = model->forward(Variable(tokens), context).value();
  require(logits.dim(1) == kLength && logits.dim(2) == imported.graph.output_sample.back(),
          "logits of another shape than the import says");
}

}  // namespace steelyard::fuzz
