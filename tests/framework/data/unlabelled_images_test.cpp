// Images without labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/framework/data/image_files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;

class UnlabelledImages : public ::testing::Test {
 protected:
  void write(const std::string& name) { write(name, testing::bmp_file(2, 1, 24, "", kRow)); }
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    testing::write_bytes(folder_ / name, bytes);
  }
  DatasetRequest request(const std::string& path = "", std::int64_t test = 0) const {
    DatasetRequest asked{.name = "images", .path = folder_ / path, .labels = false};
    if (test > 0) asked.test_samples = test;
    return asked;
  }
  static DatasetSplits load(const DatasetRequest& asked) {
    DatasetSplits splits = builtin_datasets().load(asked);
    for (const Dataset* dataset : {&splits.train, &splits.test}) {
      EXPECT_FALSE(has_targets(*dataset));
      EXPECT_EQ(dataset->targets.shape(), (Shape{dataset->size(), 0}));
      EXPECT_THAT(dataset->names.classes, IsEmpty());
    }
    return splits;
  }
  static std::string error(const DatasetRequest& asked) {
    return message_of<InputError>([&] { builtin_datasets().load(asked); });
  }

  const std::string kRow = std::string(8, '\x40');
  testing::TemporaryFolder folder_;
};

TEST_F(UnlabelledImages, OfAnyDepth) {
  write("a.bmp");
  write("2024/b.BMP");
  write("2024/holiday/c.bmp");
  write("2024/holiday/diary.txt");
  const DatasetSplits splits = load(request("", 1));
  EXPECT_EQ(splits.train.size() + splits.test.size(), 3);
  EXPECT_EQ(splits.train.sample_shape(), (Shape{1, 2, 3}));
  EXPECT_THAT(splits.notes, ElementsAre(HasSubstr("left out a file that is no image by its name: "
                                                  "2024/holiday/diary.txt")));
  EXPECT_THAT(error(request()), HasSubstr("there is no test set; data.test sets samples"));
  DatasetRequest transformed = request("", 1);
  transformed.transforms = ImageTransforms{.resize = {{4, 5}}, .grey = true};
  EXPECT_EQ(load(transformed).train.sample_shape(), (Shape{4, 5, 1}));
}

TEST_F(UnlabelledImages, OfTrainAndTest) {
  write("train/cat/a.bmp");
  write("train/b.bmp");
  write("train/b.cls", "cat");
  write("test/mouse/c.bmp");  // a class that training does not have
  write("left_over/d.bmp");
  const DatasetSplits splits = load(request());
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_THAT(splits.test.source->name(0), HasSubstr("test/mouse/c.bmp"));
  EXPECT_THAT(splits.notes, ElementsAre(HasSubstr("b.cls")));
  DatasetRequest test_only = request();
  test_only.parts = DatasetParts::kTest;
  std::filesystem::remove_all(folder_ / "train");
  EXPECT_EQ(builtin_datasets().load(test_only).test.size(), 1);
  EXPECT_THAT(error(request()), HasSubstr("expected images in train, beside those in test"));
  std::filesystem::create_directories(folder_ / "train");
  EXPECT_THAT(error(request()), HasSubstr("train: expected images in the folder"));
}

TEST_F(UnlabelledImages, OfTables) {
  for (const char* name : {"a.bmp", "b.bmp", "c.bmp"}) write(name);
  write("train.csv", "label,path\ncat,a.bmp\n,b.bmp\ndog,a.bmp\n");
  write("test.csv", "path\nc.bmp\n");
  const DatasetSplits splits = load(request());
  EXPECT_EQ(splits.train.size(), 3);
  EXPECT_EQ(splits.test.size(), 1);
  write("test.csv", "path\n\"\"\n");
  EXPECT_THAT(error(request()), HasSubstr("test.csv:2: expected a path"));
}

TEST_F(UnlabelledImages, OneImageIsBothSets) {
  write("a.bmp");
  const DatasetSplits splits = load(request("a.bmp"));
  EXPECT_EQ(splits.train.size(), 1);
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_THAT(splits.notes, ElementsAre(HasSubstr("the only sample is the test set too")));
}

TEST_F(UnlabelledImages, WhatIsRefused) {
  EXPECT_THAT(error(request("", 1)), HasSubstr(": expected images in the folder"));
  EXPECT_THAT(error(request("absent")),
              HasSubstr("absent: expected a folder of images, or an image, there is nothing by "
                        "that name"));
  write("a.txt", "");
  EXPECT_THAT(error(request("a.txt")),
              HasSubstr("a.txt: expected a folder of images, or an image named .jpg"));
  write("b.gif");
  EXPECT_THAT(error(request("", 1)), HasSubstr("b.gif: expected images named .jpg"));
}

}  // namespace
}  // namespace steelyard
