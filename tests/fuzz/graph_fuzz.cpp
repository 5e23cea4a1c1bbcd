// The graph's JSON, NUL, the JSON of the tensors' header, NUL, their bytes: an integer model whose
// checksums are right. What loads is saved to the same bytes, and both engines run it to the same
// codes.
#include "steelyard/export/graph_file.h"

#include <algorithm>

#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kMostWork = 200'000;  // products and values of one run

// An upper bound of the multiplications and values, or more than kMostWork.
std::int64_t work_of(const Graph& graph) {
  std::int64_t work = 0;
  const auto add = [&](std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(work, product, &work)) {
      work = kMostWork + 1;
    }
    work = std::min(work, kMostWork + 1);
  };
  for (const Value& value : graph.values) add(shape_size(value.shape), 1);
  for (const Node& node : graph.nodes) {
    const std::int64_t outputs = shape_size(graph.values[node.output].shape);
    const auto window = option_or(node.options, "kernel", std::array<std::int64_t, 2>{2, 2});
    add(outputs, window[0] * window[1]);
    if (node.weights) add(outputs, node.weights->weight.size());
  }
  return work;
}

// Whether a value follows from the input by integer and exact operations alone; float sums may be
// rounded in another order.
std::vector<bool> exact_values(const Graph& graph) {
  std::vector<bool> exact(graph.values.size(), false);
  exact[graph.input] = true;
  for (const Node& node : graph.nodes) {
    bool holds = !node.weights || node.weights->integer();
    for (const std::size_t input : node.inputs) {
      const bool averages = node.op == Op::kAvgPool2d || node.op == Op::kGlobalAvgPool;
      holds = holds && exact[input] && (!averages || graph.values[input].quantization);
    }
    exact[node.output] = holds;
  }
  return exact;
}

void check_engines(const Graph& graph) {
  Shape shape = graph.values[graph.input].shape;
  shape.insert(shape.begin(), 2);
  const Tensor inputs = Tensor::empty(shape);
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    inputs.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.07F - 3.0F;
  }
  const auto judge = Interpreter(graph, Engine::kReference).run_all(inputs);
  const auto fast = Interpreter(graph, Engine::kFast).run_all(inputs);
  const std::vector<bool> exact = exact_values(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!exact[v] || !graph.values[v].quantization) continue;
    const auto* a = static_cast<const unsigned char*>(judge[v].raw());
    const auto* b = static_cast<const unsigned char*>(fast[v].raw());
    fuzz::require(std::equal(a, a + judge[v].bytes(), b, b + fast[v].bytes()),
                  "the engines differ in the value '" + graph.values[v].name + "'");
  }
}

}  // namespace
}  // namespace steelyard::deploy

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const auto parts = fuzz::split(fuzz::view(data, size), 3);
  static fuzz::MemoryFile input;
  const std::filesystem::path path = fuzz::scratch_folder() / "model.safetensors";
  const std::filesystem::path copy = fuzz::scratch_folder() / "copy.safetensors";
  fuzz::accepted([&] {
    TensorFile file = read_safetensors(input.holding(fuzz::safetensors_bytes(parts[1], parts[2])));
    file.metadata = {
        {"kind", "integer-model"}, {"graph_version", "1"}, {"graph", std::string(parts[0])}};
    try {
      save_checkpoint(path, file);
    } catch (const std::invalid_argument&) {  // the graph is not UTF-8
      return;
    }
    const deploy::Graph graph = deploy::load_graph(path);
    deploy::save_graph(copy, graph);
    const deploy::Graph again = deploy::load_graph(copy);
    fuzz::require(deploy::holds_graph(copy, again), "a graph that was written reads otherwise");
    fuzz::require(deploy::to_string(graph) == deploy::to_string(again), "another graph");
    if (deploy::work_of(graph) <= deploy::kMostWork) deploy::check_engines(graph);
  });
  return 0;
}
