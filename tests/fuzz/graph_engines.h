// Both engines on a graph that a fuzzer made.
#pragma once

#include <algorithm>
#include <vector>

#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::deploy {

inline constexpr std::int64_t kMostWork = 200'000;  // products and values of one run

// An upper bound of the multiplications and values, or more than kMostWork.
inline std::int64_t work_of(const Graph& graph) {
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
    for (const Constant& constant : node.constants) add(outputs, constant.value.size());
    const Shape& input = graph.values[node.inputs[0]].shape;
    if (node.op == Op::kMatmul && !input.empty()) add(outputs, input.back());
  }
  return work;
}

inline bool is_quick(const Graph& graph) { return work_of(graph) <= kMostWork; }

// Whether a value follows from the input by integer and exact operations alone; float sums may be
// rounded in another order.
inline std::vector<bool> exact_values(const Graph& graph) {
  std::vector<bool> exact(graph.values.size(), false);
  exact[graph.input] = true;
  for (const Node& node : graph.nodes) {
    bool holds = !node.weights || node.weights->integer();
    for (const std::size_t input : node.inputs) {
      const bool rounds = op_info(node.op).rounds_floats;
      holds = holds && exact[input] && (!rounds || graph.values[input].quantization);
    }
    exact[node.output] = holds;
  }
  return exact;
}

inline void check_engines(const Graph& graph) {
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

}  // namespace steelyard::deploy
