// Several outputs of a deployed model: in graphs and their files, and in ONNX files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/onnx/onnx.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/float_nets.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using ::testing::HasSubstr;
using testing::images;
using testing::message_of;
using ::testing::Not;
using testing::quantized_model;
using testing::w8a8;

// The network's outputs under names, images as ONNX has them but for the last.
Graph of_outputs(const Tensor& sample) {
  Rng rng(3);
  Graph graph = trace(*quantized_model(testing::several_outputs(rng), w8a8()), sample, "net").graph;
  std::int64_t first = 0;
  for (const std::size_t value : graph.nodes.back().inputs) {
    const Shape& shape = graph.values[value].shape;
    PartPort port{{.name = "y" + std::to_string(graph.output_ports.size())}, first, shape};
    port.port.channels_last = graph.output_ports.size() == 4;
    if (shape.size() == 3) port.port.free = {{1, "w"}};
    graph.output_ports.push_back(port);
    first += shape_size(shape);
  }
  graph.target = TargetKind::kValues;
  return graph;
}

Graph of_outputs() { return of_outputs(images(1, 1)); }

std::string bytes_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Outputs, PortsComeBackFromAFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const Graph graph = of_outputs();
  save_graph(path, graph);
  EXPECT_EQ(load_checkpoint(path).metadata.at("graph_version"), "12");
  const Graph again = load_graph(path);
  ASSERT_EQ(again.output_ports.size(), 5);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(again.output_ports[i].port.name, graph.output_ports[i].port.name);
    EXPECT_EQ(again.output_ports[i].port.channels_last, i == 4);
    EXPECT_EQ(again.output_ports[i].first, graph.output_ports[i].first);
    EXPECT_EQ(again.output_ports[i].shape, graph.output_ports[i].shape);
  }
  const Tensor y = Interpreter(again).run(images(2, 4));
  EXPECT_EQ(y.shape(), (Shape{2, 4 * 288 + 5}));
  for (std::int64_t i = 0; i < 288; ++i) {  // the first one again, and times 2
    EXPECT_EQ(y.data<float>()[293 + i], 2 * y.data<float>()[i]);
    EXPECT_EQ(y.data<float>()[581 + i], y.data<float>()[i]);
  }
}

TEST(Outputs, TheBatchMayHaveAnotherPlaceInTheFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Graph graph = of_outputs();
  graph.output_ports[0].port.batch_axis = 3;
  save_graph(path, graph);
  EXPECT_EQ(load_checkpoint(path).metadata.at("graph_version"), "13");
  const Graph again = load_graph(path);
  EXPECT_EQ(again.output_ports[0].port.batch_axis, 3);
  EXPECT_EQ(again.output_ports[1].port.batch_axis, 0);
  graph.output_ports[0].port.batch_axis = 4;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(graph); }),
            "[graph] y0: expected the batch as one of 4 dimensions, got dimension 4");
}

// A reader of that version would not know the operation.
TEST(Outputs, AreRefusedInFilesOfVersionsBeforeThem) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  save_graph(path, of_outputs());
  Checkpoint file = load_checkpoint(path);
  file.metadata["graph_version"] = "13";
  save_checkpoint(path, file);
  EXPECT_NO_THROW(load_graph(path));
  file.metadata["graph_version"] = "11";
  save_checkpoint(path, file);
  EXPECT_THAT(message_of<InputError>([&] { load_graph(path); }),
              ::testing::EndsWith("output_parts is of graph_version 12, the file of 11"));
}

TEST(Outputs, SaysWhichDoNotFit) {
  const auto refusal = [](const std::function<void(Graph&)>& change) {
    Graph graph = of_outputs();
    change(graph);
    return message_of<std::invalid_argument>([&] { validate(graph); });
  };
  EXPECT_EQ(refusal([](Graph& g) { g.output_ports.pop_back(); }),
            "[graph] expected the 5 outputs that its last node joins, got 4");
  EXPECT_THAT(refusal([](Graph& g) { g.output_ports[1].first = 0; }),
              HasSubstr("expected the output 2 [5] from value 288 on, got [5] from 0 on"));
  EXPECT_THAT(refusal([](Graph& g) {
                g.output_ports[0].shape = {8, 9, 4};
              }),
              HasSubstr("expected the output 1 [9, 8, 4] from value 0 on, got [8, 9, 4]"));
  EXPECT_THAT(refusal([](Graph& g) {
                g.values.push_back({"more", g.values[g.output].shape, std::nullopt});
                Node& more = g.nodes.emplace_back();
                more.op = Op::kExp;
                more.name = "more";
                more.inputs = {g.output};
                more.output = g.output = g.values.size() - 1;
                g.output_ports.clear();
              }),
              HasSubstr("gives the model's outputs, expected nothing after it"));
}

TEST(Outputs, AreThoseOfTheOnnxFile) {
  if (!can_write_onnx()) GTEST_SKIP() << "built without protobuf";
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.onnx";
  Graph graph = of_outputs();
  write_onnx(path, graph);
  const std::string bytes = bytes_in(path);
  for (const char* name : {"y0", "y1", "y2", "y3:Identity", "y4"})
    EXPECT_THAT(bytes, HasSubstr(name));
  EXPECT_THAT(bytes, Not(HasSubstr("Concat")));
  graph.output_ports.clear();
  EXPECT_THAT(message_of<InputError>([&] { write_onnx(path, graph); }),
              HasSubstr("has no ONNX form: the graph does not say what the outputs are called"));
}

// The rows in which training has the outputs are no part of the file.
TEST(Outputs, OfFreeSizesStayFree) {
  if (!can_write_onnx()) GTEST_SKIP() << "built without protobuf";
  Graph graph = of_outputs();
  graph.input_port.free = {{1, "w"}};
  graph.resized.push_back(
      std::make_shared<Graph>(of_outputs(testing::random_tensor({1, 9, 16, 3}, 1, DType::kF32))));
  EXPECT_EQ(graph.resized[0]->output_ports[0].shape, (Shape{9, 16, 4}));
  EXPECT_EQ(why_sizes_are_fixed(graph), "");
}

}  // namespace
}  // namespace steelyard::deploy
