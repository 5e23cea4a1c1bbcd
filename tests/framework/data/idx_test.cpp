#include "steelyard/framework/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <string>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string big_endian(std::uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::string images_of(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  std::string bytes =
      big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (std::uint32_t i = 0; i < count * height * width; ++i) bytes += static_cast<char>(i * 37);
  return bytes;
}

std::string labels_of(const std::string& labels) {
  return big_endian(0x801) + big_endian(static_cast<std::uint32_t>(labels.size())) + labels;
}

void write_gzip(const std::filesystem::path& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

class IdxFile : public ::testing::Test {
 protected:
  std::string images_error(const std::string& bytes) {
    write_bytes(path_, bytes);
    return message_of<InputError>([&] { read_idx_images(path_); });
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "f";
};

TEST_F(IdxFile, ReadsPlainAndGzipAlike) {
  const std::string bytes = images_of(2, 3, 4);
  write_bytes(folder_ / "plain", bytes);
  write_gzip(folder_ / "packed", bytes);
  for (const char* name : {"plain", "packed"}) {
    const Tensor images = read_idx_images(folder_ / name);
    EXPECT_EQ(images.shape(), (Shape{2, 3, 4, 1}));
    EXPECT_EQ(images.span<std::uint8_t>()[23], static_cast<std::uint8_t>(23 * 37));
  }
  write_gzip(path_, labels_of(std::string("\x05\x00\x09", 3)));
  const Tensor labels = read_idx_labels(path_);
  EXPECT_EQ(labels.shape(), (Shape{3}));
  EXPECT_EQ(labels.span<std::int64_t>()[2], 9);
}

TEST_F(IdxFile, RejectsWrongMagicSizesAndTrailingBytes) {
  EXPECT_NE(images_error(labels_of("ab"))
                .find("it looks like IDX labels: offset 0: expected magic 2051, got 2049"),
            std::string::npos);
  EXPECT_NE(images_error(images_of(2, 3, 4) + "x").find("expected the end of the file"),
            std::string::npos);
  EXPECT_NE(images_error(images_of(0, 3, 4)).find("image count above 0"), std::string::npos);
  const std::string claims = big_endian(0x803) + big_endian(~0u) + big_endian(~0u);
  EXPECT_NE(images_error(claims + big_endian(~0u)).find("exceeds 63 bits"), std::string::npos);
  const std::string petabytes = big_endian(0x803) + big_endian(~0u) + big_endian(1 << 20);
  EXPECT_NE(images_error(petabytes + big_endian(1)).find("bytes of pixels, got 0"),
            std::string::npos);
  write_gzip(folder_ / "packed", petabytes + big_endian(1));
  EXPECT_NE(
      message_of<InputError>([&] { read_idx_images(folder_ / "packed"); }).find("header asks for"),
      std::string::npos);
}

TEST_F(IdxFile, RejectsEveryTruncation) {
  const std::string plain = images_of(2, 3, 4);
  write_gzip(path_, plain);
  const std::string packed = read_bytes(path_);
  for (const std::string& whole : {plain, packed}) {
    for (std::size_t n = 0; n < whole.size(); ++n) {
      EXPECT_NE(images_error(whole.substr(0, n)), "") << n << " of " << whole.size();
    }
  }
}

// gzread() would pass over what is behind a stream.
TEST_F(IdxFile, NothingButAnotherStreamMayFollowAGzipStream) {
  const std::string bytes = images_of(2, 3, 4);
  write_gzip(folder_ / "a", bytes.substr(0, 20));
  write_gzip(folder_ / "b", bytes.substr(20));
  const std::string a = read_bytes(folder_ / "a");
  const std::string b = read_bytes(folder_ / "b");
  write_bytes(path_, a + b);
  EXPECT_EQ(read_idx_images(path_).span<std::uint8_t>()[23], static_cast<std::uint8_t>(23 * 37));
  EXPECT_NE(images_error(a + b + "x").find("damaged at its end ("), std::string::npos);
  EXPECT_NE(
      images_error(a + b + std::string(512, '\0')).find("damaged at its end (incorrect header"),
      std::string::npos);
  EXPECT_NE(images_error(a + "garbage" + b).find("(incorrect header check)"), std::string::npos);
}

// Unused bits of the last byte hold no data either: what is read there is the same.
TEST_F(IdxFile, DamagedGzipIsRejectedOrHarmless) {
  write_gzip(path_, images_of(2, 3, 4));
  const std::string bytes = read_bytes(path_);
  const Tensor images = read_idx_images(path_);
  int accepted = 0;
  for (std::size_t i = 10; i < bytes.size(); ++i) {  // ten bytes of header hold no data
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_bytes(path_, damaged);
    try {
      EXPECT_TRUE(std::ranges::equal(read_idx_images(path_).span<std::uint8_t>(),
                                     images.span<std::uint8_t>()));
      ++accepted;
    } catch (const InputError&) {
      continue;
    }
  }
  EXPECT_LE(accepted, 1);
}

class FashionFolder : public ::testing::Test {
 protected:
  FashionFolder() {
    write_gzip(folder_ / "train-images-idx3-ubyte.gz", images_of(3, 2, 2));
    write_gzip(folder_ / "train-labels-idx1-ubyte.gz", labels_of(std::string("\x00\x01\x09", 3)));
    write_bytes(folder_ / "t10k-images-idx3-ubyte", images_of(1, 2, 2));
    write_bytes(folder_ / "t10k-labels-idx1-ubyte", labels_of("\x02"));
  }
  std::string error() {
    return message_of<InputError>([&] { load_fashion_mnist({.path = folder_.path()}); });
  }
  TemporaryFolder folder_;
};

TEST_F(FashionFolder, Loads) {
  const DatasetSplits splits = load_fashion_mnist({.path = folder_.path()});
  EXPECT_EQ(splits.train.size(), 3);
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.train.classes, 10);
  EXPECT_EQ(splits.train.targets.span<std::int64_t>()[2], 9);
  EXPECT_EQ(splits.train.source, nullptr) << "gzip is unpacked to memory";
  ASSERT_NE(splits.test.source, nullptr) << "a plain file is read when it is needed";
  EXPECT_EQ(splits.test.source->name(0),
            (folder_ / "t10k-images-idx3-ubyte").string() + ": sample 0");
}

TEST_F(FashionFolder, KnowsTheNamesOfItsClasses) {
  const DatasetRequest request{.name = "fashion_mnist", .path = folder_.path()};
  const DatasetSplits splits = builtin_datasets().load(request);
  const std::vector<std::string> names{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                       "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  EXPECT_EQ(splits.train.names.classes, names);
  EXPECT_EQ(splits.test.names.classes, names);
  EXPECT_EQ(splits.train.classes, 10);
  // A recipe's own names win; a run of an earlier version has none.
  DatasetRequest own = request;
  own.targets.names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  EXPECT_EQ(builtin_datasets().load(own).train.names.classes, own.targets.names);
  DatasetRequest numbers = request;
  numbers.without_names = true;
  EXPECT_TRUE(builtin_datasets().load(numbers).train.names.classes.empty());
  DatasetRequest trained = request;
  trained.names = DatasetNames{};
  EXPECT_TRUE(builtin_datasets().load(trained).test.names.classes.empty());
}

TEST_F(FashionFolder, ATestSetThatIsNotThereIsSetAside) {
  std::filesystem::remove(folder_ / "t10k-images-idx3-ubyte");
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  const DatasetSplits splits =
      builtin_datasets().load({.name = "fashion_mnist", .path = folder_.path(), .test_samples = 1});
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.test.size(), 1);
}

TEST_F(FashionFolder, RejectsTwoFilesForOne) {
  write_bytes(folder_ / "train-labels-idx1-ubyte", labels_of("abc"));
  EXPECT_EQ(error(), (folder_ / "train-labels-idx1-ubyte.gz").string() +
                         ": expected it or train-labels-idx1-ubyte, got both: remove one");
}

TEST_F(FashionFolder, RejectsCountsThatDisagree) {
  write_bytes(folder_ / "t10k-labels-idx1-ubyte", labels_of("\x02\x03"));
  EXPECT_NE(error().find("expected targets for 1 samples, got shape [2]"), std::string::npos);
}

TEST_F(FashionFolder, RejectsLabelsAboveNine) {
  write_bytes(folder_ / "t10k-labels-idx1-ubyte", labels_of("\x0A"));
  EXPECT_NE(error().find("expected labels in [0, 10), got 10 in sample 0"), std::string::npos);
}

TEST_F(FashionFolder, RejectsImagesOfAnotherSize) {
  write_bytes(folder_ / "t10k-images-idx3-ubyte", images_of(1, 2, 3));
  EXPECT_NE(error().find("the test set: expected samples as in the training set, inputs u8 [2, 2, "
                         "1], targets i64 []; got inputs u8 [2, 3, 1]"),
            std::string::npos)
      << error();
}

TEST_F(FashionFolder, MissingFilesNameThePackage) {
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_NE(error().find("install the Debian package dataset-fashion-mnist or set data.path"),
            std::string::npos);
}

class IdxFolder : public ::testing::Test {
 protected:
  IdxFolder() {
    write_gzip(folder_ / "emnist-letters-train-images-idx3-ubyte.gz", images_of(3, 2, 2));
    write_bytes(folder_ / "emnist-letters-train-labels-idx1-ubyte", labels_of("\x01\x1A\x02"));
    write_bytes(folder_ / "emnist-letters-test-images-idx3-ubyte", images_of(1, 2, 2));
    write_bytes(folder_ / "emnist-letters-test-labels-idx1-ubyte", labels_of("\x02"));
  }
  std::string error() {
    return message_of<InputError>([&] { load_idx({.path = folder_.path()}); });
  }
  TemporaryFolder folder_;
};

TEST_F(IdxFolder, HasFilesOfAnyNameAndNumberOfClasses) {
  const DatasetSplits splits = load_idx({.path = folder_.path()});
  EXPECT_EQ(splits.train.size(), 3);
  EXPECT_EQ(splits.train.classes, 27);
  EXPECT_EQ(splits.test.classes, 27);
  EXPECT_EQ(load_samples(splits.test).inputs.span<std::uint8_t>()[3],
            static_cast<std::uint8_t>(3 * 37));
  EXPECT_EQ(load_idx({.path = folder_.path(), .parts = DatasetParts::kTest}).train.size(), 0);
}

TEST_F(IdxFolder, ATestSetThatIsNotThereIsSetAside) {
  DatasetRequest request{.name = "idx", .path = folder_.path(), .test_samples = 1};
  const auto load = [&] { return builtin_datasets().load(request); };
  std::filesystem::remove(folder_ / "emnist-letters-test-images-idx3-ubyte");
  EXPECT_EQ(message_of<InputError>(load),
            folder_.path().string() +
                ": expected a file *test-images*ubyte or *t10k-images*ubyte, with or without .gz "
                "(or data.test, which sets samples of the training set aside)");
  std::filesystem::remove(folder_ / "emnist-letters-test-labels-idx1-ubyte");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 2);
  ASSERT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.test.classes, 27);
  request.parts = DatasetParts::kTest;
  EXPECT_EQ(load().test.targets.data<std::int64_t>()[0],
            splits.test.targets.data<std::int64_t>()[0]);
}

TEST_F(IdxFolder, RejectsMissingAndSeveralFiles) {
  write_bytes(folder_ / "emnist-digits-test-labels-idx1-ubyte", labels_of("\x02"));
  EXPECT_EQ(error(), (folder_ / "emnist-letters-test-labels-idx1-ubyte").string() +
                         ": expected it or emnist-digits-test-labels-idx1-ubyte, got both: remove "
                         "one");
  std::filesystem::remove(folder_ / "emnist-letters-train-labels-idx1-ubyte");
  EXPECT_EQ(error(),
            folder_.path().string() + ": expected a file *train-labels*ubyte, with or without .gz");
}

// The real files: sizes, ten equal classes, and the published mean and deviation of the pixels.
TEST(FashionMnist, IsTheKnownDataset) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const DatasetSplits splits = builtin_datasets().load("fashion_mnist");
  EXPECT_EQ(splits.train.inputs.shape(), (Shape{60000, 28, 28, 1}));
  EXPECT_EQ(splits.test.inputs.shape(), (Shape{10000, 28, 28, 1}));
  std::vector<int> counts(10);
  for (const std::int64_t label : splits.train.targets.span<std::int64_t>()) {
    ++counts[static_cast<std::size_t>(label)];
  }
  EXPECT_EQ(counts, std::vector<int>(10, 6000));
  const Normalization n = compute_normalization(splits.train);
  ASSERT_EQ(n.mean.size(), 1u);
  EXPECT_NEAR(n.mean[0], 0.2860, 5e-5);
  EXPECT_NEAR(n.stddev[0], 0.3530, 5e-5);
}

}  // namespace
}  // namespace steelyard
