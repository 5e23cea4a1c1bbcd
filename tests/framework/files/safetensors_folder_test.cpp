#include "steelyard/framework/files/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

class SafetensorsFolders : public ::testing::Test {
 protected:
  void add(const char* file, const char* tensor, float value) {
    write_safetensors(folder_ / file,
                      {{{tensor, Tensor::from(std::vector<float>{value}, {1})}}, {}});
  }
  void index(const std::string& text) {
    write_bytes(folder_ / "model.safetensors.index.json", text);
  }
  std::string error() {
    return message_of<InputError>([&] { const SafetensorsFolder read(folder_.path()); });
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolders, HaveTheTensorsOfAllFiles) {
  EXPECT_THAT(error(), ::testing::HasSubstr("expected model.safetensors or "
                                            "model.safetensors.index.json in this folder"));
  add("a.safetensors", "x", 1);
  add("b.safetensors", "y", 2);
  index(R"({"metadata": {}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  const SafetensorsFolder folder(folder_.path());
  EXPECT_EQ(folder.tensors(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(folder.read("y").span<float>()[0], 2);
  EXPECT_EQ(folder.find("z"), nullptr);
  EXPECT_EQ(folder.files().size(), 2U);
  add("model.safetensors", "z", 3);  // comes first
  EXPECT_EQ(SafetensorsFolder(folder_.path()).tensors(), std::vector<std::string>{"z"});
}

TEST_F(SafetensorsFolders, AreRefusedWhereTheIndexIsWrong) {
  add("a.safetensors", "x", 1);
  add("b.safetensors", "x", 2);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", ".json:1:2: is no JSON: unexpected end of input"},
      {"[]", "expected an object 'weight_map' of tensors and their files"},
      {R"({"weight_map": {"x": 1}})", "'x': expected the name of a file in the folder, got 1"},
      {R"({"weight_map": {"x": "../a.safetensors"}})", "expected the name of a file in the folder"},
      {R"({"weight_map": {"x": "c.safetensors"}})", "c.safetensors: "},
      {R"({"weight_map": {"y": "a.safetensors"}})",
       "expected a tensor 'y' in a.safetensors, which has none of this name"},
      {R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})",
       "b.safetensors: tensor 'x': "}};
  for (const auto& [text, message] : cases) {
    index(text);
    EXPECT_THAT(error(), ::testing::HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace steelyard
