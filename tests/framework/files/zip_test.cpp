// Zip archives: what is unpacked, and what is refused.
#include "steelyard/framework/files/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zip_files.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::npy;
using testing::zip_archive;
using testing::ZippedFile;

ZippedFile packed(const std::string& name, const std::string& data) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, data.size()), '\0');
  std::string copy = data;
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return {name, bytes, 8, data.size(), testing::crc32_of(data)};
}

class Zip : public ::testing::Test {
 protected:
  ZipFile archive(const std::string& bytes, std::uint64_t most_unpacked = 1 << 20) {
    testing::write_bytes(path_, bytes);
    return {std::make_shared<const InputFile>(path_), most_unpacked};
  }
  static std::string all(ZipFile& zip, const std::string& name) {
    const auto range = zip.open(name);
    std::string bytes(range->size(), '\0');
    range->read(0, bytes.data(), bytes.size());
    return bytes;
  }
  std::string error(const std::string& bytes) {
    return message_of<InputError>([&] { archive(bytes); });
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "a.zip";
};

TEST_F(Zip, StoredAndPackedFiles) {
  const std::string text = std::string(500, 'x') + "y";
  ZipFile zip = archive(zip_archive({{"stored", "abc"}, packed("packed", text), {"empty", ""}}));
  EXPECT_THAT(zip.names(), ElementsAre("empty", "packed", "stored"));
  EXPECT_EQ(zip.size("packed"), text.size());
  EXPECT_EQ(all(zip, "stored"), "abc");
  EXPECT_EQ(all(zip, "packed"), text);
  EXPECT_EQ(all(zip, "empty"), "");
  EXPECT_EQ(zip.open("packed"), zip.open("packed")) << "unpacked once";
}

TEST_F(Zip, ABombIsRefusedBeforeItIsUnpacked) {
  const std::string bytes = zip_archive(
      {packed("a", std::string(1 << 20, '\0')), packed("b", std::string(1 << 20, '\0'))});
  EXPECT_LT(bytes.size(), 4000U);
  ZipFile zip = archive(bytes, (1 << 21) - 1);
  EXPECT_EQ(all(zip, "a").size(), std::size_t{1} << 20);
  EXPECT_THAT(message_of<InputError>([&] { zip.open("b"); }),
              HasSubstr("b takes 1048576 bytes unpacked, expected at most 1048575 more"));
  ZippedFile claim = packed("a", "x");
  claim.size = 1 << 20;
  EXPECT_THAT(error(zip_archive({claim})), HasSubstr("are said to hold 1048576"));
  claim.size = 1000;
  ZipFile less = archive(zip_archive({claim}));
  EXPECT_THAT(message_of<InputError>([&] { less.open("a"); }), HasSubstr("a is damaged"));
}

// Two entries of one file's bytes: what a list says it holds is more than what is there.
TEST_F(Zip, FilesThatOverlapAreRefused) {
  std::string bytes = zip_archive({{"first", "0123456789"}, {"other", "0123456789"}});
  const std::size_t second = bytes.rfind("PK\x01\x02");
  bytes.replace(second + 42, 4, 4, '\0');  // where it begins
  EXPECT_THAT(error(bytes), HasSubstr("a.zip: first overlaps other"));
  bytes = zip_archive({{"first", "0123456789"}});
  for (const std::size_t at : {bytes.rfind("PK\x01\x02") + 20, bytes.rfind("PK\x01\x02") + 24}) {
    bytes[at] = 11;  // its sizes
  }
  EXPECT_THAT(error(bytes), HasSubstr("a.zip: first overlaps the archive's list of files"));
}

TEST_F(Zip, ChecksumsOfStoredFilesAreLookedAt) {
  std::string bytes = zip_archive({{"a", "0123456789"}, {"b", "0123456789"}});
  bytes[bytes.find("0123")] = '9';
  ZipFile zip = archive(bytes);
  EXPECT_EQ(all(zip, "b"), "0123456789");
  EXPECT_THAT(message_of<InputError>([&] { zip.open("a"); }),
              HasSubstr("a is damaged: expected bytes with the CRC-32 2793719750, got "));
}

// What nobody asks for is neither unpacked nor looked at.
TEST_F(Zip, OnlyTheArraysOfADatasetAreOpened) {
  const std::string inputs = npy("|u1", "(2, 3)", "abcdef"), targets = npy("|u1", "(2,)", "\1\1");
  ZippedFile bomb = packed("bomb.npy", std::string(1 << 20, '\0'));
  bomb.checksum = 0;
  const std::string bytes =
      zip_archive({packed("inputs.npy", inputs), {"targets.npy", targets}, bomb});
  for (const char* name : {"train.npz", "test.npz"}) {
    testing::write_bytes(folder_ / name, bytes);
  }
  const DatasetSplits splits = builtin_datasets().load("arrays", folder_.path());
  EXPECT_EQ(load_samples(splits.train).inputs.span<std::uint8_t>()[5], 'f');
}

}  // namespace
}  // namespace steelyard
