// The text of an imported network, as checkpoints hold it: what is read is written back equal, and
// built where it is small.
#include "steelyard/import/graph/graph_spec.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  fuzz::accepted([&] {
    const imports::GraphSpec graph = imports::graph_from(fuzz::view(data, size), "text");
    const std::string text = imports::text_of(graph);
    fuzz::require(imports::text_of(imports::graph_from(text, "again")) == text,
                  "a network that was written reads otherwise");
    std::int64_t sizes = 0;  // what options ask for
    for (const imports::NodeSpec& node : graph.nodes) {
      for (const auto& [name, value] : node.options) {
        const auto* number = std::get_if<std::int64_t>(&value);
        const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value);
        if (number != nullptr)
          sizes = std::max(sizes, std::abs(*number % (1 << 20)) + (*number >> 20));
        for (const std::int64_t n : numbers != nullptr ? *numbers : std::vector<std::int64_t>()) {
          sizes = std::max(sizes, n);
        }
      }
    }
    for (const std::int64_t n : graph.sample) sizes = std::max(sizes, n);
    if (sizes <= 16 && graph.nodes.size() <= 16 && graph.sample.size() <= 3) {
      imports::build(graph, true, "text");
    }
  });
  return 0;
}
