// The graph's JSON, NUL, the JSON of the tensors' header, NUL, their bytes: an integer model whose
// checksums are right. What loads is saved to the same bytes, and both engines run it to the same
// codes.
#include "steelyard/export/graph_file.h"

#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/op_info.h"
#include "tests/fuzz/graph_engines.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const auto parts = fuzz::split(fuzz::view(data, size), 3);
  static fuzz::MemoryFile input;
  const std::filesystem::path path = fuzz::scratch_folder() / "model.safetensors";
  const std::filesystem::path copy = fuzz::scratch_folder() / "copy.safetensors";
  fuzz::accepted([&] {
    TensorFile file = read_safetensors(input.holding(fuzz::safetensors_bytes(parts[1], parts[2])));
    file.metadata = {{"kind", "integer-model"},
                     {"graph_version", std::to_string(deploy::kNewestGraphVersion)},
                     {"graph", std::string(parts[0])}};
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
    if (deploy::is_quick(graph)) deploy::check_engines(graph);
  });
  return 0;
}
