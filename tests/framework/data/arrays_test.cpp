// Datasets in NumPy's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/zip_files.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::npy;

class Arrays : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    testing::write_bytes(folder_ / name, text);
  }
  DatasetSplits load() const { return builtin_datasets().load("arrays", folder_.path()); }
  std::string error() const {
    return message_of<InputError>([&] { load(); });
  }
  void write_all(const std::string& inputs, const std::string& targets) {
    for (const char* split : {"train", "test"}) {
      write(std::string(split) + "_inputs.npy", inputs);
      write(std::string(split) + "_targets.npy", targets);
    }
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Arrays, SamplesStayInTheFile) {
  std::string pixels;
  for (int i = 0; i < 24; ++i) pixels += static_cast<char>(i);
  write_all(npy("|u1", "(2, 4, 3)", pixels), npy("|i1", "(2,)", std::string("\1\0", 2)));
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.sample_shape(), (Shape{4, 3, 1}));
  EXPECT_EQ(splits.train.classes, 2);
  const Dataset held = load_samples(splits.train);
  EXPECT_EQ(held.inputs.data<std::uint8_t>()[12], 12);
  EXPECT_EQ(digest_of(std::span(&held, 1)), digest_of(std::span(&splits.train, 1)))
      << "wherever the samples are";
}

TEST_F(Arrays, SamplesHaveAnyNumberOfDimensions) {
  const std::string labels = npy("<i8", "(1,)", std::string(8, '\0'));
  const auto sample = [&](const std::string& descr, const std::string& shape, bool sequences) {
    const std::size_t values = descr[2] == '1' ? 6 : 24;
    write_all(npy(descr, shape, std::string(values, '\0')), labels);
    const DatasetRequest request{.name = "arrays", .path = folder_.path(), .sequences = sequences};
    return builtin_datasets().load(request).train.sample_shape();
  };
  EXPECT_EQ(sample("<f4", "(1, 2, 3)", false), (Shape{2, 3, 1})) << "an image";
  EXPECT_EQ(sample("<f4", "(1, 2, 3)", true), (Shape{2, 3})) << "a sequence";
  EXPECT_EQ(sample("|u1", "(1, 2, 3)", true), (Shape{2, 3, 1})) << "bytes are images";
  EXPECT_EQ(sample("<f4", "(1, 1, 2, 1, 3)", false), (Shape{1, 2, 1, 3}));
}

TEST_F(Arrays, WholeNumbersAreFloats) {
  const std::int32_t numbers[] = {-7, 16777216};
  const std::string bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
  write_all(npy("<i4", "(1, 2)", bytes), npy("<i8", "(1,)", std::string(8, '\0')));
  const Dataset train = load_samples(load().train);
  EXPECT_EQ(train.inputs.data<float>()[0], -7);
  EXPECT_EQ(train.inputs.data<float>()[1], 16777216);
  const std::int32_t large[] = {0, 16777217};
  write_all(npy("<i4", "(1, 2)", {reinterpret_cast<const char*>(large), sizeof large}),
            npy("<i8", "(1,)", std::string(8, '\0')));
  EXPECT_THAT(
      message_of<InputError>([&] { load_samples(load().train); }),
      HasSubstr("train_inputs.npy: sample 0: 16777217 at [1] is beyond the whole numbers of "
                "float32"));
}

TEST_F(Arrays, BooleansAreZerosAndOnes) {
  write_all(npy("|b1", "(1, 3)", std::string("\0\1\2", 3)),
            npy("<i8", "(1,)", std::string(8, '\0')));
  const Dataset train = load_samples(load().train);
  EXPECT_TRUE(
      testing::all_close(train.inputs.reshape({3}), Tensor::from<float>({0, 1, 1}, {3}), 0, 0));
}

TEST_F(Arrays, ASampleOfSeveralInputs) {
  const std::string floats(16, '\0'), labels = npy("<i8", "(2,)", std::string(16, '\0'));
  for (const std::string split : {"train", "test"}) {
    write(split + "_ids.npy", npy("|u1", "(2, 3)", "\1\2\3\4\5\6"));
    write(split + "_sound.npy", npy("<f4", "(2, 2, 1)", floats));
    write(split + "_targets.npy", labels);
  }
  DatasetRequest request{.name = "arrays", .path = folder_.path(), .inputs = {"sound", "ids"}};
  const Dataset train = load_samples(builtin_datasets().load(request).train);
  EXPECT_EQ(train.names.inputs, (std::vector<NamedInput>{{"sound", {2, 1}}, {"ids", {3}}}));
  EXPECT_TRUE(testing::all_close(
      train.inputs, Tensor::from<float>({0, 0, 1, 2, 3, 0, 0, 4, 5, 6}, {2, 5}), 0, 0));
  request.inputs.emplace_back("mask");
  EXPECT_THAT(message_of<InputError>([&] { builtin_datasets().load(request); }),
              HasSubstr("train_mask.npy"));
  write("train_mask.npy", npy("<f4", "(4, 1)", floats));
  EXPECT_THAT(message_of<InputError>([&] { builtin_datasets().load(request); }),
              HasSubstr("expected as many samples of mask as of sound, 2, got 4"));
}

TEST_F(Arrays, WhatIsRefused) {
  const std::string labels = npy("<i8", "(1,)", std::string(8, '\0'));
  const std::string four(4, '\0');
  const std::vector<std::pair<std::string, std::string>> cases{
      {npy("<f4", "(1, 2)", four), "the header says float32 [1, 2], the file has 4 bytes"},
      {npy("<f4", "(1, 1)", four + "x"), "the file has 5 bytes"},
      {npy("<f4", "(4611686018427387904, 8)", four), "the file has 4 bytes"},
      {npy("<f4", "(0, 9223372036854775807, 9)", ""), "the file has 0 bytes"},
      {npy(">f4", "(1, 1)", four),
       "expected little-endian whole or floating-point numbers, got type '>f4'"},
      {npy("|O", "(1, 1)", four), "got type '|O'"},
      {npy("<f4", "(1, 1)", four, "True"), "got Fortran's"},
      {npy("<f4", "()", four), "expected inputs [N, ...], got float32 []"},
      {npy("<f4", "(2, 0)", ""), "expected samples of one value or more, got float32 [2, 0]"},
      {npy("<f4", "(1, -1)", four), "its header is damaged: expected a whole number"},
      {npy("<f4", "(1, 1", four), "its header is damaged"},
      {npy("<f4", "(1, 1)", four).substr(0, 40), "a header of "},
      {"\x93NUMPY\x09\1aaaaaa", "expected version 1 to 3"},
      {"GIF89a", "expected a NumPy array or an archive of arrays (it looks like a GIF image)"},
      {"", "expected a NumPy array"},
  };
  for (const auto& [inputs, expected] : cases) {
    write_all(inputs, labels);
    EXPECT_THAT(error(), HasSubstr(expected));
    EXPECT_THAT(error(), HasSubstr("train_inputs.npy"));
  }
  write_all(npy("<f4", "(1, 1)", four), npy("<i8", "(2,)", std::string(16, '\0')));
  EXPECT_THAT(error(), HasSubstr("expected targets for 1 samples"));
  std::string records = npy("<f4", "(1, 1)", four);
  records.replace(records.find("'<f4'"), 5, "[('a'");
  write_all(records, labels);
  EXPECT_THAT(error(), HasSubstr("got one of records (a structured dtype)"));
  write_all(npy("<f4", "(1, 1)", four), npy("|b1", "(1,)", "\1"));
  EXPECT_THAT(error(), HasSubstr("got bool"));
  write_all(npy("<f4", "(1,)", four), labels);
  EXPECT_EQ(load().train.sample_shape(), (Shape{1}));
  // What is not finite is told when it is read.
  write_all(npy("<f4", "(1, 1)", std::string("\0\0\x80\x7F", 4)), labels);
  const Dataset train = load().train;
  EXPECT_THAT(message_of<InputError>([&] {
                make_batch(train, {.batch_size = 1, .normalization = {}, .augment = {}}, 0, 0);
              }),
              HasSubstr("train_inputs.npy: sample 0: expected finite values, got inf at [0]"));
}

TEST_F(Arrays, ATestSetThatIsThereIsNotPassedOver) {
  const std::string inputs = npy("<f4", "(3, 1)", std::string(12, '\0'));
  const std::string targets = npy("|u1", "(3,)", std::string("\0\1\0", 3));
  const auto fails = [&](const std::string& file, std::optional<std::int64_t> test_samples) {
    return message_of<InputError>([&] {
      builtin_datasets().load(
          {.name = "arrays", .path = folder_ / file, .test_samples = test_samples});
    });
  };
  write_all(inputs, targets);
  EXPECT_THAT(fails("", 1), HasSubstr("data.test: the dataset has a test set of its own"));
  std::filesystem::rename(folder_ / "test_inputs.npy", folder_ / "away.npy");
  EXPECT_THAT(fails("", 1), HasSubstr("expected test.npz, or test_inputs.npy and test_targets"));
  std::filesystem::rename(folder_ / "away.npy", folder_ / "test_inputs.npy");
  write("train.npz", "");
  EXPECT_THAT(fails("", {}),
              HasSubstr("train_inputs.npy: expected it or train.npz, got both: remove one"));
  std::filesystem::remove(folder_ / "train.npz");
  write("test_targets.npy", npy("|u1", "(3,)", std::string("\0\1\2", 3)));
  EXPECT_EQ(fails("", {}), (folder_ / "").string() +
                               ": the test set: expected labels in [0, 2), got 2 in sample 2");
  write("test_inputs.npy", npy("<f4", "(0, 1)", ""));
  write("test_targets.npy", npy("|u1", "(0,)", ""));
  for (const std::optional<std::int64_t> count : {std::optional<std::int64_t>(), {1}}) {
    EXPECT_THAT(fails("", count), HasSubstr(": the test set: expected 1 sample or more, got 0"));
  }
  const auto archive = [&](const std::vector<std::string>& names) {
    std::vector<testing::ZippedFile> members;
    for (const std::string& name : names) {
      members.push_back({name + ".npy", name[0] == 'x' ? inputs : targets});
    }
    write("one.npz", testing::zip_archive(members));
  };
  archive({"x_train", "y_train"});
  EXPECT_THAT(fails("one.npz", {}), HasSubstr("there is no test set"));
  const DatasetRequest aside{.name = "arrays", .path = folder_ / "one.npz", .test_samples = 1};
  EXPECT_EQ(builtin_datasets().load(aside).test.size(), 1);
  write("one.npz", testing::zip_archive(
                       {{"x_train.npy", inputs}, {"y_train.npy", npy("|i1", "(3,)", "\1\1\xFF")}}));
  EXPECT_EQ(fails("one.npz", 2),
            (folder_ / "one.npz").string() + ": expected labels in [0, 2), got -1 in sample 2")
      << "its number in the file";
  archive({"x_train", "y_train", "x_test"});
  EXPECT_THAT(fails("one.npz", 1),
              HasSubstr("expected an array y_test, got x_test, x_train, y_train"));
}

// Before samples are set aside, which would pick targets that are not there.
TEST_F(Arrays, TargetsThatAreTooFewOrTooMany) {
  const std::string inputs = npy("<f4", "(4, 1)", std::string(16, '\0'));
  for (const int count : {2, 6}) {
    write("train_inputs.npy", inputs);
    write("train_targets.npy", npy("<i8", "(" + std::to_string(count) + ",)",
                                   std::string(static_cast<std::size_t>(8 * count), '\0')));
    EXPECT_THAT(
        message_of<InputError>([&] {
          builtin_datasets().load({.name = "arrays", .path = folder_.path(), .test_samples = 1});
        }),
        HasSubstr("expected targets for 4 samples, got shape [" + std::to_string(count)));
  }
}

TEST_F(Arrays, ArchivesThatAreRefused) {
  write("train.npz", "PK\x03\x04" + std::string(100, '\0'));
  EXPECT_THAT(error(), HasSubstr("train.npz: the archive's list of files is missing"));
  std::string end = "PK\x05\x06" + std::string(18, '\0');
  end[10] = 1;
  write("train.npz", "PK\x03\x04" + std::string(100, '\0') + end);
  EXPECT_THAT(error(), HasSubstr("a part is cut off"));
  write("train.npz",
        "PK\x03\x04" + std::string(100, '\0') + "PK\x05\x06" + std::string(18, '\xFF'));
  EXPECT_THAT(error(), HasSubstr("Zip64"));
}

}  // namespace
}  // namespace steelyard
