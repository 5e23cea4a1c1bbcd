// The C header, compiled by a C compiler and run by a program that shares nothing with the library.
#include "steelyard/export/c/c_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "steelyard/export/formats.h"
#include "steelyard/export/op_form.h"
#include "steelyard/export/output_map.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/output_parts.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path folder_of_test() {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "steelyard_c_header" /
                      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

int shell(const std::string& command) { return std::system(command.c_str()); }

// The output codes of the program of examples/, which includes `header`, for every sample.
std::vector<std::int32_t> run_in_c(const std::string& header, const Tensor& inputs) {
  const std::filesystem::path folder = folder_of_test();
  std::ofstream(folder / "model.h") << header;
  const auto bytes = static_cast<std::streamsize>(inputs.bytes());
  std::ofstream(folder / "in", std::ios::binary)
      .write(static_cast<const char*>(inputs.raw()), bytes);
  const std::string at = folder.string();
  const std::string compile =
      std::string(STEELYARD_C_COMPILER) +
      " -std=c99 -O1 -Wall -Wextra -Werror -pedantic -ffp-contract=off -I " + at + " " +
      STEELYARD_C_PROGRAM + " -o " + at + "/run -lm";
  EXPECT_EQ(shell(compile), 0);
  EXPECT_EQ(shell(at + "/run < " + at + "/in > " + at + "/out"), 0);
  const std::string out = read_file(folder / "out", 1 << 20);
  std::vector<std::int32_t> codes(out.size() / sizeof(std::int32_t));
  std::memcpy(codes.data(), out.data(), codes.size() * sizeof(std::int32_t));
  std::filesystem::remove_all(folder);
  return codes;
}

// [N, 9, 8, 3]: a gate of each channel, as squeeze-and-excite blocks have it, and one of each
// pixel.
std::shared_ptr<Module> gated_net(Rng& rng) {
  const auto product = [] { return std::make_shared<PairArithmetic>(Arithmetic::kMultiply); };
  return std::make_shared<::steelyard::Graph>(std::vector<::steelyard::Graph::NamedNode>{
      {"conv", testing::conv(3, 6, 3, 2, rng)},
      {"silu", std::make_shared<SiLU>()},
      {"pool", std::make_shared<AvgPool2d>(AvgPool2dOptions{{{5, 4}, {1, 1}, {0, 0}}})},
      {"squeeze", testing::conv(6, 6, 1, 1, rng)},
      {"gate", std::make_shared<HardSigmoid>(0.2, 0.5)},
      {"gated", product(), {"silu", "gate"}},
      {"map", testing::conv(6, 1, 1, 1, rng)},
      {"product", product(), {"map", "gated"}},
      {"average", std::make_shared<GlobalAvgPool>()},
      {"fc", std::make_shared<Linear>(LinearOptions{6, 5}, rng)}});
}

// Rows of the last dimension, in three dimensions.
std::shared_ptr<Module> rows_net(Rng& rng) {
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv", testing::conv(3, 4, 1, 1, rng)},
                                {"relu", std::make_shared<ReLU>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{4, 5}, rng)}});
}

struct CCase {
  const char* name;
  std::shared_ptr<Module> (*make)(Rng&);
  int weight_bits = 8;
  bool symmetric = false;
  bool affine_weights = false;
};

class CHeader : public ::testing::TestWithParam<CCase> {};

TEST_P(CHeader, RunsToTheSameCodes) {
  Rng rng(3);
  const auto model = testing::quantized_model(
      GetParam().make(rng), GetParam().affine_weights
                                ? testing::affine_weights(GetParam().weight_bits)
                                : testing::w8a8(GetParam().weight_bits, GetParam().symmetric));
  const Tensor inputs = testing::images(5, 9);
  const Graph graph = trace(*model, inputs, "a */ \"name\"").graph;
  const std::vector<std::int32_t> codes = run_in_c(c_header(graph), inputs);

  const Quantization q = *graph.values[graph.output].quantization;
  const Tensor expected = Interpreter(graph, Engine::kReference).run(inputs);
  ASSERT_EQ(std::ssize(codes), expected.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(static_cast<float>(codes[i] - q.zero_point) * q.scale, expected.data<float>()[i])
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, CHeader,
    ::testing::Values(CCase{"every_layer", testing::every_layer},
                      CCase{"residual_w4", testing::residual_net, 4},
                      CCase{"smooth", testing::smooth_net}, CCase{"gated", gated_net},
                      CCase{"gated_signed", gated_net, 8, true}, CCase{"rows", rows_net},
                      CCase{"concat_signed", testing::concat_net, 8, true},
                      CCase{"affine_weights", testing::every_layer, 4, false, true}),
    [](const auto& p) { return std::string(p.param.name); });

// The codes of each, one after another.
TEST(CHeaderText, NamesSeveralOutputs) {
  Rng rng(3);
  const auto net = std::make_shared<::steelyard::Graph>(std::vector<::steelyard::Graph::NamedNode>{
      {"conv", testing::conv(3, 6, 3, 2, rng)},
      {"relu", std::make_shared<ReLU>()},
      {"average", std::make_shared<GlobalAvgPool>()},
      {"fc", std::make_shared<Linear>(LinearOptions{6, 5}, rng)},
      {"outputs", std::make_shared<OutputParts>(), {"fc", "relu", "fc"}}});
  const auto model = testing::quantized_model(net, testing::w8a8());
  const Tensor inputs = testing::images(5, 9);
  Graph graph = trace(*model, inputs, "several").graph;
  EXPECT_EQ(c_refusal(graph), "");
  const std::vector<std::size_t> outputs = graph.nodes.back().inputs;
  std::int64_t first = 0;
  for (const std::size_t value : outputs) {
    graph.output_ports.push_back({{"y" + std::to_string(first)}, first, graph.values[value].shape});
    first += shape_size(graph.values[value].shape);
  }
  const std::string header = c_header(graph);
  EXPECT_THAT(header, HasSubstr("#define STEELYARD_OUTPUTS 3\n"));
  EXPECT_THAT(header, HasSubstr("{\"y5\", " + std::to_string(outputs[1]) + "}"));
  EXPECT_THAT(header, HasSubstr("#define STEELYARD_OUTPUT " + std::to_string(outputs[0]) + "\n"));
  const std::vector<std::int32_t> codes = run_in_c(header, inputs);
  const Tensor expected = Interpreter(graph, Engine::kReference).run(inputs);
  ASSERT_EQ(std::ssize(codes), expected.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t at = i % static_cast<std::size_t>(first);
    const std::size_t part = at < 5 ? 0 : at + 5 < static_cast<std::size_t>(first) ? 1 : 2;
    const Quantization q = *graph.values[outputs[part]].quantization;
    EXPECT_EQ(static_cast<float>(codes[i] - q.zero_point) * q.scale, expected.data<float>()[i])
        << i;
  }
}

// Outputs in the units of a regression's targets: codes, and what to make of them.
TEST(CHeaderText, EndsInTheMapOfTheOutputs) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::every_layer(rng), testing::w8a8());
  const Tensor inputs = testing::images(5, 9);
  const Graph plain = trace(*model, inputs, "plain").graph;
  EXPECT_FALSE(output_map(plain));
  EXPECT_THAT(c_header(plain), HasSubstr("#define STEELYARD_MAPPED_COLUMNS 0\n"));
  const std::int64_t columns = plain.values[plain.output].shape.back();
  const auto numbers = [&](float first) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < columns; ++i)
      values.push_back(first + 1.37F * static_cast<float>(i));
    return Tensor::from(values, {columns});
  };
  Graph mapped = plain;
  for (const auto& [op, name, constant] :
       {std::tuple(Op::kMul, "units", numbers(81234.5F)), {Op::kAdd, "units#2", numbers(250000)}}) {
    const std::size_t before = mapped.output;
    mapped.output = mapped.values.size();
    mapped.values.push_back({name, plain.values[plain.output].shape, std::nullopt});
    Node node;
    node.op = op;
    node.name = name;
    node.inputs = {before};
    node.output = mapped.output;
    node.constants = {{1, constant}};
    mapped.nodes.push_back(node);
  }
  validate(mapped);
  const auto map = output_map(mapped);
  ASSERT_TRUE(map);
  EXPECT_EQ(without_output_map(mapped).values.size(), plain.values.size());
  EXPECT_EQ(c_refusal(mapped), "");
  const std::vector<std::int32_t> codes = run_in_c(c_header(mapped), inputs);
  const Quantization q = *plain.values[plain.output].quantization;
  const Tensor expected = Interpreter(mapped, Engine::kReference).run(inputs);
  ASSERT_EQ(std::ssize(codes), expected.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto c = static_cast<std::int64_t>(i) % columns;
    const float scaled =
        static_cast<float>(codes[i] - q.zero_point) * q.scale * map->scale.data<float>()[c];
    EXPECT_EQ(scaled + map->shift.data<float>()[c], expected.data<float>()[i]) << i;
  }
  mapped.nodes.back().op = Op::kMul;
  EXPECT_FALSE(output_map(mapped));
  EXPECT_THAT(c_refusal(mapped), HasSubstr("the C header has no form of mul"));
}

TEST(CHeaderText, HasTheOperationsThatTheProgramComputes) {
  const std::string program = read_file(STEELYARD_C_PROGRAM, 1 << 20);
  for (const OpForm& form : form_table()) {
    const std::string name = op_name(form.op);
    EXPECT_EQ(form.in_c_header, program.find('"' + name + '"') != std::string::npos) << name;
  }
}

TEST(CHeaderText, HoldsFloatLayersAndGroups) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::every_layer(rng), testing::weight_groups(4));
  const std::string text = c_header(trace(*model, testing::images(1, 9), "groups").graph);
  EXPECT_THAT(text, HasSubstr("static const int8_t steelyard_weight_0["));
  EXPECT_THAT(text, HasSubstr("static const float steelyard_bias_0["));
}

TEST(CHeaderText, SaysWhatIsDoneToTheData) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::every_layer(rng), testing::w8a8());
  Graph graph = trace(*model, testing::images(1, 9), "net").graph;
  graph.preprocessing.transforms = ImageTransforms{.resize = {{9, 8}}};
  graph.class_names = {"a", "b */", "\u00e4?\""};
  const std::string text = c_header(graph);
  EXPECT_THAT(text, HasSubstr(R"(/* Before that, images are transformed: {"resize":[9,8],)"));
  EXPECT_THAT(text,
              HasSubstr(R"(/* The classes or characters: ["a","b \u002a/","\u00e4\u003f\""] */)"));
}

TEST(CHeaderText, RefusesWhatItHasNoFormOf) {
  Rng rng(3);
  Sequential rows({{"fc", std::make_shared<Linear>(LinearOptions{3, 4}, rng)}});
  const Tensor inputs = testing::images(1, 9).reshape({1, 9, 4, 2, 3});
  const Graph four = trace(rows, inputs, "net").graph;
  EXPECT_THAT(testing::message_of<std::invalid_argument>([&] { c_header(four); }),
              HasSubstr("the C header has at most 3 dimensions, got [9, 4, 2, 3]"));
  Sequential cubes({{"cube", std::make_shared<Elementwise>(kernels::UnaryFunction::kPower, 3)}});
  const Graph power = trace(cubes, testing::images(1, 9), "net").graph;
  EXPECT_THAT(testing::message_of<std::invalid_argument>([&] { c_header(power); }),
              HasSubstr("layer 'cube': the C header has no form of pow"));
}

TEST(ExportFormats, AreRowsWithAFileEach) {
  EXPECT_THAT(format_names(), ElementsAre("safetensors", "onnx", "c", "tflite"));
  EXPECT_EQ(export_format("c").suffix, ".h");
  EXPECT_TRUE(export_format("c").can_write());
  EXPECT_THROW(export_format("onxx"), std::invalid_argument);
  const std::vector<std::string> by_default = default_format_names();
  EXPECT_EQ(by_default.front(), "safetensors");
  EXPECT_EQ(by_default.size(), can_write_onnx() ? 2U : 1U);
}

// A file that its row wrote, whatever the format.
TEST(ExportFormats, EveryFormatThatCanBeWrittenIs) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::w8a8());
  const Graph graph = trace(*model, testing::images(1, 9), "all").graph;
  Rng again(3);
  const auto fixed = testing::quantized_model(testing::residual_net(again), testing::tflm(8));
  const Graph fixed_graph = trace(*fixed, testing::images(1, 9), "all").graph;
  const std::filesystem::path folder = folder_of_test();
  for (const ExportFormat& format : export_formats()) {
    if (!format.can_write()) continue;
    const auto path = folder / ("model" + std::string(format.suffix));
    format.write(path, format.by_default || format.name == "c" ? graph : fixed_graph, {});
    EXPECT_GT(std::filesystem::file_size(path), 1000U) << format.name;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace steelyard::deploy
