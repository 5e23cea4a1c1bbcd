// Which value of a file becomes the output of the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

TEST(Outputs, OneOfSeveralOutputsIsChosen) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string scores = m.node("Sigmoid", {m.node("Relu", {"x"})});
  m.ending_in(scores);
  m.model().outputs.push_back({"Relu_0:0", "float"});
  OnnxModel model = m.model();
  choose_output(model, "Relu_0:0");
  EXPECT_THAT(types_of(translate(model, {3})), ElementsAre("ReLU"));
  EXPECT_EQ(message_of<InputError>([&] { choose_output(model, "none"); }),
            "test.onnx: no output and no value inside is called 'none'; the outputs are Relu_0:0");
}

// What has no form here can stand behind it.
TEST(Outputs, OneOfAValueInsideCutsOffWhatIsBehind) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string scores = m.node("Sigmoid", {m.node("Relu", {"x"})});
  OnnxModel model = m.ending_in(m.node("ArgMax", {scores}));
  choose_output(model, scores);
  const Imported imported = translate(model, {3});
  EXPECT_THAT(types_of(imported), ElementsAre("ReLU"));
  EXPECT_EQ(imported.graph.head, "Sigmoid");
  EXPECT_EQ(imported.graph.output.name, scores);
}

}  // namespace
}  // namespace steelyard::imports
