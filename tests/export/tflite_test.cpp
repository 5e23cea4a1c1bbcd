// TFLite files: what is refused, what is written, and graphs in fixed point in other files. That
// TFLite Micro gives the interpreter's codes: check_tflite.py.
#include "steelyard/export/tflite/tflite.h"

#include <gtest/gtest.h>

#include "steelyard/export/formats.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"
#include "tests/export/operation_graph.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::TemporaryFolder;
using testing::tflm;

Graph fixed_point_graph(std::shared_ptr<Module> (*network)(Rng&) = testing::fixed_point_net) {
  Rng rng(2);
  return trace(*quantized_model(network(rng), tflm(8)), images(2, 8), "net").graph;
}

TEST(Tflite, HoldsNamesAndTheIdentifierAndIsTheSameEachTime) {
  Graph graph = fixed_point_graph();
  graph.input_port.name = "picture";
  graph.output_port.name = "scores \"of\" it";
  graph.class_names = {"a", "b"};
  const std::string bytes = tflite_file(graph);
  EXPECT_EQ(bytes.substr(4, 4), "TFL3");
  for (const char* text : {"picture", "scores \"of\" it", "conv2/weight", "serving_default",
                           R"("profile":"tflm",)", R"("class_names":["a","b"])"}) {
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(bytes, tflite_file(graph));
}

TEST(Tflite, StoresEqualWeightsOnce) {
  const Graph graph = fixed_point_graph(testing::residual_net);
  Graph twice = graph;
  std::int64_t convolutions = 0;
  const Weights* first = nullptr;
  for (Node& node : twice.nodes) {
    if (node.op != Op::kConv2d || node.weights->weight.shape() != Shape{6, 6, 3, 3}) continue;
    if (first != nullptr) node.weights->weight = first->weight;
    if (first == nullptr) first = &*node.weights;
    ++convolutions;
  }
  ASSERT_EQ(convolutions, 2);
  EXPECT_LT(tflite_file(twice).size() + 6 * 6 * 9 - 32, tflite_file(graph).size());
}

// Weights of convolutions with four bits or fewer are two to a byte, and of a Linear of one output;
// TFLite Micro has no kernel for others.
TEST(Tflite, PacksWeightsOfFourBits) {
  for (const std::string_view operation : testing::kFixedProducts) {
    const auto bytes = [&](int bits) {
      const testing::OperationGraph one(operation, 1, kernels::Rounding::kFixedTwice, bits);
      return static_cast<double>(tflite_file(one.graph()).size());
    };
    const testing::OperationGraph one(operation, 1, kernels::Rounding::kFixedTwice);
    const auto weights = static_cast<double>(one.graph().nodes.back().weights->weight.size());
    const bool packs =
        operation.find("conv2d") != operation.npos || operation == "linear_of_one_output";
    EXPECT_NEAR(bytes(8) - bytes(4), packs ? weights / 2 : 0, 32) << operation;
    EXPECT_NEAR(bytes(8) - bytes(2), packs ? weights / 2 : 0, 32) << operation;
    EXPECT_NEAR(bytes(8) - bytes(5), 0, 32) << operation;
    const testing::OperationGraph narrow(operation, 1, kernels::Rounding::kFixedTwice, 4);
    EXPECT_NEAR(
        bytes(8) - static_cast<double>(tflite_file(narrow.graph(), {.pack_int4 = false}).size()), 0,
        32);
  }
}

TEST(Tflite, PacksWeightsUnlessTheFormatsOptionForbidsIt) {
  const testing::OperationGraph one("conv2d", 1, kernels::Rounding::kFixedTwice, 4);
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.tflite";
  for (const bool packs : {true, false}) {
    export_format("tflite").write(path, one.graph(), {.tflite_pack_int4 = packs});
    EXPECT_EQ(read_file(path, 1 << 20), tflite_file(one.graph(), {.pack_int4 = packs}));
  }
}

TEST(Tflite, RefusesWhatItHasNoFormOf) {
  Rng rng(2);
  const Graph floats =
      trace(*quantized_model(testing::fixed_point_net(rng), testing::w8a8()), images(2, 8), "net")
          .graph;
  EXPECT_EQ(tflite_refusal(floats),
            "its codes are rounded as floats: a TFLite file needs a model trained with "
            "export.profile tflm");
  EXPECT_EQ(tflite_refusal(fixed_point_graph()), "");
  Graph relu6 = fixed_point_graph();
  for (Node& node : relu6.nodes) {
    if (node.op == Op::kRelu) node.op = Op::kRelu6;
  }
  EXPECT_EQ(tflite_refusal(relu6), "layer 'relu3': a TFLite file has no form of relu6");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { tflite_file(relu6); }),
            "layer 'relu3': a TFLite file has no form of relu6");
}

// What stays in float behind a network of integers, and what to do about it.
TEST(Tflite, NamesTheCauseOfFloatsAtTheEnd) {
  const auto behind = [](Op op, const std::vector<float>& constant) {
    return [op, constant](Graph& graph) {
      Node node;
      node.op = op;
      node.options = op_info(op).options;
      node.name = "after" + std::to_string(graph.nodes.size());
      node.inputs = {graph.output};
      node.output = graph.output = graph.values.size();
      const Shape shape = graph.values[node.inputs[0]].shape;
      if (!constant.empty()) {
        node.constants = {{0, Tensor::full({shape.back()}, static_cast<double>(constant[0]))}};
      }
      graph.values.push_back({node.name, shape, {}});
      graph.nodes.push_back(node);
    };
  };
  Graph regression = fixed_point_graph();
  behind(Op::kMul, {2})(regression);
  behind(Op::kAdd, {1})(regression);
  EXPECT_NE(
      tflite_refusal(regression)
          .find("a TFLite file has no floats: the outputs become the numbers of the data by a "
                "float product and sum, which data.normalize_targets: false leaves out"),
      std::string::npos)
      << tflite_refusal(regression);
  Graph shares = fixed_point_graph();
  behind(Op::kSoftmax, {})(shares);
  EXPECT_NE(tflite_refusal(shares).find("a TFLite file has no floats: softmax ends the imported"),
            std::string::npos)
      << tflite_refusal(shares);
}

TEST(FixedPointGraphs, OnnxRefusesThem) {
  const Graph graph = fixed_point_graph();
  EXPECT_EQ(export_format("onnx").refusal(graph),
            "it has no codes in fixed point, as the profile tflm has them");
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<InputError>(
                [&] { export_format("onnx").write(folder.path() / "model", graph, {}); }),
            "export: it has no codes in fixed point, as the profile tflm has them");
  EXPECT_EQ(default_format_names(qat::Profile::kTflm),
            (std::vector<std::string>{"safetensors", "tflite"}));
}

TEST(FixedPointGraphs, ComeBackFromTheirFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  for (const auto rounding : {kernels::Rounding::kFixedTwice, kernels::Rounding::kFixedOnce}) {
    const testing::RandomGraph random(3, DType::kI8, rounding);
    save_graph(path, random.graph());
    EXPECT_NE(read_file(path, 1 << 24).find(R"("graph_version":"14")"), std::string::npos);
    const Graph loaded = load_graph(path);
    for (std::size_t i = 0; i < loaded.values.size(); ++i) {
      EXPECT_EQ(loaded.values[i].quantization, random.graph().values[i].quantization);
    }
  }
}

TEST(FixedPointGraphs, KeepRecurrentWeights) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  std::vector<double> bytes;
  for (const int bits : {3, 8}) {
    const testing::OperationGraph one("lstm", 1, kernels::Rounding::kFixedTwice, bits);
    save_graph(path, one.graph());
    EXPECT_NE(read_file(path, 1 << 24).find(R"("graph_version":"16")"), std::string::npos);
    EXPECT_TRUE(holds_graph(path, one.graph()));
    const Graph loaded = load_graph(path);
    EXPECT_TRUE(same_weights(*loaded.nodes.back().recurrent, *one.graph().nodes.back().recurrent));
    EXPECT_TRUE(same_weights(*loaded.nodes.back().weights, *one.graph().nodes.back().weights));
    Graph other = one.graph();
    Tensor& weight = other.nodes.back().recurrent->weight;
    weight = weight.clone();
    weight.data<std::int8_t>()[0] ^= 1;
    EXPECT_FALSE(holds_graph(path, other));
    const std::int64_t codes = one.graph().nodes.back().weights->weight.size() + weight.size();
    const std::int64_t packed = bits == 3 ? codes / 2 : 0;
    bytes.push_back(static_cast<double>(parameter_bytes(one.graph()) + packed));
  }
  EXPECT_NEAR(bytes[0], bytes[1], 1);
}

TEST(FixedPointGraphs, BothEnginesGiveTheSameCodes) {
  std::int64_t codes = 0, ends = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto rounding =
        seed % 3 == 0 ? kernels::Rounding::kFixedOnce : kernels::Rounding::kFixedTwice;
    const testing::RandomGraph random(seed, DType::kI8, rounding);
    const auto expected = Interpreter(random.graph()).run_all(random.inputs());
    const auto fast = Interpreter(random.graph(), Engine::kFast).run_all(random.inputs());
    for (std::size_t i = 1; i < expected.size(); ++i) {
      ASSERT_TRUE(same_elements(expected[i], fast[i]))
          << "seed " << seed << ", " << random.graph().values[i].name;
      for (const std::int8_t code : expected[i].span<std::int8_t>()) {
        ends += code == -128 || code == 127 ? 1 : 0;
      }
      codes += expected[i].size();
    }
  }
  EXPECT_GT(codes, 100000);
  EXPECT_LT(ends, codes / 2);
}

TEST(FixedPointGraphs, RefuseOtherCodesAndOperations) {
  const auto refusal = [](const auto& change) {
    Graph graph = fixed_point_graph();
    change(graph);
    return message_of<std::invalid_argument>([&] { validate(graph); });
  };
  const auto range = refusal([](Graph& graph) {
    for (Value& value : graph.values) {
      if (value.quantization) value.quantization->range = {-127, 127};
    }
  });
  EXPECT_NE(range.find("expected the codes -128..127 as i8 in fixed point, got -127..127 as i8"),
            std::string::npos)
      << range;
  const auto mixed = refusal([](Graph& graph) {
    graph.values[graph.nodes[0].output].quantization->rounding = kernels::Rounding::kFloat;
  });
  EXPECT_NE(mixed.find("expected inputs with codes of the same rounding"), std::string::npos);
  const auto padded = refusal([](Graph& graph) {
    for (Node& node : graph.nodes) {
      if (node.op == Op::kAvgPool2d) node.as<Pool2dGeometry>().padding = {1, 1};
    }
  });
  EXPECT_NE(padded.find("in fixed point it has no padding"), std::string::npos) << padded;
  const auto refusal_of = [](const char* operation, const auto& change) {
    Graph graph = testing::OperationGraph(operation, 1, kernels::Rounding::kFixedTwice).graph();
    change(graph);
    return message_of<std::invalid_argument>([&] { validate(graph); });
  };
  EXPECT_NE(
      refusal_of("tanh", [](Graph& graph) { graph.values[graph.output].quantization->scale *= 2; })
          .find("in fixed point its codes have steps of 2^-7 around 0"),
      std::string::npos);
  const auto refusal_of_lstm = [&](const auto& change) {
    return refusal_of("lstm", [&](Graph& graph) { change(graph.nodes.back()); });
  };
  EXPECT_NE(refusal_of_lstm([](Node& lstm) {
              lstm.recurrent->scales[1] *= 2;
            }).find("its weights have one scale, and no zero points"),
            std::string::npos);
  EXPECT_NE(refusal_of_lstm([](Node& lstm) {
              lstm.recurrent->bias = lstm.weights->bias;
            }).find("has one bias, beside the weights of its input"),
            std::string::npos);
  EXPECT_NE(refusal_of_lstm([](Node& lstm) {
              lstm.recurrent->bits = 2;
              lstm.recurrent->weight = Tensor::zeros(lstm.recurrent->weight.shape(), DType::kI8);
            }).find("its weights have as many bits"),
            std::string::npos);
  EXPECT_NE(refusal_of_lstm([](Node& lstm) {
              lstm.recurrent.reset();
            }).find("recurrent weights belong to fixed_lstm"),
            std::string::npos);
  EXPECT_NE(refusal_of_lstm([](Node& lstm) {
              lstm.recurrent->weight = lstm.weights->weight;
            }).find("do not fit the input"),
            std::string::npos);
  const auto dilated = refusal_of("conv_transpose2d", [](Graph& graph) {
    auto& geometry = graph.nodes.back().as<ConvTranspose2dGeometry>();
    geometry.conv.dilation = {1, 2};
    const Shape kernel = graph.nodes.back().weights->weight.shape();
    graph.values[graph.output].shape[1] += kernel[3] - 1;
  });
  EXPECT_NE(dilated.find("in fixed point it has no groups or dilation"), std::string::npos)
      << dilated;
}

}  // namespace
}  // namespace steelyard::deploy
