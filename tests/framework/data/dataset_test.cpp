#include "steelyard/framework/data/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

// Sample i is [i, i] with label i % 3.
Dataset numbered(std::int64_t size) {
  Dataset d{Tensor::zeros({size, 2}), Tensor::zeros({size}, DType::kI64), 3};
  for (std::int64_t i = 0; i < size; ++i) {
    d.inputs.data<float>()[2 * i] = d.inputs.data<float>()[2 * i + 1] = static_cast<float>(i);
    d.targets.data<std::int64_t>()[i] = i % 3;
  }
  return d;
}

std::set<std::int64_t> numbers_of(const Dataset& d) {
  std::set<std::int64_t> numbers;
  for (std::int64_t i = 0; i < d.size(); ++i) {
    const auto n = static_cast<std::int64_t>(d.inputs.data<float>()[2 * i]);
    EXPECT_EQ(d.targets.data<std::int64_t>()[i], n % 3);
    EXPECT_TRUE(numbers.insert(n).second) << n << " twice";
  }
  return numbers;
}

TEST(SplitValidation, PartsAreDisjointCompleteAndRepeatable) {
  const Dataset d = numbered(100);
  const auto [train, validation] = split_validation(d, 30, 7);
  const auto first = numbers_of(train);
  const auto second = numbers_of(validation);
  EXPECT_EQ(first.size(), 70u);
  EXPECT_EQ(second.size(), 30u);
  for (const std::int64_t n : second) EXPECT_FALSE(first.contains(n));
  EXPECT_EQ(numbers_of(split_validation(d, 30, 7).second), second);
  EXPECT_NE(numbers_of(split_validation(d, 30, 8).second), second);
  EXPECT_EQ(validation.classes, 3);
}

TEST(SplitValidation, RejectsImpossibleCounts) {
  for (const std::int64_t count : {-1, 10, 11}) {
    EXPECT_THROW(split_validation(numbered(10), count, 1), InputError);
  }
  EXPECT_EQ(split_validation(numbered(10), 0, 1).second.size(), 0);
}

TEST(SpreadSamples, LieAtEvenDistancesAndKeepTheirNames) {
  const Dataset all = numbered(10);
  const Dataset four = spread_samples(all, 4);
  EXPECT_EQ(numbers_of(load_samples(four)), (std::set<std::int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(four.source->name(2), samples_of(all)->name(5));
  for (const std::int64_t count : {10, 11}) {
    EXPECT_EQ(spread_samples(all, count).inputs.raw(), all.inputs.raw());
  }
  EXPECT_EQ(message_of<std::invalid_argument>([&] { spread_samples(all, -1); }),
            "[spread_samples] expected a count of 0 or more, got -1");
}

TEST(RandomPermutation, IsUniform) {
  // All 6 orders of 3 elements over 6000 seeds: 1000 each, within 5 standard deviations.
  std::vector<int> counts(6);
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const auto p = random_permutation(3, seed, 0);
    ++counts[static_cast<std::size_t>(p[0] * 2 + (p[1] > p[2] ? 1 : 0))];
  }
  for (const int c : counts) EXPECT_NEAR(c, 1000, 5 * std::sqrt(6000.0 * 5 / 36));
}

TEST(Normalization, MatchesPlainLoopsInDouble) {
  Dataset d{Tensor::empty({5, 2, 2, 2}, DType::kU8), Tensor::zeros({5}, DType::kI64), 1};
  const auto pixels = d.inputs.span<std::uint8_t>();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = i % 2 == 0 ? static_cast<std::uint8_t>(i * i) : 51;
  }
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < pixels.size(); i += 2) sum += pixels[i] / 255.0;
  for (std::size_t i = 0; i < pixels.size(); i += 2) {
    squares += std::pow(pixels[i] / 255.0 - sum / 20, 2);
  }
  const Normalization n = compute_normalization(d);
  ASSERT_EQ(n.mean.size(), 2u);
  EXPECT_NEAR(n.mean[0], sum / 20, 1e-7);
  EXPECT_NEAR(n.stddev[0], std::sqrt(squares / 20), 1e-7);
  EXPECT_FLOAT_EQ(n.mean[1], 0.2F);
  EXPECT_EQ(n.stddev[1], 1.0F) << "a constant channel";
}

TEST(Normalization, IsOfNumbers) {
  const Dataset d{Tensor::from<float>({1, NAN}, {2, 1}), Tensor::zeros({2}, DType::kI64), 1};
  EXPECT_EQ(message_of<InputError>([&] { compute_normalization(d); }),
            "[compute_normalization] inputs: expected finite values, got nan in sample 1 at [0]");
}

TEST(Normalization, OfTargetsIsByColumns) {
  Dataset d{Tensor::zeros({4, 1}),
            Tensor::from<float>({1, 7, -3, 2, 7, -3, 3, 7, -3, 6, 7, -3}, {4, 3}), 0};
  const Normalization n = compute_target_normalization(d);
  EXPECT_EQ(n.mean, (std::vector<float>{3, 7, -3}));
  EXPECT_FLOAT_EQ(n.stddev[0], std::sqrt(3.5F));
  EXPECT_EQ(n.stddev[1], 1.0F) << "a constant column";
  normalize_targets(d, n);
  EXPECT_EQ(d.target_normalization, n);
  EXPECT_EQ(d.targets.data<float>()[0], static_cast<float>((1.0 - 3.0) / double{n.stddev[0]}));
  EXPECT_EQ(d.targets.data<float>()[1], 0);
  const std::int64_t last[] = {3};
  EXPECT_EQ(select_samples(d, last).target_normalization, n);
  EXPECT_THROW(normalize_targets(d, {{1, 2}, {1, 1}}), InputError);
  d.targets = Tensor::zeros({4}, DType::kI64);
  EXPECT_THROW(compute_target_normalization(d), std::invalid_argument);
}

TEST(DatasetDigest, SeesEveryByteTheOrderAndTheShapeAndNoThreads) {
  const auto digest = [](const Dataset& d) { return digest_of(std::span(&d, 1)); };
  const Dataset whole = numbered(4);
  const std::string expected = digest(whole);
  EXPECT_EQ(digest(numbered(4)), expected);
  std::set<std::string> digests{expected, digest(numbered(5))};
  Dataset other = numbered(4);
  other.inputs.data<float>()[7] = -3;
  digests.insert(digest(other));
  other = numbered(4);
  other.targets.data<std::int64_t>()[3] = 1;
  digests.insert(digest(other));
  const std::int64_t swapped[] = {1, 0, 2, 3};
  digests.insert(digest(select_samples(numbered(4), swapped)));
  other = numbered(4);
  other.inputs = other.inputs.reshape({4, 2, 1, 1});
  digests.insert(digest(other));
  EXPECT_EQ(digests.size(), 6u);

  // Several pieces, the last of them not full.
  Dataset large{Tensor::zeros({3, kDigestPieceBytes / 2 + 1}, DType::kU8),
                Tensor::zeros({3}, DType::kI64), 1};
  const int threads = kernels::num_threads();
  kernels::set_num_threads(1);
  const std::string by_one = digest(large);
  kernels::set_num_threads(3);
  EXPECT_EQ(digest(large), by_one);
  kernels::set_num_threads(threads);
  large.inputs.data<std::uint8_t>()[large.inputs.size() - 1] = 1;
  EXPECT_NE(digest(large), by_one);
}

TEST(ValidateDataset, NamesWhatIsWrong) {
  const auto error = [](const Dataset& d) {
    return message_of<InputError>([&] { validate_dataset(d, "here"); });
  };
  validate_dataset(numbered(4), "here");
  Dataset d = numbered(4);
  d.classes = 2;
  EXPECT_EQ(error(d), "here: expected labels in [0, 2), got 2 in sample 2");
  d = numbered(4);
  d.inputs.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error(d), "here: inputs: expected finite values, got nan in sample 2 at [1]");
  d = numbered(4);
  d.targets = Tensor::zeros({3}, DType::kI64);
  EXPECT_EQ(error(d), "here: expected targets for 4 samples, got shape [3]");
  d = numbered(4);
  d.inputs = Tensor::zeros({4});
  EXPECT_NE(error(d).find("expected inputs [N, ...] with a value or more in a sample, got [4]"),
            std::string::npos);
  d = numbered(4);
  d.inputs = Tensor::zeros({4, 2}, DType::kF64);
  EXPECT_EQ(error(d), "here: expected inputs u8 or f32, got f64");
  d = numbered(4);
  d.classes = 0;
  EXPECT_NE(error(d).find("expected targets f32 for regression, got i64"), std::string::npos);
}

class SafetensorsDataset : public ::testing::Test {
 protected:
  void write(const std::string& name, const Tensor& inputs, const Tensor& targets) {
    write_safetensors(folder_ / name, {{{"inputs", inputs}, {"targets", targets}}, {}});
  }
  DatasetSplits load() { return builtin_datasets().load("safetensors", folder_.path()); }
  std::string error() {
    return message_of<InputError>([&] { load(); });
  }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsDataset, LoadsClassification) {
  write("train.safetensors", Tensor::zeros({3, 4, 4, 1}, DType::kU8),
        Tensor::from<std::int32_t>({0, 4, 2}, {3}));
  write("test.safetensors", Tensor::zeros({2, 4, 4, 1}, DType::kU8),
        Tensor::from<std::int32_t>({1, 0}, {2}));
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.classes, 5);
  EXPECT_EQ(splits.test.classes, 5);
  EXPECT_EQ(splits.train.targets.span<std::int64_t>()[1], 4);
  write("test.safetensors", Tensor::zeros({1, 4, 4, 1}, DType::kU8),
        Tensor::from<std::int64_t>({5}, {1}));
  EXPECT_NE(error().find("test.safetensors: expected labels in [0, 5), got 5"), std::string::npos);
  write("train.safetensors", Tensor::zeros({3, 4, 4, 1}, DType::kU8),
        Tensor::from<std::int32_t>({0, 1'000'000, 2}, {3}));
  EXPECT_NE(error().find("train.safetensors: integer targets are labels of classes (floats are "
                         "numbers): expected labels below 65536, got 1000000 in sample 1"),
            std::string::npos);
}

TEST_F(SafetensorsDataset, ATestSetThatIsNotThereIsSetAside) {
  write("train-0-of-1.safetensors", Tensor::zeros({3, 4}),
        Tensor::from<std::int64_t>({0, 4, 2}, {3}));
  EXPECT_NE(error().find("test.safetensors: not found: expected the test set (or data.test, which"),
            std::string::npos);
  DatasetRequest request{.name = "safetensors", .path = folder_.path(), .test_samples = 1};
  const DatasetSplits splits = builtin_datasets().load(request);
  EXPECT_EQ(splits.train.size(), 2);
  ASSERT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.test.classes, 5);
  request.parts = DatasetParts::kTest;
  EXPECT_EQ(builtin_datasets().load(request).test.targets.data<std::int64_t>()[0],
            splits.test.targets.data<std::int64_t>()[0]);
}

TEST_F(SafetensorsDataset, LoadsRegression) {
  write("train.safetensors", Tensor::zeros({3, 7}, DType::kF64), Tensor::zeros({3, 2}));
  write("test.safetensors", Tensor::zeros({2, 7}), Tensor::zeros({2, 2}, DType::kF64));
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.classes, 0);
  EXPECT_EQ(splits.train.dtype(), DType::kF32);
  EXPECT_EQ(splits.test.targets.shape(), (Shape{2, 2}));
  write("train.safetensors", Tensor::zeros({3, 7}), Tensor::zeros({3}));
  write("test.safetensors", Tensor::zeros({2, 7}), Tensor::zeros({2}));
  EXPECT_EQ(load().train.targets.shape(), (Shape{3, 1}));
  write("test.safetensors", Tensor::zeros({2, 6}), Tensor::zeros({2, 2}));
  EXPECT_NE(error().find("test.safetensors: expected samples as in train.safetensors, inputs f32 "
                         "[7], targets f32 [1]; got inputs f32 [6], targets f32 [2]"),
            std::string::npos);
}

TEST_F(SafetensorsDataset, ReadsValuesWhenTheyAreAskedFor) {
  const Tensor labels = Tensor::zeros({2}, DType::kI64);
  write("test.safetensors", Tensor::zeros({2, 3}), labels);
  const auto read = [&](const Tensor& inputs) {
    write("train.safetensors", inputs, labels);
    return load_samples(load().train).inputs;
  };
  const std::vector<double> values{1, -2, 0.5, 3, 0, -1.5};
  const Tensor expected = Tensor::from<double>(values, {2, 3});
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    EXPECT_TRUE(testing::all_close(read(expected.to(dtype)), expected.to(DType::kF32), 0, 0));
  }
  const Tensor whole = Tensor::from<std::int64_t>({7, -8, 0, 1, 2, 16777216}, {2, 3});
  EXPECT_TRUE(testing::all_close(read(whole), whole.to(DType::kF32), 0, 0));
  EXPECT_TRUE(testing::all_close(read(whole.to(DType::kI32)), whole.to(DType::kF32), 0, 0));
  const Tensor small = Tensor::from<std::int8_t>({7, -8, 0, 1, 2, -128}, {2, 3});
  EXPECT_TRUE(testing::all_close(read(small), small.to(DType::kF32), 0, 0));
  const auto said = [&](const Tensor& inputs, const std::string& text) {
    const std::string message = message_of<InputError>([&] { read(inputs); });
    EXPECT_NE(message.find("train.safetensors: inputs: " + text), std::string::npos) << message;
  };
  said(Tensor::from<std::int64_t>({0, 0, 0, 0, -16777217, 0}, {2, 3}),
       "sample 1: -16777217 at [1] is beyond the whole numbers of float32");
  said(Tensor::from<double>({0, 0, 0, 0, 1e300, 0}, {2, 3}),
       "sample 1: 1e+300 at [1] is beyond float32");
  said(Tensor::from<double>({1.496e11, 1600000007.5, 1e30, 0, 1600000007, 0}, {2, 3}),
       "sample 1: 1600000007 at [1] would be rounded to float32 (subtract an offset)");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  said(Tensor::from<float>({0, 0, nan, 0, 0, 0}, {2, 3}),
       "sample 0: expected finite values, got nan at [2]");
}

TEST_F(SafetensorsDataset, LoadsShards) {
  const auto ramp = [](float first, std::int64_t count) {
    return Tensor::from<float>(std::vector<float>(static_cast<std::size_t>(count) * 2, first),
                               {count, 2});
  };
  const auto labels = [](std::initializer_list<std::int64_t> values) {
    return Tensor::from<std::int64_t>(values, {std::ssize(values)});
  };
  write("test-00000-of-00001.safetensors", ramp(9, 1), labels({1}));
  write("train-00001-of-00003.safetensors", ramp(1, 2), labels({0, 1}));
  write("train-00003-of-00003.safetensors", ramp(3, 1), labels({4}));
  EXPECT_NE(error().find("train-00003-of-00003.safetensors: expected shard 2 before it"),
            std::string::npos)
      << error();
  write("train-00002-of-00003.safetensors", ramp(2, 3), labels({2, 3, 0}));
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.classes, 5);
  EXPECT_EQ(splits.test.size(), 1);
  const Dataset train = load_samples(splits.train);
  EXPECT_TRUE(testing::all_close(
      train.inputs, Tensor::from<float>({1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3}, {6, 2}), 0, 0));
  EXPECT_TRUE(testing::all_close(train.targets, labels({0, 1, 2, 3, 0, 4}), 0, 0));
  EXPECT_EQ(samples_of(splits.train)->name(4),
            (folder_ / "train-00002-of-00003.safetensors: inputs: sample 2").string());

  const auto said = [&](const std::string& file, const Tensor& inputs, const Tensor& targets,
                        const std::string& text) {
    write(file, inputs, targets);
    EXPECT_NE(error().find(text), std::string::npos) << error();
    std::filesystem::remove(folder_ / file);
  };
  said("train.safetensors", ramp(0, 1), labels({0}),
       "train.safetensors: expected either this file or shards of it, got train-00001-of-00003.");
  said("train-00004-of-00004.safetensors", ramp(0, 1), labels({0}),
       "train-00004-of-00004.safetensors: expected a shard of 3, as train-00001-of-00003.");
  said("train-00003-of-00003.safetensors", Tensor::zeros({1, 3}), labels({0}),
       "expected samples as in train-00001-of-00003.safetensors, inputs f32 [2]");
  EXPECT_NE(error().find("train-*.safetensors: expected 3 shards, got 2"), std::string::npos);
}

TEST_F(SafetensorsDataset, LoadsSeveralInputs) {
  const Tensor ids = Tensor::from<std::int64_t>({7, 8, 9, 10}, {2, 2});
  const Tensor mask = Tensor::from<float>({0.5, 1, 1, 0}, {2, 2});
  const Tensor labels = Tensor::zeros({2}, DType::kI64);
  for (const char* file : {"train.safetensors", "test.safetensors"}) {
    write_safetensors(folder_ / file, {{{"ids", ids}, {"mask", mask}, {"targets", labels}}, {}});
  }
  const auto loaded = [&](const std::vector<std::string>& inputs) {
    return builtin_datasets().load(
        {.name = "safetensors", .path = folder_.path(), .inputs = inputs});
  };
  const Dataset train = load_samples(loaded({"mask", "ids"}).train);
  EXPECT_EQ(train.names.inputs, (std::vector<NamedInput>{{"mask", {2}}, {"ids", {2}}}));
  EXPECT_TRUE(testing::all_close(train.inputs,
                                 Tensor::from<float>({0.5, 1, 7, 8, 1, 0, 9, 10}, {2, 4}), 0, 0));
  EXPECT_EQ(load_safetensors_inputs(folder_ / "test.safetensors", {"ids"}).sample_shape(),
            (Shape{2}));
  const auto refusal = [&](const std::vector<std::string>& inputs) {
    return message_of<InputError>([&] { loaded(inputs); });
  };
  EXPECT_NE(refusal({"ids"}).find("expected the tensors ids and targets, got 'mask'"),
            std::string::npos);
  EXPECT_NE(refusal({"ids", "mask", "kinds"})
                .find("expected the tensors ids, mask, kinds and targets, 'kinds' is missing"),
            std::string::npos);
  EXPECT_NE(refusal({"ids", "masc"}).find("got 'mask', 'masc' is missing (did you mean 'mask'?)"),
            std::string::npos);
  DatasetRegistry own;
  own.add("own", "here", [&](const DatasetRequest&) {
    return DatasetSplits{spread_samples(train, 1), Dataset{train.inputs, train.targets, 1}};
  });
  EXPECT_EQ(message_of<InputError>([&] {
              own.load(DatasetRequest{.name = "own", .path = "here", .inputs = {"ids"}});
            }),
            "data.inputs: the dataset own has no arrays with names; arrays and safetensors have");
}

TEST_F(SafetensorsDataset, SaysWhatItExpects) {
  EXPECT_NE(error().find("train.safetensors: cannot open"), std::string::npos);
  write_safetensors(folder_ / "train.safetensors", {{{"inputs", Tensor::zeros({1, 1})}}, {}});
  write_safetensors(folder_ / "test.safetensors", {{{"x", Tensor::zeros({1, 1})}}, {}});
  EXPECT_NE(error().find("'targets' is missing"), std::string::npos);
  write("train.safetensors", Tensor::zeros({1, 1}), Tensor::zeros({1}));
  EXPECT_NE(error().find("test.safetensors: expected the tensors inputs and targets, got 'x'"),
            std::string::npos);
  const Tensor labels = Tensor::zeros({2}, DType::kI64);
  const auto said = [&](const Tensor& inputs, const Tensor& targets, const std::string& text) {
    write("train.safetensors", inputs, targets);
    EXPECT_NE(error().find("train.safetensors: " + text), std::string::npos) << error();
  };
  write("test.safetensors", Tensor::zeros({2, 3}), labels);
  said(Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::kBool),
       "targets: expected targets of integers (labels) or of floating-point numbers (regression), "
       "got bool");
  said(Tensor::zeros({0, 3}), Tensor::zeros({0}, DType::kI64),
       "expected 1 sample or more, got inputs [0, 3]");
  said(Tensor::zeros({2, 3}), Tensor::from<double>({0, -1e39}, {2}),
       "targets: -1e+39 at [1] is beyond float32");
  said(Tensor::zeros({2, 3}), Tensor::from<double>({0, 16777217}, {2}),
       "targets: 16777217 at [1] would be rounded to float32 (subtract an offset)");
  said(Tensor::zeros({3, 3}), labels, "expected targets for 3 samples, got shape [2]");
  EXPECT_NE(message_of<InputError>([&] {
              builtin_datasets().load("safetensors", folder_ / "train.safetensors");
            }).find("expected a folder with train.safetensors and test.safetensors, got a file"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([&] {
              builtin_datasets().load("images", folder_ / "nowhere");
            }).find("expected a folder of images, there is nothing by that name"),
            std::string::npos);
}

TEST(DatasetRegistry, KnowsItsNames) {
  const DatasetRegistry registry = builtin_datasets();
  EXPECT_EQ(registry.names(),
            (std::vector<std::string>{"arrays", "cifar10", "cifar100", "fashion_mnist", "idx",
                                      "images", "safetensors", "shards", "table", "tokens"}));
  EXPECT_EQ(message_of<InputError>([&] { registry.load("fashion-mnist"); }),
            "unknown dataset 'fashion-mnist' (did you mean 'fashion_mnist'?); "
            "known: arrays cifar10 cifar100 fashion_mnist idx images safetensors shards table "
            "tokens");
  EXPECT_EQ(message_of<InputError>([&] { registry.load("cifar10"); }),
            "dataset 'cifar10' needs data.path");
}

TEST(DatasetRegistry, TakesLoadersOfTheUser) {
  DatasetRegistry registry;
  const auto loader = [](const DatasetRequest& r) {
    EXPECT_EQ(r.path, "default");
    return DatasetSplits{numbered(4), numbered(2)};
  };
  registry.add("mine", "default", loader);
  EXPECT_EQ(registry.load("mine").train.size(), 4);
  EXPECT_THROW(registry.add("mine", "", loader), std::invalid_argument);
}

// Eight samples of three features, of three classes.
Dataset made_up() {
  return {Tensor::zeros({8, 3}), Tensor::from<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, {8}), 3};
}

template <typename Change>
std::string refusal_of(const Change& change) {
  DatasetRegistry registry;
  registry.add("mine", "made-up", [&](const DatasetRequest&) {
    DatasetSplits splits{made_up(), made_up()};
    change(splits);
    return splits;
  });
  return message_of<InputError>([&] { registry.load("mine"); });
}

TEST(DatasetRegistry, NamesOfADatasetAreAsManyAsWhatTheyName) {
  const auto refusal = [](const DatasetNames& names) {
    return refusal_of([&](DatasetSplits& s) { s.train.names = s.test.names = names; });
  };
  EXPECT_EQ(refusal({.classes = {"a"}}),
            "dataset 'mine': the training set: expected names of the 3 classes, got 1: 'a'");
  EXPECT_EQ(refusal({.classes = {"a", "b", "a"}}),
            "dataset 'mine': the training set: expected different names of classes, got 'a' twice");
  EXPECT_EQ(refusal({.columns = {{.name = "x"}, {.name = "y"}}}),
            "dataset 'mine': the training set: expected samples of the 2 features of its columns, "
            "got [3]");
  EXPECT_EQ(refusal({.inputs = {{"x", {2}}, {"y", {2}}}}),
            "dataset 'mine': the training set: expected samples of the 4 values of its inputs, got "
            "[3]");
}

TEST(DatasetRegistry, TheTestSetIsOneForAModelOfTheTrainingSet) {
  const std::string begin = "dataset 'mine': the test set: expected ";
  EXPECT_EQ(refusal_of([](DatasetSplits& s) {
              s.test.inputs = Tensor::zeros({8, 4});
            }),
            begin +
                "samples of inputs f32 [3], targets i64 [], as in the training set, got inputs "
                "f32 [4], targets i64 []");
  EXPECT_EQ(refusal_of([](DatasetSplits& s) {
              s.test.inputs = Tensor::zeros({8, 3}, DType::kU8);
            }),
            begin +
                "samples of inputs f32 [3], targets i64 [], as in the training set, got inputs "
                "u8 [3], targets i64 []");
  EXPECT_EQ(refusal_of([](DatasetSplits& s) {
              s.test.targets.span<std::int64_t>()[5] = 3;
              s.test.classes = 4;
            }),
            begin + "3 classes as in the training set, got 4: the label 3 in sample 5");
  EXPECT_EQ(refusal_of([](DatasetSplits& s) {
              s.train.names.classes = {"a", "b", "c"};
              s.test.names.classes = {"c", "b", "a"};
            }),
            begin + "the classes 'a', 'b', 'c' as in the training set, got 'c', 'b', 'a'");
  EXPECT_EQ(
      refusal_of([](DatasetSplits& s) { s.test.names.columns = std::vector<TableColumn>(3); }),
      begin + "the columns as in the training set, got others");
}

TEST(DatasetRegistry, ATestSetNeedNotHaveAllClasses) {
  DatasetRegistry registry;
  registry.add("mine", "made-up", [](const DatasetRequest&) {
    DatasetSplits splits{made_up(), made_up()};
    splits.test.targets.fill(1);
    splits.test.classes = 2;
    return splits;
  });
  EXPECT_EQ(registry.load("mine").test.classes, 3);
}

}  // namespace
}  // namespace steelyard
