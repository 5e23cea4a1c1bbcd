// Datasets of inputs alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zip_files.h"

namespace steelyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::npy;

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

void expect_no_targets(const Dataset& dataset) {
  EXPECT_EQ(dataset.targets.dtype(), DType::kF32);
  EXPECT_EQ(dataset.targets.shape(), (Shape{dataset.size(), 0}));
  EXPECT_EQ(dataset.classes, 0);
  EXPECT_EQ(target_kind(dataset.targets, dataset.classes), TargetKind::kValues);
  EXPECT_THAT(dataset.names.classes, IsEmpty());
}

std::vector<float> values_of(const Dataset& dataset) {
  const Tensor inputs = load_samples(dataset).inputs;
  return {inputs.data<float>(), inputs.data<float>() + inputs.size()};
}

class Unlabelled : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    testing::write_bytes(folder_ / name, bytes);
  }
  DatasetRequest request(const std::string& dataset, const std::string& path = "") const {
    return {.name = dataset, .path = folder_ / path, .labels = false};
  }
  // With samples set aside, of datasets without a test set.
  DatasetSplits load(DatasetRequest asked, std::int64_t test = 1) const {
    if (test > 0) asked.test_samples = test;
    DatasetSplits splits = builtin_datasets().load(asked);
    expect_no_targets(splits.train);
    expect_no_targets(splits.test);
    return splits;
  }
  std::string error(const DatasetRequest& asked) const {
    return message_of<InputError>([&] { builtin_datasets().load(asked); });
  }

  testing::TemporaryFolder folder_;
};

// Three samples [i, -i].
Dataset three() {
  Dataset dataset{Tensor::from<float>({0, 0, 1, -1, 2, -2}, {3, 2}), {}, 4};
  dataset.names.classes = {"a", "b", "c", "d"};
  drop_targets(dataset);
  return dataset;
}

TEST(NoTargets, EveryPartOfADatasetTakesThem) {
  const Dataset dataset = three();
  expect_no_targets(dataset);
  EXPECT_FALSE(has_targets(dataset));
  validate_dataset(dataset, "three");
  EXPECT_EQ(target_text(dataset), "no targets");
  EXPECT_THAT(class_counts(dataset), IsEmpty());
  EXPECT_EQ(dataset.targets.bytes(), 0);
  EXPECT_EQ(dataset.targets.clone().shape(), (Shape{3, 0}));
  EXPECT_EQ(dataset.targets.to(DType::kF64).shape(), (Shape{3, 0}));

  const std::array<std::int64_t, 2> rows{2, 0};
  const Dataset selected = select_samples(dataset, rows);
  expect_no_targets(selected);
  EXPECT_THAT(values_of(selected), ElementsAre(2, -2, 0, 0));
  const auto [train, validation] = split_validation(dataset, 1, 5);
  EXPECT_EQ(train.size(), 2);
  expect_no_targets(train);
  expect_no_targets(validation);
  expect_no_targets(spread_samples(dataset, 2));
  EXPECT_THROW(split_validation(dataset, 1, 5, /*stratified=*/true), InputError);
}

TEST(NoTargets, DigestsAreThoseOfInputs) {
  const auto digest = [](const Dataset& dataset) { return digest_of(std::span(&dataset, 1)); };
  Dataset other = three();
  EXPECT_EQ(digest(other), digest(three()));
  other.targets = Tensor::zeros({3, 1});
  EXPECT_NE(digest(other), digest(three())) << "targets of one column are others";
  other = three();
  other.inputs.data<float>()[5] = 7;
  EXPECT_NE(digest(other), digest(three()));
}

TEST(NoTargets, BatchesHaveRowsWithoutColumns) {
  for (const std::int64_t prefetch : {0, 2}) {
    DataLoader loader(three(), {.batch_size = 2, .normalization = {}, .augment = {}}, prefetch);
    loader.start(0, 0);
    const auto first = loader.next();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->targets.shape(), (Shape{2, 0}));
    EXPECT_EQ(first->inputs.data<float>()[3], -1);
    EXPECT_EQ(loader.next()->targets.shape(), (Shape{1, 0}));
    EXPECT_FALSE(loader.next().has_value());
  }
}

TEST_F(Unlabelled, ArraysOfOneFile) {
  write("a.npy", npy("<f4", "(3, 2)", floats({1, 2, 3, 4, 5, 6})));
  DatasetSplits splits = load(request("arrays", "a.npy"));
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.test.size(), 1);
  const std::string six = npy("<f4", "(6,)", floats({1, 2, 3, 4, 5, 6}));
  write("a.npz", testing::zip_of({{"photos.npy", six}}));
  EXPECT_EQ(load(request("arrays", "a.npz")).train.size(), 5) << "one array of any name";
  write("a.npz", testing::zip_of({{"more.npy", six}, {"inputs.npy", six}}));
  EXPECT_EQ(load(request("arrays", "a.npz")).train.size(), 5);
  write("a.npz", testing::zip_of({{"more.npy", six}, {"age.npy", six}}));
  EXPECT_THAT(error(request("arrays", "a.npz")),
              AllOf(HasSubstr("a.npz: expected one array, or inputs or x_train of several, got "),
                    HasSubstr("more"), HasSubstr("data.inputs")));
  DatasetRequest named = request("arrays", "a.npz");
  named.inputs = {"age", "more"};
  EXPECT_EQ(load(named).train.names.inputs.size(), 2u);
  write("a.npz", testing::zip_of({{"x_train.npy", six},
                                  {"x_test.npy", npy("<f4", "(1,)", floats({8}))},
                                  {"y_test.npy", "no array, and not asked for"}}));
  EXPECT_THAT(values_of(load(request("arrays", "a.npz"), 0).test), ElementsAre(8));
}

TEST_F(Unlabelled, ArraysOfTheLabelledNames) {
  write("train_inputs.npy", npy("<f4", "(2, 1)", floats({1, 2})));
  EXPECT_EQ(load(request("arrays")).train.size(), 1);
  write("test_inputs.npy", npy("<f4", "(1, 1)", floats({3})));
  EXPECT_THAT(values_of(load(request("arrays"), 0).test), ElementsAre(3));
  DatasetRequest test_only = request("arrays");
  test_only.parts = DatasetParts::kTest;
  std::filesystem::remove(folder_ / "train_inputs.npy");
  EXPECT_EQ(builtin_datasets().load(test_only).test.size(), 1);
  EXPECT_THAT(error(request("arrays")), HasSubstr("expected train.npz, or train_inputs.npy"));
}

TEST_F(Unlabelled, AnArrayForEachInput) {
  write("age.npy", npy("<f4", "(2,)", floats({30, 40})));
  write("eyes.npy", npy("<f4", "(2, 2)", floats({1, 2, 3, 4})));
  DatasetRequest named = request("arrays");
  named.inputs = {"eyes", "age"};
  const DatasetSplits splits = load(named);
  EXPECT_EQ(splits.train.names.inputs, (std::vector<NamedInput>{{"eyes", {2}}, {"age", {1}}}));
  EXPECT_EQ(splits.train.sample_shape(), Shape{3});
  named.inputs.emplace_back("hair");
  EXPECT_THAT(error(named), HasSubstr("hair.npy"));
}

TEST_F(Unlabelled, AFileForEachSample) {
  write("10.npy", npy("<f4", "(2,)", floats({10, 11})));
  write("b.npy", npy("<f4", "(2,)", floats({20, 21})));
  write("notes.txt", "");
  DatasetSplits splits = load(request("arrays"));
  EXPECT_THAT(splits.notes, ElementsAre(HasSubstr("left out a file that is no array by its name: "
                                                  "notes.txt")));
  const bool trained = splits.train.source->name(0).ends_with("10.npy");
  const Dataset& first = trained ? splits.train : splits.test;
  EXPECT_THAT(values_of(first), ElementsAre(10, 11));
  EXPECT_THAT(first.source->name(0), HasSubstr("10.npy"));

  // Read when it is asked for: what is in the file by then.
  write("10.npy", npy("<f4", "(2,)", floats({10, std::numeric_limits<float>::quiet_NaN()})));
  EXPECT_THAT(message_of<InputError>([&] { values_of(first); }),
              HasSubstr("10.npy: expected finite values, got nan at [1]"));
  write("10.npy", npy("<f4", "(1,)", floats({10})));
  EXPECT_THAT(message_of<InputError>([&] { values_of(first); }),
              HasSubstr("10.npy: expected a sample f32 [2] as 10.npy is, got f32 [1]"));
  EXPECT_THAT(error(request("arrays")),
              HasSubstr("b.npy: expected a sample f32 [1] as 10.npy is, got f32 [2]"));
  write("10.npy", npy("<f4", "()", floats({10})));
  std::filesystem::remove(folder_ / "b.npy");
  EXPECT_EQ(load(request("arrays"), 0).train.sample_shape(), Shape{1});
}

TEST_F(Unlabelled, AFolderWithoutArrays) {
  write("photo.jpg", "");
  EXPECT_THAT(
      error(request("arrays")),
      HasSubstr(": expected train.npz, train_inputs.npy, or .npy files, each of one sample; "
                "left out a file that is no array by its name: photo.jpg"));
}

TEST_F(Unlabelled, AnOnlySampleIsBothSets) {
  write("a.npy", npy("<f4", "(1, 2)", floats({1, 2})));
  const DatasetSplits splits = load(request("arrays", "a.npy"), 0);
  EXPECT_EQ(values_of(splits.train), values_of(splits.test));
  EXPECT_THAT(splits.notes, ElementsAre(HasSubstr("a.npy: the only sample is the test set too")));
  write("a.npy", npy("<f4", "(2, 1)", floats({1, 2})));
  EXPECT_THAT(error(request("arrays", "a.npy")), HasSubstr("data.test sets samples of it aside"));
}

TEST_F(Unlabelled, Safetensors) {
  const auto save = [&](const std::string& file, std::vector<NamedTensor> tensors) {
    write_safetensors(folder_ / file, {std::move(tensors), {}});
  };
  const Tensor inputs = Tensor::zeros({3, 2});
  save("a.safetensors", {{"inputs", inputs}, {"targets", Tensor::zeros({7})}, {"masks", inputs}});
  EXPECT_EQ(load(request("safetensors", "a.safetensors")).train.size(), 2);
  DatasetRequest named = request("safetensors", "a.safetensors");
  named.inputs = {"masks", "inputs"};
  EXPECT_EQ(load(named).train.sample_shape(), Shape{4});
  named.inputs = {"age"};
  EXPECT_THAT(error(named), HasSubstr("a.safetensors: expected the tensor age, 'age' is missing"));
  save("train-00001-of-00002.safetensors", {{"inputs", inputs}});
  save("train-00002-of-00002.safetensors", {{"inputs", inputs}});
  EXPECT_EQ(load(request("safetensors")).train.size(), 5);
  save("test.safetensors", {{"inputs", inputs}, {"targets", Tensor::zeros({3}, DType::kI64)}});
  EXPECT_EQ(load(request("safetensors"), 0).test.size(), 3);
  EXPECT_THAT(error(request("safetensors", "absent")), HasSubstr("there is nothing by that name"));
}

TEST_F(Unlabelled, Tables) {
  write("t.csv", "id,size,colour,kind\n1,5,red,x\n2,6,blue,\n3,7,red,y\n");
  DatasetRequest asked = request("table", "t.csv");
  asked.table = TableOptions{.target = {"kind"}, .categories = {"colour"}, .ignore = {"id"}};
  EXPECT_EQ(load(asked).train.sample_shape(), Shape{3}) << "without the target, also where it is "
                                                           "missing";
  asked.table->target.clear();
  asked.table->ignore.emplace_back("kind");
  const DatasetSplits splits = load(asked);
  EXPECT_EQ(splits.train.names.columns.size(), 2u);
  EXPECT_THAT(values_of(splits.test), ::testing::SizeIs(3));
  asked.table->ignore = {"id"};
  EXPECT_THAT(error(asked), HasSubstr("t.csv:2: column 'kind': expected a finite number"));
  asked.table.reset();
  write("t.csv", "a,b\n1,2\n3,4\n");
  EXPECT_EQ(load(asked).train.sample_shape(), Shape{2});
  write("train.csv", "a,b\n1,2\n3,4\n");
  write("test.csv", "b,a\n5,6\n");
  EXPECT_THAT(values_of(load(request("table"), 0).test), ElementsAre(6, 5)) << "by name";
}

TEST_F(Unlabelled, LabelsOfOtherDatasetsAreDropped) {
  DatasetRegistry registry;
  registry.add("mine", "here",
               [](const DatasetRequest&) {
                 Dataset dataset{Tensor::zeros({4, 2}), Tensor::zeros({4}, DType::kI64), 2};
                 dataset.names.classes = {"no", "yes"};
                 return DatasetSplits{dataset, dataset};
               },
               {"off", "on"});
  const DatasetSplits splits = registry.load(DatasetRequest{.name = "mine", .labels = false});
  expect_no_targets(splits.train);
  expect_no_targets(splits.test);
}

TEST_F(Unlabelled, ZeroColumnsAreAskedFor) {
  write("train_inputs.npy", npy("<f4", "(2, 1)", floats({1, 2})));
  write("train_targets.npy", npy("<f4", "(2, 0)", ""));
  const DatasetRequest labelled{.name = "arrays", .path = folder_.path(), .test_samples = 1};
  EXPECT_THAT(error(labelled), AllOf(HasSubstr("expected targets of one value or more, got f32 [2, "
                                               "0]"),
                                     HasSubstr("data.labels: false")));
}

}  // namespace
}  // namespace steelyard
