// C programs, compiled by a C compiler without a register for floats, and run by programs that
// share nothing with the library.
#include "steelyard/export/c/c_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "steelyard/export/c/arena.h"
#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/framework/data/batches.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/c_program_support.h"
#include "tests/export/export_support.h"
#include "tests/export/operation_graph.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

using testing::compile;
using testing::run_program;
using testing::shell_of;
using testing::text_of;

// Programs end at any place of their graphs: what later layers hide is seen, too.
TEST(CPrograms, GiveTheCodesOfTheInterpreter) {
  std::size_t compared = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const auto rounding =
        seed % 3 == 0 ? kernels::Rounding::kFixedOnce : kernels::Rounding::kFixedTwice;
    const int bits = std::array{8, 4, 2}[seed / 3 % 3];
    const testing::RandomGraph random(seed, DType::kI8, rounding, bits);
    const std::size_t values = random.graph().values.size();
    const Graph graph = testing::cut_at(random.graph(), values - 1 - seed % (values - 2));
    const std::vector<Tensor> all = Interpreter(graph).run_all(random.inputs());
    const std::string expected = text_of(all[graph.output]);
    ASSERT_EQ(run_program(graph, all[input_codes(graph)]), expected)
        << "seed " << seed << ", " << graph.values[graph.output].name;
    compared += expected.size();
  }
  EXPECT_GT(compared, 10000U);
}

void expect_same_codes(std::string_view operation, kernels::Rounding rounding, int weight_bits) {
  const testing::OperationGraph one(operation, 1, rounding, weight_bits);
  const std::vector<Tensor> all = Interpreter(one.graph()).run_all(one.inputs());
  ASSERT_EQ(run_program(one.graph(), all[input_codes(one.graph())]),
            text_of(all[one.graph().output]))
      << operation << " with weights of " << weight_bits << " bits";
}

TEST(CPrograms, OfEachOperationGiveTheCodesOfTheInterpreter) {
  for (const std::string_view operation : testing::kFixedOperations) {
    expect_same_codes(operation, kernels::Rounding::kFixedTwice, 8);
    expect_same_codes(operation, kernels::Rounding::kFixedOnce, 8);
  }
}

// Rows of weights begin anywhere in a byte.
TEST(CPrograms, OfPackedWeightsGiveTheCodesOfTheInterpreter) {
  for (const std::string_view operation : testing::kFixedProducts) {
    expect_same_codes(operation, kernels::Rounding::kFixedTwice, 4);
    expect_same_codes(operation, kernels::Rounding::kFixedOnce, 2);
  }
}

struct ProgramCase {
  const char* name;
  std::shared_ptr<Module> (*make)(Rng&);
  int weight_bits;
};

class CProgramOf : public ::testing::TestWithParam<ProgramCase> {};

// Weights of every width, and the test that each program brings along.
TEST_P(CProgramOf, PassesItsOwnTest) {
  Rng rng(3);
  const auto model =
      testing::quantized_model(GetParam().make(rng), testing::tflm(GetParam().weight_bits));
  const Tensor inputs = testing::images(5, 9);
  const Graph graph = trace(*model, inputs, "a */ \"name\" ?\?/").graph;
  const std::vector<Tensor> all = Interpreter(graph).run_all(inputs);
  EXPECT_EQ(run_program(graph, all[input_codes(graph)]), text_of(all[graph.output]));

  const TemporaryFolder folder;
  write_c_program(folder.path() / "model.h", graph);
  const std::string at = folder.path().string();
  compile(folder.path(), at + "/model_test.c");
  EXPECT_EQ(shell_of(at + "/run > " + at + "/out"), 0);
  EXPECT_THAT(read_file(folder.path() / "out", 100), HasSubstr("0 of "));
  EXPECT_EQ(shell_of("nm -u " + at + "/model.o | grep -v -w -e memset -e memcpy -e memmove > " +
                     at + "/undefined"),
            256)  // grep found no other line: no malloc, no helper of floats
      << read_file(folder.path() / "undefined", 1000);
  // A program that computes something else fails.
  std::string source = read_file(folder.path() / "model.c", 1 << 24);
  source.insert(
      source.rfind('}'),
      "  arena[STEELYARD_OUTPUT_OFFSET] = (int8_t)(arena[STEELYARD_OUTPUT_OFFSET] ^ 1);\n");
  std::ofstream(folder.path() / "model.c") << source;
  compile(folder.path(), at + "/model_test.c");
  EXPECT_EQ(shell_of(at + "/run > " + at + "/out"), 256);
}

INSTANTIATE_TEST_SUITE_P(Networks, CProgramOf,
                         ::testing::Values(ProgramCase{"layers_w8", testing::fixed_point_net, 8},
                                           ProgramCase{"layers_w4", testing::fixed_point_net, 4},
                                           ProgramCase{"layers_w2", testing::fixed_point_net, 2},
                                           ProgramCase{"functions", testing::fixed_functions_net,
                                                       8},
                                           ProgramCase{"lstm", testing::fixed_lstm_net, 8},
                                           ProgramCase{"lstm_w4", testing::fixed_lstm_net, 4},
                                           ProgramCase{"residual_w4", testing::residual_net, 4}),
                         [](const auto& p) { return std::string(p.param.name); });

// As on a processor with pointers of 32 bits; run_on_microcontrollers compares whole programs.
TEST(CProgramText, CountsStructsAndTables) {
  EXPECT_EQ(c_struct_bytes("product"), 4 * (4 + 20));
  EXPECT_EQ(c_struct_bytes("mul_node"), 4 * (3 * 4 + 7));
  EXPECT_EQ(c_struct_bytes("map_node"), 4 * 5);
  EXPECT_THROW(c_struct_bytes("no_node"), std::invalid_argument);
  const std::vector<std::string> softmax{"softmax"};
  EXPECT_EQ(c_table_bytes(c_kernels(softmax, kernels::Rounding::kFixedTwice)), 4 * 7);
}

TEST(CProgramText, PacksWeightsAndStoresThemOnce) {
  const auto bytes = [](int bits) {
    Rng rng(3);
    const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(bits));
    return c_program(trace(*model, testing::images(1, 9), "net").graph).size.constant_bytes;
  };
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  std::int64_t weights = 0;
  for (const Node& node : trace(*model, testing::images(1, 9), "net").graph.nodes) {
    if (node.weights) weights += node.weights->weight.size();
  }
  const auto saved = [&](int bits) { return static_cast<double>(bytes(8) - bytes(bits)); };
  EXPECT_NEAR(saved(4), static_cast<double>(weights) / 2, 16);
  EXPECT_NEAR(saved(2), static_cast<double>(weights) * 3 / 4, 16);
  EXPECT_EQ(bytes(6), bytes(8));
}

// One output's weights are unpacked at a time: nine codes lie in up to six bytes of two.
TEST(CProgramText, PlansMemoryForUnpackedWeights) {
  const auto arena = [](int bits) {
    Rng rng(3);
    const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(bits));
    return c_program(trace(*model, testing::images(1, 9), "net").graph).size.arena_bytes;
  };
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  std::int64_t largest = 0;
  for (const Node& node : trace(*model, testing::images(1, 9), "net").graph.nodes) {
    if (node.weights)
      largest = std::max(largest, node.weights->weight.size() / node.weights->weight.dim(0));
  }
  EXPECT_GT(arena(4), arena(8));
  EXPECT_LE(arena(4), arena(8) + largest + 2);
  EXPECT_LE(arena(2), arena(8) + largest + 6);
}

// Bytes of images become codes without floats.
TEST(CProgramText, HasTheCodesOfBytes) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  Graph graph = trace(*model, testing::images(1, 9), "net").graph;
  EXPECT_EQ(c_program(graph).source.find("steelyard_code_of_byte"), std::string::npos);
  graph.preprocessing = {DType::kU8, {{0.1F, 0.2F, 0.3F}, {0.5F, 0.6F, 0.7F}}};
  graph.class_names = {"a", "b */", "\u00e4?\""};
  const CProgram program = c_program(graph);
  EXPECT_THAT(program.header, HasSubstr("#define STEELYARD_BYTE_TABLES 3\n"));
  EXPECT_THAT(program.header,
              HasSubstr(R"(/* The classes or characters: ["a","b \u002a/","\u00e4\u003f\""] */)"));
  const Tensor bytes = Tensor::empty({1, 9, 8, 3}, DType::kU8);
  for (std::int64_t i = 0; i < bytes.size(); ++i) {
    bytes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i / 3 * 37 % 256);
  }
  const Tensor codes = Interpreter(graph).run_all(
      normalized(bytes, graph.preprocessing.normalization))[input_codes(graph)];
  const std::string table = program.source.substr(program.source.find("steelyard_code_of_byte"));
  std::vector<int> entries;
  std::size_t at = table.find("= {") + 3;
  while (entries.size() < 3U * 256U) {
    at = table.find_first_of("-0123456789", at);
    std::size_t length = 0;
    entries.push_back(std::stoi(table.substr(at, 8), &length));
    at += length;
  }
  for (std::int64_t i = 0; i < codes.size(); ++i) {
    const auto entry = static_cast<std::size_t>(i % 3 * 256 + bytes.data<std::uint8_t>()[i]);
    ASSERT_EQ(entries[entry], codes.data<std::int8_t>()[i]) << i;
  }
}

constexpr int kColours = 8;

// The classes that the interpreter gives images of one colour: the bits of 1 to 8 say which
// channels are 255.
std::vector<int> classes_of_colours(const Graph& graph) {
  std::vector<int> classes;
  for (int colour = 1; colour <= kColours; ++colour) {
    const Tensor bytes = Tensor::empty({1, 9, 8, 3}, DType::kU8);
    for (std::int64_t i = 0; i < bytes.size(); ++i) {
      bytes.data<std::uint8_t>()[i] = (colour >> (i % 3)) % 2 != 0 ? 255 : 0;
    }
    const Tensor scores = Interpreter(graph).run_raw(bytes);
    const auto first = scores.span<float>().begin();
    classes.push_back(
        static_cast<int>(std::max_element(first, scores.span<float>().end()) - first));
  }
  return classes;
}

TEST(CProgramText, ThePagesExampleClassifies) {
  Graph graph;
  std::vector<int> expected;
  // The first network that does not give one class to all.
  for (unsigned seed = 3; std::set<int>(expected.begin(), expected.end()).size() < 2; ++seed) {
    ASSERT_LT(seed, 40U);
    Rng rng(seed);
    const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
    graph = trace(*model, testing::images(1, 9), "net").graph;
    graph.preprocessing = {DType::kU8, {{0.1F, 0.2F, 0.3F}, {0.5F, 0.6F, 0.7F}}};
    expected = classes_of_colours(graph);
  }
  const TemporaryFolder folder;
  write_c_program(folder.path() / "model.h", graph);
  const std::string page = read_file(STEELYARD_MICROCONTROLLERS_PAGE, 1 << 20);
  const std::size_t example = page.find("```c\n") + 5;
  std::ofstream(folder.path() / "classify.c")
      << page.substr(example, page.find("```", example) - example)
      << "int main(int argc, char **argv) {\n  uint8_t image[STEELYARD_INPUT_SIZE];\n"
         "  for (int i = 0; i < STEELYARD_INPUT_SIZE; ++i) image[i] = (argc >> (i % 3)) % 2 ? 255 "
         ": 0;\n"
         "  (void)argv;\n  return classify(image);\n}\n";
  const std::string at = folder.path().string();
  compile(folder.path(), at + "/classify.c");
  std::string arguments;
  for (int colour = 1; colour <= kColours; ++colour) {
    EXPECT_EQ(WEXITSTATUS(shell_of(at + "/run" + arguments)),
              expected[static_cast<std::size_t>(colour - 1)])
        << colour;
    arguments += " x";
  }
}

// An LSTM keeps a cell of two bytes for each unit, and unpacks a row of weights.
TEST(CProgramText, PlansMemoryForCells) {
  const auto arena = [](int bits) {
    Rng rng(3);
    const auto model = testing::quantized_model(testing::fixed_lstm_net(rng), testing::tflm(bits));
    return c_program(trace(*model, testing::images(1, 9), "net").graph).size.arena_bytes;
  };
  EXPECT_EQ(arena(8), 9 * 24 + 9 * 7 + 2 * 7);
  EXPECT_EQ(arena(4), arena(8) + 24);
}

TEST(CProgramText, RefusesWhatItHasNoFormOf) {
  const testing::RandomGraph floats(1, DType::kI8);
  EXPECT_THAT(testing::message_of<std::invalid_argument>([&] { c_program(floats.graph()); }),
              HasSubstr("its codes are rounded as floats: a C program needs a model trained with "
                        "export.profile tflm"));
  // A bias so large that sums of codes without their zero points overflow.
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  Graph large = trace(*model, testing::images(1, 9), "net").graph;
  for (Node& node : large.nodes) {
    if (!node.weights) continue;
    const std::int64_t outputs = node.weights->weight.dim(0);
    node.weights->bias =
        Tensor::from(std::vector<std::int32_t>(static_cast<std::size_t>(outputs), 0), {outputs});
    std::int64_t most = 0;
    const std::int64_t terms = node.weights->weight.size() / outputs;
    for (std::int64_t i = 0; i < terms; ++i) {
      most += std::abs(int{node.weights->weight.data<std::int8_t>()[i]});
    }
    const Quantization& q = *large.values[node.inputs[0]].quantization;
    const int reach = std::max(127 - q.zero_point, q.zero_point + 128);
    node.weights->bias.data<std::int32_t>()[0] =
        static_cast<std::int32_t>(INT32_MAX - reach * most);
    break;
  }
  EXPECT_THAT(testing::message_of<std::invalid_argument>([&] { c_program(large); }),
              HasSubstr("its sums can overflow int32 in C"));
}

TEST(CProgramText, IncludesItsHeaderByName) {
  Rng rng(3);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  const Graph graph = trace(*model, testing::images(1, 9), "net").graph;
  const TemporaryFolder folder;
  const auto paths = write_c_program(folder.path() / "words.h", graph);
  ASSERT_EQ(paths.size(), 3U);
  EXPECT_EQ(paths[2].filename(), "words_test.c");
  for (std::size_t i = 1; i < paths.size(); ++i) {
    EXPECT_THAT(read_file(paths[i], 1 << 20), HasSubstr("#include \"words.h\"\n"));
  }
  EXPECT_THAT(
      testing::message_of<InputError>([&] { write_c_program(folder.path() / "a\"b.h", graph); }),
      HasSubstr("a\"b.h: expected a name that #include can have in quotes"));
}

// --- several files, several models

Graph residual_graph(unsigned seed) {
  Rng rng(seed);
  const auto model = testing::quantized_model(testing::residual_net(rng), testing::tflm(8));
  return trace(*model, testing::images(1, 9), "net").graph;
}

// Whether `text`, beside what is in the folder, is a program in C++ of 2011.
bool compiles(const std::filesystem::path& folder, const std::string& text) {
  std::ofstream(folder / "both.cpp") << text;
  return shell_of(std::string(STEELYARD_C_COMPILER) +
                  " -x c++ -std=c++11 -pedantic-errors -Wall -Werror -fsyntax-only " +
                  (folder / "both.cpp").string() + " 2> " + (folder / "said").string()) == 0;
}

TEST(CProgramFiles, OfTwoModelsHaveTheirOwnNames) {
  const TemporaryFolder folder;
  const auto& at = folder.path();
  write_c_program(at / "first.h", residual_graph(3));
  write_c_program(at / "second.h", residual_graph(4));
  const std::string use = "#include \"first.h\"\n#include \"first.h\"\n#include \"second.h\"\n";
  EXPECT_TRUE(compiles(at, "#include \"first.h\"\nfloat scale = STEELYARD_INPUT_SCALE;\n"))
      << read_file(at / "said", 10000);
  EXPECT_FALSE(compiles(at, use));
  EXPECT_THAT(read_file(at / "said", 10000), HasSubstr("--prefix"));
  write_c_program(at / "second.h", residual_graph(4), {}, "second2_net");
  EXPECT_TRUE(compiles(at, use + "int bytes = STEELYARD_ARENA_BYTES + SECOND2_NET_ARENA_BYTES;\n"
                                 "void (*runs[2])(int8_t *) = {steelyard_run, second2_net_run};\n"))
      << read_file(at / "said", 10000);
  std::filesystem::rename(at / "second.c", at / "model.c");
  compile(at, at.string() + "/second_test.c");
  EXPECT_EQ(shell_of(at.string() + "/run > " + at.string() + "/out"), 0);
  for (const char* bad : {"Net", "2net", "a-b", "_a"}) {
    EXPECT_THROW(write_c_program(at / "second.h", residual_graph(4), {}, bad),
                 std::invalid_argument);
  }
}

TEST(CProgramFiles, OfTwoExportsDoNotCompileTogether) {
  const TemporaryFolder folder;
  const auto& at = folder.path();
  write_c_program(at / "model.h", residual_graph(3));
  const std::string header = read_file(at / "model.h", 1 << 20);
  write_c_program(at / "model.h", residual_graph(4));
  const auto compiled = [&] {
    return shell_of(std::string(STEELYARD_C_COMPILER) + " -std=c99 -c " +
                    (at / "model.c").string() + " -o " + (at / "o").string() + " 2> " +
                    (at / "said").string()) == 0;
  };
  EXPECT_TRUE(compiled());
  std::ofstream(at / "model.h") << header;  // as if the export had been interrupted
  EXPECT_FALSE(compiled());
  EXPECT_THAT(read_file(at / "said", 10000), HasSubstr("not of one export"));
}

// --- arena

TEST(ArenaPlan, KeepsBuffersApartAndReusesMemory) {
  std::mt19937 random(1);
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  double used = 0, needed = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBuffer> buffers;
    for (std::int64_t i = pick(1, 30); i > 0; --i) {
      const std::int64_t first = pick(0, 20);
      buffers.push_back({pick(0, 1000), first, first + pick(0, 4)});
    }
    const Arena arena = plan_arena(buffers);
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      ASSERT_GE(arena.offsets[a], 0);
      ASSERT_LE(arena.offsets[a] + buffers[a].bytes, arena.bytes);
      for (std::size_t b = 0; b < a; ++b) {
        const bool together =
            buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
        const bool apart = arena.offsets[a] + buffers[a].bytes <= arena.offsets[b] ||
                           arena.offsets[b] + buffers[b].bytes <= arena.offsets[a];
        ASSERT_TRUE(!together || apart);
      }
    }
    ASSERT_GE(arena.bytes, most_live_bytes(buffers));
    used += static_cast<double>(arena.bytes);
    needed += static_cast<double>(most_live_bytes(buffers));
  }
  EXPECT_LT(used, 1.05 * needed);
  // A chain needs the two largest neighbours.
  const std::vector<ArenaBuffer> chain{{100, -1, 0}, {300, 0, 1}, {200, 1, 2}, {10, 2, 3}};
  EXPECT_EQ(plan_arena(chain).bytes, 500);
  EXPECT_EQ(plan_arena({}).bytes, 0);
}

}  // namespace
}  // namespace steelyard::deploy
