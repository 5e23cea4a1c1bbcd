// Networks computed call by call, as C programs, beside the interpreter's codes of whole windows.
#include "steelyard/export/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/export/stream_windows.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/export/c_program_support.h"
#include "tests/export/export_support.h"
#include "tests/export/keyword_net.h"
#include "tests/export/operation_graph.h"
#include "tests/export/stream_graph.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using ::testing::AnyOf;
using testing::compile;
using ::testing::HasSubstr;
using testing::shell_of;
using testing::TemporaryFolder;
using testing::text_of;

constexpr int kStreams = 24;

TEST(Streams, GiveTheCodesOfEveryWindow) {
  std::int64_t compared = 0, stateful = 0, refused = 0;
  int streams = 0;
  for (unsigned seed = 0; streams < kStreams; ++seed) {
    ASSERT_LT(seed, 4U * kStreams);
    const auto rounding =
        seed % 3 == 0 ? kernels::Rounding::kFixedOnce : kernels::Rounding::kFixedTwice;
    const testing::StreamGraph random(seed, rounding);
    const Graph& whole = random.graph();
    std::optional<Stream> stream;
    try {
      stream = stream_of(whole, random.options());
    } catch (const InputError& error) {
      ++refused;
      EXPECT_THAT(error.what(),
                  AnyOf(HasSubstr("computes from padding"), HasSubstr("does not divide")))
          << seed;
      continue;
    }
    ++streams;
    const Tensor codes = noise_of_calls(*stream, stream->window_calls() + 20, seed);
    const Tensor expected = stream_outputs(*stream, whole, codes);
    ASSERT_EQ(testing::run_program(whole, codes, random.options()), text_of(expected))
        << "seed " << seed;
    compared += expected.size();
    stateful += stream->histories.empty() ? 0 : 1;
  }
  EXPECT_GT(compared, 3000);
  EXPECT_GT(stateful, kStreams * 2 / 3);
  EXPECT_LT(refused, kStreams);
}

Graph keyword_stream(int bits) { return testing::keyword_graph(bits, qat::Profile::kTflm, {0, 0}); }

TEST(Streams, ACallComputesItsFramesAlone) {
  const Graph whole = keyword_stream(8);
  const Stream stream = stream_of(whole, {.frames = 2});
  // 49 frames become 20, then 18, 16, 14 and 12, whose mean is classified.
  std::vector<std::int64_t> computed, kept;
  for (const Node& node : stream.graph.nodes) {
    const Shape& shape = stream.graph.values[node.output].shape;
    if (shape.size() < 3) continue;
    (stream.makes_history(node) ? kept : computed).push_back(shape[0]);
  }
  EXPECT_THAT(kept, ::testing::ElementsAre(11, 3, 3, 3, 3, 12));
  EXPECT_THAT(computed, ::testing::ElementsAre(2, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  const CProgramSize size = c_program(whole, StreamOptions{.frames = 2}).size;
  EXPECT_EQ(size.state_bytes, 11 * 10 + (4 * 3 + 12) * 5 * 64);
  EXPECT_LT(size.arena_bytes, size.state_bytes + 2 * 5 * 64 + 200);
}

TEST(Streams, ProgramsPassTheirOwnTests) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  write_c_program(folder.path() / "model.h", keyword_stream(4), StreamOptions{.frames = 4});
  compile(folder.path(), at + "/model_test.c");
  EXPECT_EQ(shell_of(at + "/run > " + at + "/out"), 0);
  EXPECT_THAT(read_file(folder.path() / "out", 100), HasSubstr("0 of 192 codes differ"));
  // One that forgets a frame fails.
  std::string source = read_file(folder.path() / "model.c", 1 << 24);
  const std::string kept = "i < n->kept;";
  source.replace(source.find(kept), kept.size(), "i < (n->kept / 2);");
  std::ofstream(folder.path() / "model.c") << source;
  compile(folder.path(), at + "/model_test.c");
  EXPECT_EQ(shell_of(at + "/run > " + at + "/out"), 256);
}

// A letter for each call: the class of the highest score.
std::string letters_of(const Tensor& scores) {
  std::string letters;
  const std::int8_t* row = scores.data<std::int8_t>();
  for (std::int64_t call = 0; call < scores.dim(0); ++call, row += scores.dim(1)) {
    const auto best = std::max_element(row, row + scores.dim(1)) - row;
    letters += static_cast<char>('a' + best);
  }
  return letters;
}

TEST(Streams, ThePagesExampleHears) {
  Graph whole;
  StreamOptions options;
  Tensor codes;
  std::string expected;
  // The first network that does not give one class to all.
  for (unsigned seed = 0; std::set<char>(expected.begin(), expected.end()).size() < 2; ++seed) {
    ASSERT_LT(seed, 60U);
    const testing::StreamGraph random(seed, kernels::Rounding::kFixedTwice);
    whole = random.graph();
    options = random.options();
    if (whole.values[whole.output].shape.size() != 1 || !random.is_stream()) continue;
    const Stream stream = stream_of(whole, options);
    codes = noise_of_calls(stream, 60, seed);
    expected = letters_of(stream_outputs(stream, whole, codes));
  }
  const TemporaryFolder folder;
  write_c_program(folder.path() / "model.h", whole, options);
  const std::string page = read_file(STEELYARD_MICROCONTROLLERS_PAGE, 1 << 20);
  const std::size_t example = page.rfind("```c\n", page.find("void begin(void)")) + 5;
  std::ofstream(folder.path() / "hear.c")
      << "#include <stdio.h>\n"
      << page.substr(example, page.find("```", example) - example)
      << "int main(void) {\n  int8_t frames[STEELYARD_INPUT_SIZE];\n  begin();\n"
         "  while (fread(frames, 1, sizeof(frames), stdin) == sizeof(frames)) putchar('a' + "
         "hear(frames));\n"
         "  return 0;\n}\n";
  const std::string at = folder.path().string();
  compile(folder.path(), at + "/hear.c");
  std::ofstream(folder.path() / "in", std::ios::binary) << text_of(codes);
  EXPECT_EQ(shell_of(at + "/run < " + at + "/in > " + at + "/out"), 0);
  EXPECT_EQ(read_file(folder.path() / "out", 1000), expected);
}

TEST(Streams, NameTheLayerThatHasNone) {
  const auto refusal = [](const Graph& graph, const StreamOptions& options) {
    return testing::message_of<InputError>([&] { stream_of(graph, options); });
  };
  const Graph whole = keyword_stream(8);
  EXPECT_THAT(refusal(testing::keyword_graph(8), {.frames = 2}),
              HasSubstr("export.stream: layer 'average': it reads what layer 'conv' computes from "
                        "padding where the window ends: in a stream, frames are there"));
  EXPECT_THAT(
      refusal(whole, {.frames = 3}),
      HasSubstr("export.stream: layer 'conv': its stride of 2 along time does not divide the "
                "3 frames that a call adds to its input: export.stream.frames is expected to be a "
                "multiple of 2"));
  EXPECT_THAT(
      refusal(whole, {.frames = 49}),
      HasSubstr("export.stream.frames: expected 1 or more, and less than the 49 frames of a "
                "window, got 49"));
  EXPECT_THAT(refusal(whole, {.frames = 1, .axis = 3}), HasSubstr("export.stream.axis"));
  const testing::OperationGraph lstm("lstm", 1, kernels::Rounding::kFixedTwice);
  EXPECT_THAT(refusal(lstm.graph(), {.frames = 1}),
              HasSubstr("its state depends on where a window begins, which in a stream moves"));
  // The coefficients of a frame are no time.
  EXPECT_THAT(refusal(whole, {.frames = 2, .axis = 1}), HasSubstr("from padding"));
}

}  // namespace
}  // namespace steelyard::deploy
