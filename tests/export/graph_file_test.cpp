// The integer model as a file.
#include "steelyard/export/graph_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::TemporaryFolder;
using testing::w8a8;

Graph graph_of(int weight_bits, std::vector<std::string> ignore = {}) {
  Rng rng(2);
  qat::QuantizeConfig config = w8a8(weight_bits);
  config.ignore = std::move(ignore);
  const auto model = quantized_model(testing::every_layer(rng), config);
  Graph graph = trace(*model, images(1, 1), "net").graph;
  graph.target = TargetKind::kValues;
  graph.preprocessing = {DType::kU8, {{0.25F, 0.5F, 0.125F}, {0.3F, 0.2F, 0.1F}}};
  return graph;
}

// A row with another version does not compile.
template <int version>
concept IsGraphVersion = requires {
  typename std::integral_constant<int, GraphVersion(version).number>;
};
static_assert(IsGraphVersion<1> && IsGraphVersion<kNewestGraphVersion>);
static_assert(!IsGraphVersion<0> && !IsGraphVersion<kNewestGraphVersion + 1>);

TEST(GraphFile, ComesBackWithTheSameMeaningAndBytes) {
  const TemporaryFolder folder;
  for (const int bits : {2, 3, 4, 7, 8}) {
    const Graph graph = graph_of(bits);
    const auto path = folder.path() / "model.safetensors";
    const auto again = folder.path() / "again.safetensors";
    save_graph(path, graph);
    const Graph loaded = load_graph(path);
    save_graph(again, loaded);
    EXPECT_EQ(read_file(path, 1 << 24), read_file(again, 1 << 24));
    EXPECT_EQ(to_string(loaded), to_string(graph));
    EXPECT_EQ(loaded.target, graph.target);
    EXPECT_EQ(loaded.preprocessing.normalization.mean, graph.preprocessing.normalization.mean);
    const Tensor inputs = images(3, 4);
    EXPECT_TRUE(
        testing::all_close(Interpreter(loaded).run(inputs), Interpreter(graph).run(inputs), 0, 0));
  }
}

TEST(GraphFile, KeepsTransformsAndNamesOfClasses) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Graph graph = graph_of(8);
  graph.preprocessing.transforms = ImageTransforms{.resize_shorter = 72,
                                                   .centre_crop = {{64, 48}},
                                                   .interpolation = Interpolation::kBicubic,
                                                   .grey = true};
  const std::int64_t outputs = shape_size(graph.values[graph.output].shape);
  for (std::int64_t i = 0; i < outputs; ++i) {
    graph.class_names.push_back("class " + std::to_string(i));
  }
  save_graph(path, graph);
  const Graph loaded = load_graph(path);
  EXPECT_EQ(loaded.class_names, graph.class_names);
  const ImageTransforms& transforms = loaded.preprocessing.transforms.value();
  EXPECT_FALSE(transforms.resize);
  EXPECT_EQ(transforms.resize_shorter, 72);
  EXPECT_EQ(transforms.centre_crop, (std::array<std::int64_t, 2>{64, 48}));
  EXPECT_EQ(transforms.interpolation, Interpolation::kBicubic);
  EXPECT_TRUE(transforms.grey);
  graph.class_names.pop_back();
  save_graph(path, graph);
  EXPECT_NE(testing::message_of<InputError>([&] { load_graph(path); })
                .find("expected names of " + std::to_string(outputs) + " classes, got " +
                      std::to_string(outputs - 1)),
            std::string::npos);
}

TEST(GraphFile, KeepsTheColumnsOfATable) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Rng rng(2);
  Linear model(LinearOptions{4, 3}, rng);
  Graph graph = trace(model, Tensor::zeros({1, 4}), "rows").graph;
  graph.target = TargetKind::kMarks;
  graph.preprocessing.table = TableFeatures{
      {.target = {"a", "b"}, .ignore = {"id"}, .missing = {"", "NA"}, .delimiter = Delimiter::kTab},
      {{"colour", {"red", "green", "blue"}, {}}, {"length", {}, 1.5F}}};
  save_graph(path, graph);
  const Graph loaded = load_graph(path);
  EXPECT_EQ(loaded.target, TargetKind::kMarks);
  ASSERT_TRUE(loaded.preprocessing.table);
  EXPECT_EQ(loaded.preprocessing.table->options, graph.preprocessing.table->options);
  EXPECT_EQ(loaded.preprocessing.table->columns, graph.preprocessing.table->columns);
  graph.preprocessing.table->columns.pop_back();
  save_graph(path, graph);
  EXPECT_NE(testing::message_of<InputError>([&] {
              load_graph(path);
            }).find("the table's columns give 3 features, the input is [4]"),
            std::string::npos);
}

TEST(GraphFile, KeepsTheCharactersOfTexts) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Graph graph = graph_of(8);
  graph.target = TargetKind::kText;
  const std::int64_t outputs = shape_size(graph.values[graph.output].shape);
  graph.characters = outputs;
  graph.class_names.assign(static_cast<std::size_t>(outputs), "x");
  save_graph(path, graph);
  EXPECT_EQ(load_graph(path).characters, outputs);
  graph.characters = outputs + 1;
  save_graph(path, graph);
  EXPECT_NE(
      testing::message_of<InputError>([&] { load_graph(path); }).find("are not those of frames of"),
      std::string::npos);
}

TEST(GraphFile, KnowsWhetherItHoldsAGraph) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const Graph graph = graph_of(4);
  save_graph(path, graph);
  EXPECT_TRUE(holds_graph(path, graph_of(4)));
  EXPECT_FALSE(holds_graph(path, graph_of(3)));
  const auto changed = [&](const std::function<void(Graph&)>& change) {
    Graph other = graph_of(4);
    change(other);
    return !holds_graph(path, other);
  };
  const auto with_weights = [](Graph& g) -> Weights& {
    return *std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& node) {
              return node.weights && node.weights->integer() && node.weights->bias.defined();
            })->weights;
  };
  EXPECT_TRUE(changed([&](Graph& g) { with_weights(g).weight.data<std::int8_t>()[0] ^= 1; }));
  EXPECT_TRUE(changed([&](Graph& g) { with_weights(g).scales[0] *= 1.0000002F; }));
  EXPECT_TRUE(changed([&](Graph& g) { with_weights(g).bias.data<std::int32_t>()[0] += 1; }));
  EXPECT_TRUE(changed([](Graph& g) { g.values[1].quantization->zero_point += 1; }));
  EXPECT_TRUE(changed([](Graph& g) { g.name = "other"; }));
  EXPECT_THROW(holds_graph(folder.path() / "none", graph), InputError);
}

// Older files do not say which model they were made from; that is no difference.
TEST(GraphFile, SaysWhichModelItWasMadeFrom) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  Graph graph = graph_of(4);
  save_graph(path, graph);
  EXPECT_EQ(load_graph(path).model_sha256, "");
  graph.model_sha256 = "12ab";
  EXPECT_TRUE(holds_graph(path, graph));
  save_graph(path, graph);
  EXPECT_EQ(load_graph(path).model_sha256, "12ab");
  EXPECT_TRUE(holds_graph(path, graph_of(4)));
}

void collect_keys(const nlohmann::json& json, std::set<std::string>& keys) {
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) keys.insert(key);
    if (value.is_structured()) collect_keys(value, keys);
  }
}

TEST(ExportsPage, HoldsEveryKeyAndOperation) {
  const TemporaryFolder folder;
  const std::string page = read_file(STEELYARD_EXPORTS_PAGE, 1 << 20);
  std::set<std::string> words{"kind", "graph_version", "model_sha256", "graph"};
  Rng rng(2);
  for (const auto& model : {testing::every_layer(rng), testing::concat_net(rng)}) {
    Graph graph = trace(*quantized_model(model, w8a8()), images(1, 1), "net").graph;
    graph.model_sha256 = "12ab";
    save_graph(folder.path() / "m", graph);
    const Checkpoint file = load_checkpoint(folder.path() / "m");
    EXPECT_EQ(file.metadata.size(), 4U);
    collect_keys(nlohmann::json::parse(file.metadata.at("graph")), words);
  }
  EXPECT_TRUE(words.contains("dilation") && words.contains("kernel") && words.contains("qmin"));
  words.insert("constants");
  for (const OpInfo& info : op_table()) {
    words.insert(info.name);
    for_each_option(info.options, [&](const char* name, const auto&) { words.insert(name); });
  }
  for (const std::string& word : words) {
    EXPECT_NE(page.find("`" + word + "`"), std::string::npos) << word;
  }
}

TEST(GraphFile, KeepsGroupsOfWeights) {
  const TemporaryFolder folder;
  for (const int bits : {3, 4, 8}) {
    Rng rng(2);
    const auto model = quantized_model(testing::every_layer(rng), testing::weight_groups(bits));
    const Graph graph = trace(*model, images(1, 1), "net").graph;
    save_graph(folder.path() / "m", graph);
    const Graph loaded = load_graph(folder.path() / "m");
    EXPECT_EQ(to_string(loaded), to_string(graph));
    const Tensor inputs = images(3, 4);
    EXPECT_TRUE(
        testing::all_close(Interpreter(loaded).run(inputs), Interpreter(graph).run(inputs), 0, 0));
    for (const NamedTensor& tensor : load_checkpoint(folder.path() / "m").tensors) {
      if (tensor.name != "fc1.weight_scale") continue;
      EXPECT_EQ(tensor.tensor.shape(), (Shape{16, 12}));
    }
  }
}

// In a version of their own: a reader that does not know zero points must not pass over them.
TEST(GraphFile, KeepsZeroPointsOfWeights) {
  const TemporaryFolder folder;
  const auto version = [&](const char* name) {
    return load_checkpoint(folder.path() / name).metadata.at("graph_version");
  };
  for (const int bits : {2, 4, 8}) {
    Rng rng(2);
    const auto model = quantized_model(testing::every_layer(rng), testing::affine_weights(bits));
    Graph graph = trace(*model, images(1, 1), "net").graph;
    ASSERT_EQ(graph.nodes[1].weights->zero_points.size(), 6U);
    save_graph(folder.path() / "m", graph);
    const Graph loaded = load_graph(folder.path() / "m");
    EXPECT_EQ(to_string(loaded), to_string(graph));
    EXPECT_EQ(loaded.nodes[1].weights->zero_points, graph.nodes[1].weights->zero_points);
    EXPECT_EQ(version("m"), "2");
    graph.nodes[1].weights->zero_points[2] = static_cast<std::int8_t>(bits == 8 ? 0 : 1 << bits);
    if (bits < 8) {
      EXPECT_EQ(message_of<std::invalid_argument>([&] { save_graph(folder.path() / "m", graph); }),
                "[graph] conv1 (conv2d): weight zero point " + std::to_string(1 << bits) +
                    " does not fit " + std::to_string(bits) + " bits");
    }
    graph.nodes[1].weights->zero_points.pop_back();
    EXPECT_EQ(message_of<std::invalid_argument>([&] { save_graph(folder.path() / "m", graph); }),
              "[graph] conv1 (conv2d): expected a weight zero point for each of 6 scales, got 5");
  }
  save_graph(folder.path() / "symmetric", graph_of(8));
  EXPECT_EQ(version("symmetric"), "1");
}

TEST(GraphFile, KeepsWideCodes) {
  const TemporaryFolder folder;
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), testing::wide_activations(16));
  Graph graph = trace(*model, images(1, 1), "net").graph;
  save_graph(folder.path() / "m", graph);
  EXPECT_EQ(to_string(load_graph(folder.path() / "m")), to_string(graph));
  EXPECT_EQ(load_checkpoint(folder.path() / "m").metadata.at("graph_version"), "3");
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kAvgPool2d) continue;
    Quantization& codes = *graph.values[node.inputs[0]].quantization;
    const kernels::CodeRange all = std::exchange(codes.range, {codes.zero_point, codes.zero_point});
    EXPECT_NO_THROW(validate(graph)) << "of one code";
    codes.range = all;
  }
  graph.values[1].quantization->range.qmax = 65536;
  EXPECT_NE(message_of<std::invalid_argument>([&] { validate(graph); }).find("do not fit i32"),
            std::string::npos);
}

// A gate as squeeze-and-excite blocks have it, and shares in float of codes.
TEST(GraphFile, KeepsGates) {
  const TemporaryFolder folder;
  Rng rng(2);
  const auto model = quantized_model(
      std::make_shared<steelyard::Graph>(std::vector<steelyard::Graph::NamedNode>{
          {"conv", conv2d(3, 3, 3, rng)},
          {"gate", std::make_shared<HardSigmoid>(0.2F, 0.5)},
          {"mul", std::make_shared<PairArithmetic>(Arithmetic::kMultiply), {"conv", "gate"}},
          {"pool", global_avg_pool()},
          {"fc", linear(3, 3, rng)}}),
      w8a8());
  Graph graph = trace(*model, images(1, 1), "net").graph;
  Node shares;
  shares.op = Op::kSoftmax;
  shares.name = "shares";
  shares.inputs = {graph.output};
  shares.output = graph.values.size();
  graph.output = shares.output;
  graph.nodes.push_back(shares);
  graph.values.push_back({"shares", {3}, {}});
  save_graph(folder.path() / "m", graph);
  const Graph loaded = load_graph(folder.path() / "m");
  EXPECT_EQ(to_string(loaded), to_string(graph));
  EXPECT_EQ(load_checkpoint(folder.path() / "m").metadata.at("graph_version"), "4");
  const auto gate = std::find_if(loaded.nodes.begin(), loaded.nodes.end(),
                                 [](const Node& node) { return node.op == Op::kHardSigmoid; });
  ASSERT_NE(gate, loaded.nodes.end());
  EXPECT_EQ(gate->as<kernels::Ramp>(), (kernels::Ramp{0.2F, 0.5}));
  const Tensor inputs = images(3, 4);
  const Tensor outputs = Interpreter(loaded).run(inputs);
  EXPECT_TRUE(testing::all_close(outputs, Interpreter(graph, Engine::kFast).run(inputs), 0, 1e-6));
  for (std::int64_t i = 0; i < 3; ++i) {
    const float* row = outputs.data<float>() + 3 * i;
    EXPECT_NEAR(row[0] + row[1] + row[2], 1, 1e-6);
  }
}

TEST(GraphFile, KeepsGroupsOfCodes) {
  const TemporaryFolder folder;
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), testing::groups_of_codes(4));
  Graph graph = trace(*model, images(1, 1), "net").graph;
  save_graph(folder.path() / "m", graph);
  const Graph loaded = load_graph(folder.path() / "m");
  EXPECT_EQ(to_string(loaded), to_string(graph));
  EXPECT_EQ(load_checkpoint(folder.path() / "m").metadata.at("graph_version"), "2");
  const Tensor inputs = images(3, 4);
  EXPECT_TRUE(
      testing::all_close(Interpreter(loaded).run(inputs), Interpreter(graph).run(inputs), 0, 0));
  for (Node& node : graph.nodes) {
    if (!node.weights || !node.weights->has_groups()) continue;
    node.weights->bias = Tensor::zeros({node.weights->weight.dim(0)}, DType::kI32);
    break;
  }
  EXPECT_EQ(message_of<std::invalid_argument>([&] { save_graph(folder.path() / "m", graph); }),
            "[graph] conv1 (conv2d): its bias does not fit its weights");
}

TEST(GraphFile, RefusesGroupsThatDoNotFit) {
  const TemporaryFolder folder;
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), testing::weight_groups(4));
  Graph graph = trace(*model, images(1, 1), "net").graph;
  graph.nodes[0].weights->scales.pop_back();
  EXPECT_EQ(message_of<std::invalid_argument>([&] { save_graph(folder.path() / "m", graph); }),
            "[graph] conv1 (conv2d): 17 weight scales do not divide its weight [6, 3, 3, 3]");
}

TEST(GraphFile, KeepsJoins) {
  const TemporaryFolder folder;
  Rng rng(2);
  const auto model = quantized_model(testing::concat_net(rng), w8a8());
  const Graph graph = trace(*model, images(1, 1), "net").graph;
  save_graph(folder.path() / "m", graph);
  EXPECT_EQ(to_string(load_graph(folder.path() / "m")), to_string(graph));
}

TEST(GraphFile, KeepsFloatLayers) {
  const TemporaryFolder folder;
  const Graph graph = graph_of(8, {"fc2"});
  save_graph(folder.path() / "m", graph);
  const Tensor inputs = images(3, 4);
  EXPECT_TRUE(testing::all_close(Interpreter(load_graph(folder.path() / "m")).run(inputs),
                                 Interpreter(graph).run(inputs), 0, 0));
}

TEST(GraphFile, FourBitWeightsTakeHalfAByte) {
  const TemporaryFolder folder;
  save_graph(folder.path() / "m", graph_of(4));
  for (const NamedTensor& tensor : load_checkpoint(folder.path() / "m").tensors) {
    if (tensor.name != "fc1.weight") continue;
    EXPECT_EQ(tensor.tensor.dtype(), DType::kU8);
    EXPECT_EQ(tensor.tensor.bytes(), 16 * 192 / 2);
  }
}

TEST(GraphFile, RejectsEveryTruncationAndForeignFiles) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m";
  save_graph(path, graph_of(8));
  const std::string bytes = read_file(path, 1 << 24);
  for (std::size_t size = 0; size < bytes.size(); size += 97) {
    write_file_atomic(folder.path() / "cut", std::string_view(bytes).substr(0, size));
    EXPECT_THROW(load_graph(folder.path() / "cut"), InputError) << size;
  }
  save_checkpoint(folder.path() / "other", {{{"a", Tensor::zeros({2})}}, {}});
  EXPECT_NE(message_of<InputError>([&] {
              load_graph(folder.path() / "other");
            }).find("expected an exported integer model"),
            std::string::npos);
}

// Metadata that a checksum covers may still be nonsense: it is another program's, or hostile.
TEST(GraphFile, RejectsGraphsThatDoNotFit) {
  const TemporaryFolder folder;
  save_graph(folder.path() / "m", graph_of(4));
  const Checkpoint good = load_checkpoint(folder.path() / "m");
  const auto rejects = [&](const std::string& from, const std::string& to) {
    Checkpoint bad{good.tensors, {}};
    for (const auto& [key, value] : good.metadata) {
      if (key == "kind" || key == "graph_version" || key == "graph") bad.metadata[key] = value;
    }
    std::string& json = bad.metadata["graph"];
    const std::size_t at = json.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
    save_checkpoint(folder.path() / "bad", bad);
    EXPECT_THROW(load_graph(folder.path() / "bad"), InputError) << from << " -> " << to;
  };
  rejects("\"conv2d\"", "\"conv3d\"");
  rejects("\"groups\":2", "\"groups\":3");
  rejects("\"weight_bits\":4", "\"weight_bits\":5");
  rejects("\"weight_bits\":4", "\"weight_bits\":0");
  rejects("\"weight_shape\":[6,", "\"weight_shape\":[9223372036854775807,");
  rejects("\"weight_shape\":[6,", "\"weight_shape\":[-6,");
  rejects("\"output\":", "\"output\":-");
  rejects("\"inputs\":[1]", "\"inputs\":[184467440737]");
  rejects("\"values\":[", "\"values\":[[[[[[[[");
  rejects("\"relu\"", "\"gelu\"");
  rejects("\"shape\":[9,8,3]", "\"shape\":[]");
  rejects("\"shape\":[9,8,3]", "\"shape\":[9223372036854775807,8,3]");
  for (const char* extent : {"padding", "stride", "dilation", "kernel"}) {
    const std::string key = '"' + std::string(extent) + "\":[";
    rejects(key, key + "9223372036854775807,1],\"was\":[");
    rejects(key, key + "-1,1],\"was\":[");
  }
  rejects("\"padding\":[1,1]", "\"padding\":[1000000,1000000]");
  rejects("\"mean\":[", "\"mean\":[0.5,");
  rejects("\"stddev\":[", "\"stddev\":[],\"was\":[");
  rejects("\"stddev\":[", "\"stddev\":[0,0,0],\"was\":[");
  rejects("\"dtype\":\"u8\"", "\"dtype\":\"f16\"");
  // What 32 bits would make of it is 0.
  rejects("\"zero_point\":", "\"zero_point\":4294967296,\"was\":");
  rejects("\"groups\":2", "\"groups\":2.5");
  rejects("\"qmax\":", "\"qmax\":1e300,\"was\":");
}

}  // namespace
}  // namespace steelyard::deploy
