// Writes C programs with their own tests, for run_on_microcontrollers.
//
// usage: write_c_cases FOLDER. NAME/model.h, model.c, model_test.c.
#include <filesystem>
#include <string>

#include "steelyard/export/c/c_program.h"
#include "tests/export/export_support.h"
#include "tests/export/keyword_net.h"
#include "tests/export/operation_graph.h"
#include "tests/export/random_graph.h"
#include "tests/export/stream_graph.h"

namespace steelyard::deploy {
namespace {

void write_program(const std::filesystem::path& folder, const Graph& graph,
                   const std::optional<StreamOptions>& stream = {}) {
  std::filesystem::create_directories(folder);
  write_c_program(folder / "model.h", graph, stream);
}

void write_network(const std::filesystem::path& folder, std::shared_ptr<Module> (*network)(Rng&),
                   const qat::QuantizeConfig& config) {
  Rng rng(2);
  const auto model = testing::quantized_model(network(rng), config);
  write_program(folder, trace(*model, testing::images(2, 8), "net").graph);
}

void write_all(const std::filesystem::path& folder) {
  write_network(folder / "layers", testing::fixed_point_net, testing::tflm(8));
  write_network(folder / "layers_w4", testing::fixed_point_net, testing::tflm(4));
  write_network(folder / "layers_once", testing::fixed_point_net,
                testing::tflm(8, qat::Profile::kTflmSingleRounding));
  write_network(folder / "residual_w2", testing::residual_net, testing::tflm(2));
  write_network(folder / "functions", testing::fixed_functions_net, testing::tflm(8));
  write_program(folder / "lstm",
                testing::OperationGraph("lstm", 0, kernels::Rounding::kFixedTwice).graph());
  write_program(folder / "lstm_w4_once",
                testing::OperationGraph("lstm", 1, kernels::Rounding::kFixedOnce, 4).graph());
  write_program(folder / "keyword", testing::keyword_graph(8));
  write_program(folder / "keyword_w4", testing::keyword_graph(4));
  write_program(folder / "keyword_stream", testing::keyword_graph(8, qat::Profile::kTflm, {0, 0}),
                StreamOptions{.frames = 2});
  unsigned first = 0;
  const auto stream = [&] { return testing::StreamGraph(first, kernels::Rounding::kFixedOnce); };
  while (!stream().is_stream()) ++first;
  write_program(folder / "stream_once", stream().graph(), stream().options());
  for (const unsigned seed : {0U, 1U, 2U, 3U}) {
    const testing::RandomGraph random(seed, DType::kI8, kernels::Rounding::kFixedTwice);
    const std::size_t image = random.graph().values.size() / 2;  // many codes, unlike the output
    write_program(folder / ("random" + std::to_string(seed)),
                  testing::cut_at(random.graph(), image));
  }
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  steelyard::deploy::write_all(argv[1]);
  return 0;
}
