#include "steelyard/framework/data/cifar.h"

#include <gtest/gtest.h>

#include <string>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

char pixel(int record, int channel, int y, int x) {
  return static_cast<char>(record * 7 + channel * 31 + y * 32 + x);
}

// Records numbered from `first`, each with its number as label, behind another one of CIFAR-100.
std::string records(int first, int count, const std::string& before = "") {
  std::string bytes;
  for (int r = first; r < first + count; ++r) {
    bytes += before;
    bytes += static_cast<char>(r);
    for (int c = 0; c < 3; ++c) {
      for (int y = 0; y < 32; ++y) {
        for (int x = 0; x < 32; ++x) bytes += pixel(r, c, y, x);
      }
    }
  }
  return bytes;
}

class Cifar10 : public ::testing::Test {
 protected:
  Cifar10() {
    write_bytes(folder_ / "data_batch_2.bin", records(2, 1));
    write_bytes(folder_ / "data_batch_1.bin", records(0, 2));
    write_bytes(folder_ / "test_batch.bin", records(9, 1));
    write_bytes(folder_ / "readme.html", "not a batch");
  }
  std::string error() {
    return message_of<InputError>([&] { load_cifar10({.path = folder_.path()}); });
  }
  // Three records from number `first` on.
  static void expect_records(const Dataset& dataset, int first) {
    const Tensor inputs = load_samples(dataset).inputs;
    ASSERT_EQ(inputs.shape(), (Shape{3, 32, 32, 3}));
    const auto* pixels = inputs.data<std::uint8_t>();
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(dataset.targets.span<std::int64_t>()[static_cast<std::size_t>(r)], first + r);
      for (int y = 0; y < 32; ++y) {
        for (int x = 0; x < 32; ++x) {
          for (int c = 0; c < 3; ++c) {
            ASSERT_EQ(*pixels++, static_cast<std::uint8_t>(pixel(first + r, c, y, x)));
          }
        }
      }
    }
  }
  TemporaryFolder folder_;
};

TEST_F(Cifar10, PlanesBecomeInterleavedChannels) {
  const DatasetSplits splits = load_cifar10({.path = folder_.path()});
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.train.classes, 10);
  expect_records(splits.train, 0);
  EXPECT_EQ(splits.train.source->name(2), (folder_ / "data_batch_2.bin").string() + ": sample 0");
}

TEST_F(Cifar10, OfOneHundredClassesHasTwoLabels) {
  write_bytes(folder_ / "train.bin", records(97, 3, "\x13"));
  write_bytes(folder_ / "test.bin", records(5, 1, "\x13"));
  const DatasetSplits splits = load_cifar100({.path = folder_.path()});
  EXPECT_EQ(splits.train.classes, 100);
  EXPECT_EQ(splits.test.targets.span<std::int64_t>()[0], 5);
  expect_records(splits.train, 97);
  write_bytes(folder_ / "train.bin", records(100, 1, "\x13"));
  EXPECT_NE(message_of<InputError>([&] {
              load_cifar100({.path = folder_.path()});
            }).find("train.bin: offset 1: expected a label below 100, got 100"),
            std::string::npos);
}

TEST_F(Cifar10, ATestSetThatIsNotThereIsSetAside) {
  DatasetRequest request{.name = "cifar10", .path = folder_.path(), .test_samples = 1};
  const auto load = [&] { return builtin_datasets().load(request); };
  EXPECT_NE(message_of<InputError>(load).find("data.test: the dataset has a test set of its own"),
            std::string::npos);
  std::filesystem::remove(folder_ / "test_batch.bin");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 2);
  ASSERT_EQ(splits.train.names.classes.size(), 10U);
  EXPECT_EQ(splits.train.names.classes[9], "truck");
  ASSERT_EQ(splits.test.size(), 1);
  request.parts = DatasetParts::kTest;
  EXPECT_EQ(load().test.source->name(0), splits.test.source->name(0));
  request.name = "cifar100";
  write_bytes(folder_ / "train.bin", records(97, 3, "\x13"));
  EXPECT_EQ(load().test.size(), 1);
  ASSERT_EQ(load().test.names.classes.size(), 100U);
  EXPECT_EQ(load().test.names.classes[99], "worm");
}

TEST_F(Cifar10, RejectsPartialRecords) {
  write_bytes(folder_ / "data_batch_2.bin", records(2, 1) + "x");
  EXPECT_NE(error().find("data_batch_2.bin: expected records of 3073 bytes, got 3074 bytes"),
            std::string::npos);
  write_bytes(folder_ / "data_batch_2.bin", "");
  EXPECT_NE(error().find("got 0 bytes"), std::string::npos);
}

TEST_F(Cifar10, RejectsLabelsAboveNine) {
  write_bytes(folder_ / "data_batch_1.bin", records(9, 2));
  EXPECT_NE(error().find("data_batch_1.bin: offset 3073: expected a label below 10, got 10"),
            std::string::npos);
}

TEST_F(Cifar10, RejectsMissingFiles) {
  std::filesystem::rename(folder_ / "data_batch_2.bin", folder_ / "data_batch_3.bin");
  EXPECT_NE(error().find("expected data_batch_2.bin among 2 batches"), std::string::npos);
  std::filesystem::rename(folder_ / "data_batch_3.bin", folder_ / "data_batch_2.bin");
  std::filesystem::remove(folder_ / "test_batch.bin");
  EXPECT_NE(error().find("test_batch.bin: not found: expected the test set (or data.test, which"),
            std::string::npos);
  std::filesystem::remove(folder_ / "data_batch_1.bin");
  std::filesystem::remove(folder_ / "data_batch_2.bin");
  EXPECT_NE(error().find("data_batch_*.bin: not found"), std::string::npos);
}

}  // namespace
}  // namespace steelyard
