// Weights that several nodes have, in the file of an integer model.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy::graph_file_shared_test {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::TemporaryFolder;
using testing::w8a8;

TEST(GraphFile, HasTheWeightsOfALayerAtSeveralPlacesOnce) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m";
  Rng rng(2);
  const auto rows = std::make_shared<Reshape>(Shape{-1, 9, 24});
  qat::QuantizeConfig config = w8a8(4);
  config.groups[0].targets = {"LSTM"};
  const auto model =
      quantized_model(sequential({{"rows", rows}, {"lstm", lstm(24, 4, rng)}}), config);
  const Graph graph = trace(*model, images(1, 1), "net").graph;
  save_graph(path, graph);
  const Checkpoint file = load_checkpoint(path);
  EXPECT_EQ(file.metadata.at("graph_version"), "11");
  const auto weights =
      std::count_if(file.tensors.begin(), file.tensors.end(),
                    [](const NamedTensor& tensor) { return tensor.name.ends_with(".weight"); });
  EXPECT_EQ(weights, 2) << "of the inputs and of the outputs before";
  EXPECT_EQ(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                          [](const Node& node) { return node.weights.has_value(); }),
            9);
  const Graph loaded = load_graph(path);
  EXPECT_EQ(to_string(loaded), to_string(graph));
  EXPECT_EQ(parameter_bytes(graph), 16 * (24 + 4) / 2 + 2 * 16 * 4 + 16 * 4);
  const Tensor inputs = images(3, 4);
  EXPECT_TRUE(
      testing::all_close(Interpreter(loaded).run(inputs), Interpreter(graph).run(inputs), 0, 0));
  Checkpoint bad{file.tensors, {}};
  for (const char* key : {"kind", "graph_version", "graph"}) {
    bad.metadata[key] = file.metadata.at(key);
  }
  std::string& json = bad.metadata["graph"];
  const std::string home = json.substr(json.find("\"weights_of\":\"") + 14);
  const std::string name = home.substr(0, home.find('"'));
  const std::size_t at = json.find("\"weights_of\":\"" + name);
  json.replace(at, 14 + name.size(), "\"weights_of\":\"nothing");
  save_checkpoint(path, bad);
  EXPECT_NE(message_of<InputError>([&] {
              load_graph(path);
            }).find("no node before it is 'nothing' and has weights"),
            std::string::npos);
}

TEST(GraphFile, HasAWeightWithSeveralBiasesOnce) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m";
  Rng rng(2);
  const auto shared = linear(216, 216, rng);
  qat::QuantizeConfig config = w8a8();
  config.groups[0].targets = {"Linear"};
  const auto model = quantized_model(
      sequential({{"flat", flatten()}, {"a", shared}, {"relu", relu()}, {"b", shared}}), config);
  const Graph graph = trace(*model, images(1, 1), "net").graph;
  save_graph(path, graph);
  const Checkpoint file = load_checkpoint(path);
  EXPECT_EQ(file.metadata.at("graph_version"), "13");
  std::set<std::string> names;
  for (const NamedTensor& tensor : file.tensors) names.insert(tensor.name);
  EXPECT_EQ(names, (std::set<std::string>{"a.weight", "a.weight_scale", "a.bias", "b.bias"}));
  EXPECT_EQ(parameter_bytes(graph), 216 * 216 + 216 * 4 + 2 * 216 * 4);
  const Graph loaded = load_graph(path);
  EXPECT_EQ(to_string(loaded), to_string(graph));
  const Tensor inputs = images(3, 4);
  EXPECT_TRUE(
      testing::all_close(Interpreter(loaded).run(inputs), Interpreter(graph).run(inputs), 0, 0));
}

}  // namespace
}  // namespace steelyard::deploy::graph_file_shared_test
