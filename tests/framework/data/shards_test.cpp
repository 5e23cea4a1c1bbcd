// Archives of samples.
#include "steelyard/framework/data/shards/shard_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "tests/framework/data/image_files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

// A file's block of 512 bytes and its content, filled up.
std::string member(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  header.replace(124, 11, size);
  header[156] = '0';
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 7, std::string(digits, 7));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

class Shards : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << bytes;
  }
  DatasetSplits load() const { return load_shards({.name = "shards", .path = folder_.path()}); }
  std::string error() const {
    return message_of<InputError>([&] { load(); });
  }
  const std::filesystem::path& folder_path() const { return folder_.path(); }
  static std::string sample(const std::string& key, const std::string& label) {
    return member(key + ".bmp", bmp()) + member(key + ".cls", label);
  }
  static std::string bmp() { return testing::bmp_file(1, 1, 24, "", std::string(4, '\0')); }

 private:
  const testing::TemporaryFolder folder_;
};

TEST_F(Shards, HiddenFilesAreLeftOutAndExtensionsMayBeUpperCase) {
  write("train-0.tar", member("._a.bmp", "?") + member("A.BMP", bmp()) + member("A.CLS", "rose\n") +
                           member(".DS_Store", "") + sample("d/b", "lily") + kEnd);
  write("test-0.tar", sample("c", "rose") + kEnd);
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_THAT(splits.train.names.classes, ElementsAre("lily", "rose"));
  EXPECT_EQ(splits.train.targets.data<std::int64_t>()[0], 1);
}

TEST_F(Shards, NoArchiveIsPassedOver) {
  write("train-0.tar", sample("a", "rose") + kEnd);
  write("train-1.TAR", sample("b", "lily") + kEnd);
  write("train-1.tar.idx", "an index");
  write("test.tar", sample("c", "rose") + kEnd);
  EXPECT_EQ(load().train.size(), 2);
  write("train-2.Tar.gz", "?");
  EXPECT_THAT(error(), HasSubstr("train-2.Tar.gz: expected an archive without compression"));
}

TEST_F(Shards, OtherFilesOfASampleArePassedOver) {
  write("train.tar", member("a.json", "{}") + member("a.cls", "rose") + member("a.bmp", bmp()) +
                         member("a.mask.bmp", "?") + sample("b", "lily") + member("b.txt", "x") +
                         kEnd);
  write("test.tar", sample("c", "rose") + kEnd);
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_THAT(splits.train.names.classes, ElementsAre("lily", "rose"));
  EXPECT_THAT(splits.train.source->name(0), HasSubstr("train.tar: a.bmp"));
}

TEST_F(Shards, AClassThatTrainingLacksIsNamedWithItsFile) {
  write("train-0.tar", sample("a", "rose") + kEnd);
  write("test-0.tar", sample("b", "rose") + kEnd);
  write("test-1.tar", sample("c", "rose") + sample("d", "tulip") + kEnd);
  EXPECT_THAT(error(), HasSubstr("test-1.tar: d.bmp: the training set has no class 'tulip'"));
}

TEST_F(Shards, WhatIsRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {sample("a", "x") + kEnd + sample("b", "x") + kEnd, "were two archives joined?"},
      {"\x1f\x8b\x08" + std::string(600, 'x'), "byte 0: not the header of a file (it looks like"},
      {"\x1f\x8b\x08" + std::string(60, 'x'), "byte 0: its end is missing (it looks like"},
      {member("a.bmp", bmp()) + member("b.cls", "x") + kEnd,
       "train.tar: a: expected a text a.cls, got a.bmp"},
      {member("a.cls", "x") + member("a.json", "{}") + kEnd,
       "a: expected an image a.jpg or the like, got a.cls, a.json"},
      {sample("a", "x") + member("a.png", "?") + kEnd,
       "a: expected an image a.jpg or the like, got both a.bmp and a.png"},
      {sample("a", "x") + member("a.cls", "y") + kEnd, "got both a.cls and a.cls"},
      {sample("a", "cat\ndog\n") + kEnd, "a.cls: expected the name of a class, got several lines"},
      {sample("a", "x"), "its end is missing"},
      {sample("a", "\xff") + kEnd, "is not UTF-8"},
      {sample("a", "x").substr(0, 540), "a file that the archive cuts off"},
  };
  for (const auto& [bytes, expected] : cases) {
    write("train.tar", bytes);
    EXPECT_THAT(error(), HasSubstr(expected));
  }
}

TEST_F(Shards, SamplesWithoutLabels) {
  write("train-0.tar",
        member("a.bmp", bmp()) + member("a.json", "{}") + sample("b", "rose") + kEnd);
  write("test-0.tar", member("c.bmp", bmp()) + kEnd);
  const DatasetSplits splits =
      load_shards({.name = "shards", .path = folder_path(), .labels = false});
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.train.targets.shape(), (Shape{2, 0}));
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_THAT(error(), HasSubstr("a text a.cls"));
}

}  // namespace
}  // namespace steelyard
