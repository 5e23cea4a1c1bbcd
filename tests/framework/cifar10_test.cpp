#include "steelyard/framework/data/cifar10.h"

#include <gtest/gtest.h>

#include <string>

#include "steelyard/framework/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

char pixel(int record, int channel, int y, int x) {
  return static_cast<char>(record * 7 + channel * 31 + y * 32 + x);
}

// Records numbered from `first`, each with its number as label.
std::string records(int first, int count) {
  std::string bytes;
  for (int r = first; r < first + count; ++r) {
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
    return message_of<InputError>([&] { load_cifar10(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(Cifar10, PlanesBecomeInterleavedChannels) {
  const DatasetSplits splits = load_cifar10(folder_.path());
  EXPECT_EQ(splits.train.inputs.shape(), (Shape{3, 32, 32, 3}));
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.train.classes, 10);
  const auto pixels = splits.train.inputs.span<std::uint8_t>();
  std::size_t i = 0;
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(splits.train.targets.span<std::int64_t>()[static_cast<std::size_t>(r)], r);
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) {
        for (int c = 0; c < 3; ++c) {
          ASSERT_EQ(pixels[i++], static_cast<std::uint8_t>(pixel(r, c, y, x)));
        }
      }
    }
  }
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
  std::filesystem::remove(folder_ / "test_batch.bin");
  EXPECT_NE(error().find("test_batch.bin: cannot open"), std::string::npos);
  std::filesystem::remove(folder_ / "data_batch_1.bin");
  std::filesystem::remove(folder_ / "data_batch_2.bin");
  EXPECT_NE(error().find("data_batch_*.bin: not found"), std::string::npos);
}

}  // namespace
}  // namespace steelyard
