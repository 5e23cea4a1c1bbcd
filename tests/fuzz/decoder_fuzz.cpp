// A GGUF file with a language model: what can be imported is written as text, read back and, where
// it is small, built and asked for the logits of a sequence.
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::imports {
namespace {

constexpr std::int64_t kLength = 3, kMostWeights = 100'000;

void check(const Imported& imported) {
  const std::string text = text_of(imported.graph);
  const GraphSpec again = graph_from(text, "text");
  fuzz::require(text_of(again) == text, "a network that was written reads otherwise");
  std::int64_t weights = 0;
  for (const NamedTensor& tensor : imported.weights) weights += tensor.tensor.size();
  if (weights > kMostWeights || imported.graph.nodes.size() > 64) return;
  const std::shared_ptr<Module> model = build(again, true, "text");
  load_into(*model, imported.weights, "text");
  const NoGradGuard no_grad;
  ForwardContext context;
  const Tensor tokens = Tensor::zeros({1, kLength}, DType::kF32);
  const Tensor logits = model->forward(Variable(tokens), context).value();
  fuzz::require(logits.dim(1) == kLength && logits.dim(2) == imported.graph.output_sample.back(),
                "logits of another shape than the import says");
}

}  // namespace
}  // namespace steelyard::imports

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  fuzz::accepted([&] {
    const GgufReader reader(input.holding(fuzz::view(data, size)));
    imports::check(imports::import_decoder(reader, imports::kLength));
  });
  return 0;
}
