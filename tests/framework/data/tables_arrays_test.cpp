// Datasets in tables and in NumPy's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/data/tables/table_dataset.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/zip_files.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::npy;

class Tables : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    testing::write_bytes(folder_ / name, text);
  }
  DatasetSplits load(const TableOptions& options, const std::string& file = "") const {
    return builtin_datasets().load(request(options, file));
  }
  DatasetRequest request(const TableOptions& options, const std::string& file = "") const {
    return {.name = "table", .path = folder_ / file, .table = options};
  }
  std::string error(const TableOptions& options) const {
    return message_of<InputError>([&] { load(options); });
  }
  std::vector<float> row(const Dataset& dataset, std::int64_t i) const {
    std::vector<float> values(static_cast<std::size_t>(dataset.sample_shape()[0]));
    dataset.source->read(i, nullptr, values.data());
    return values;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Tables, NumbersCategoriesAndMissingValues) {
  write("train.csv",
        "id,size,colour,kind\r\n"
        "1,1.5,red,b\r\n"
        "2, +2.5 ,\"blue, dark\",a\r\n"
        "3, NA ,red,b\r\n"
        "4,5, NA,b\r\n");
  write("test.csv", "kind,colour,size,id\nb,red,NA,x\na,NA,-1e2,y\n");
  const TableOptions options{
      .target = {"kind"}, .categories = {"colour"}, .ignore = {"id"}, .missing = {"NA"}};
  const DatasetSplits splits = load(options);
  EXPECT_THAT(splits.train.names.classes, ElementsAre("a", "b"));
  ASSERT_EQ(splits.train.names.columns.size(), 2u);
  EXPECT_THAT(splits.train.names.columns[1].categories, ElementsAre("", "blue, dark", "red"));
  EXPECT_THAT(row(splits.train, 1), ElementsAre(2.5F, 0, 1, 0));
  EXPECT_THAT(row(splits.train, 2), ElementsAre(3.0F, 0, 0, 1)) << "the mean of 1.5, 2.5 and 5";
  EXPECT_THAT(row(splits.train, 3), ElementsAre(5.0F, 1, 0, 0));
  EXPECT_THAT(row(splits.test, 0), ElementsAre(3.0F, 0, 0, 1)) << "by name, not by place";
  EXPECT_THAT(row(splits.test, 1), ElementsAre(-100.0F, 1, 0, 0));
  EXPECT_EQ(splits.test.targets.data<std::int64_t>()[0], 1);
  EXPECT_THAT(splits.test.source->name(1), HasSubstr("test.csv:3"));

  DatasetRequest test_only = request(options);
  test_only.parts = DatasetParts::kTest;
  test_only.names = splits.train.names;
  std::filesystem::remove(folder_ / "train.csv");
  EXPECT_THAT(row(builtin_datasets().load(test_only).test, 0), ElementsAre(3.0F, 0, 0, 1));
  const auto features = table_features(folder_ / "test.csv", options, splits.train.names);
  EXPECT_EQ(features->size(), 2);
}

TEST_F(Tables, SpacesAroundWordsDoNotCount) {
  write("train.csv", "size, colour,kind \n1, red,good \n2,red , good\n3,dark blue,bad\n");
  write("test.csv", "size,colour,kind\n1,red ,bad\n");
  const TableOptions options{.target = {"kind"}, .categories = {"colour"}};
  const DatasetSplits splits = load(options);
  EXPECT_THAT(splits.train.names.classes, ElementsAre("bad", "good"));
  ASSERT_EQ(splits.train.names.columns.size(), 2u);
  EXPECT_EQ(splits.train.names.columns[1].name, "colour");
  EXPECT_THAT(splits.train.names.columns[1].categories, ElementsAre("dark blue", "red"));
  EXPECT_THAT(row(splits.test, 0), ElementsAre(1.0F, 0, 1));
  // The names of a column in a recipe, and in a checkpoint of an earlier version.
  DatasetNames names = splits.train.names;
  names.columns[1].name = " colour";
  EXPECT_EQ(table_features(folder_ / "test.csv", options, names)->size(), 1);
  EXPECT_EQ(load({.target = {"kind "}, .categories = {" colour"}}).train.classes, 2);
  write("train.csv", "size,colour,kind\n1, ,good\n");
  EXPECT_THAT(error(options), HasSubstr("train.csv:2: column 'colour': the field is empty"));
  write("train.csv", "size,colour, size\n1,red,good\n");
  EXPECT_THAT(error(options), HasSubstr("train.csv:1: two columns have the name 'size'"));
}

TEST_F(Tables, RegressionAndOneFile) {
  std::string text = "x;y;z\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(i) + ";" + std::to_string(2 * i) + ";0\n";
  write("all.csv", text);
  DatasetRequest one = request(
      {.target = {"y", "z"}, .regression = true, .delimiter = Delimiter::kSemicolon}, "all.csv");
  one.test_samples = 6;
  const DatasetSplits splits = builtin_datasets().load(one);
  EXPECT_EQ(splits.train.targets.shape(), (Shape{14, 2}));
  EXPECT_EQ(splits.test.classes, 0);
  EXPECT_EQ(2 * row(splits.test, 3)[0], splits.test.targets.data<float>()[6]);
}

TEST_F(Tables, ATestSetThatIsSetAsideCanBeStratified) {
  std::string text = "x,y\n";
  for (int i = 0; i < 40; ++i) text += std::to_string(i) + (i % 10 == 3 ? ",rare\n" : ",often\n");
  write("all.csv", text);
  DatasetRequest one = request({.target = {"y"}}, "all.csv");
  one.test_samples = 10;
  one.stratified = true;
  const DatasetSplits splits = builtin_datasets().load(one);
  EXPECT_EQ(class_counts(splits.test), (std::vector<std::int64_t>{9, 1}));
  EXPECT_EQ(class_counts(splits.train), (std::vector<std::int64_t>{27, 3}));
  one.table = TableOptions{.target = {"x"}, .regression = true, .categories = {"y"}};
  EXPECT_EQ(message_of<InputError>([&] { builtin_datasets().load(one); }),
            "data.stratified: expected a class for each sample, the targets are numbers");
}

TEST_F(Tables, ATestSetThatIsNotThereIsSetAside) {
  write("train.csv", "x,y\n1,a\n2,b\n3,a\n");
  DatasetRequest folder = request({.target = {"y"}});
  const auto load = [&] { return builtin_datasets().load(folder); };
  EXPECT_THAT(message_of<InputError>(load),
              HasSubstr("expected a table test.csv or test.tsv (or data.test, which sets"));
  folder.test_samples = 1;
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.size(), 2);
  ASSERT_EQ(splits.test.size(), 1);
  folder.parts = DatasetParts::kTest;
  folder.names = splits.train.names;
  EXPECT_EQ(row(load().test, 0), row(splits.test, 0));
}

TEST_F(Tables, AColumnHasOneRole) {
  write("train.csv", "a,b,c\n1,2,x\n2,1,y\n");
  write("test.csv", "a,b,c\n1,2,x\n");
  EXPECT_THAT(error({.target = {"c"}, .categories = {"a", "c"}}),
              HasSubstr("the column 'c' is in data.table.target and in data.table.categories"));
  EXPECT_THAT(error({.target = {"c"}, .categories = {"a"}, .ignore = {"a"}}),
              HasSubstr("the column 'a' is in data.table.categories and in data.table.ignore"));
  EXPECT_THAT(error({.target = {"c"}, .ignore = {"a", "a"}}),
              HasSubstr("the column 'a' is in data.table.ignore and there again"));
  EXPECT_THAT(error({.target = {"c", "b"}}),
              HasSubstr("data.table.target: expected one column, got 2 (several are numbers"));
  DatasetRequest marks = request({.target = {"a", "b"}, .categories = {"c"}});
  marks.targets.kind = TargetKind::kMarks;
  EXPECT_THAT(message_of<InputError>([&] { builtin_datasets().load(marks); }),
              HasSubstr("train.csv:2: column 'b': expected a mark from 0 to 1, got '2'"));
  write("test.tsv", "a\n1\n");
  EXPECT_THAT(error({.target = {"c"}}), HasSubstr("test.tsv: expected it or test.csv, got both"));
}

TEST_F(Tables, NumbersTooSmallForAFloatAreZero) {
  write("train.csv", "a,b\n1e-400,x\n-1e-320,y\n");
  write("test.csv", "a,b\n1e-46,x\n");
  const Dataset train = load({.target = {"b"}}).train;
  EXPECT_THAT(row(train, 0), ElementsAre(0.0F));
  EXPECT_THAT(row(train, 1), ElementsAre(-0.0F));
  write("test.csv", "a,b\n1e400,x\n");
  EXPECT_THAT(error({.target = {"b"}}), HasSubstr("test.csv:2: column 'a': expected a finite"));
}

TEST_F(Tables, NumbersOfFewDigitsAndFractionsAreRounded) {
  write("train.csv", "a,b\n1.496e11,x\n1600000007.1,x\n9007199254740992,x\n");
  write("test.csv", "a,b\n6.02214076E+23,x\n -0100000000000000000000000 ,x\n");
  const DatasetSplits splits = load({.target = {"b"}});
  EXPECT_THAT(row(splits.train, 0), ElementsAre(1.496e11F));
  EXPECT_THAT(row(splits.train, 1), ElementsAre(1.6e9F));
  EXPECT_THAT(row(splits.train, 2), ElementsAre(0x1p53F));
  EXPECT_THAT(row(splits.test, 0), ElementsAre(6.02214076e23F));
  EXPECT_THAT(row(splits.test, 1), ElementsAre(-1e23F));
}

TEST_F(Tables, AMissingTargetIsAnError) {
  write("train.csv", "a,b\n-999,1\n2, -999\n");
  write("test.csv", "a,b\n1,2\n");
  EXPECT_THAT(error({.target = {"b"}, .regression = true, .missing = {"-999"}}),
              HasSubstr("train.csv:3: column 'b': the target is missing"));
  for (const TargetKind kind : {TargetKind::kMarks, TargetKind::kText}) {
    EXPECT_THAT(
        message_of<InputError>([&] {
          builtin_datasets().load({.name = "table",
                                   .path = folder_.path(),
                                   .table = TableOptions{.target = {"b"}, .missing = {"-999"}},
                                   .targets = {.kind = kind}});
        }),
        HasSubstr("train.csv:3: column 'b': the target is missing"));
  }
}

TEST_F(Tables, ErrorsHaveTheirLine) {
  const std::string good = "a,b,c\n1,2,x\n";
  const TableOptions options{.target = {"c"}};
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "expected a table of text, got an empty file"},
      {"a,b,c\n", "train.csv:1: expected rows"},
      {"a,b,c\n1,2,x\n1,oops,y\n", "train.csv:3: column 'b': expected a finite number, got 'oops'"},
      {"a,b,c\n1,nan,x\n", "train.csv:2: column 'b': expected a finite number, got 'nan'"},
      {"a,b,c\n1,1700000001,x\n",
       "train.csv:2: column 'b': expected a finite number, got '1700000001' (float32 would round "
       "it"},
      {"a,b,c\n1,1600000001.0,x\n", "got '1600000001.0' (float32 would round it"},
      {"a,b,c\n1,12345678901234567890,x\n", "(float32 would round it"},
      {"a,b,c\n1,9007199254740993,x\n", "got '9007199254740993' (float32 would round it"},
      {"a,b,c\n1,1.6000000010e9,x\n", "got '1.6000000010e9' (float32 would round it"},
      {"a,b,c\n1,1e39,x\n", "train.csv:2: column 'b': expected a finite number"},
      {"a,b,c\n1,,x\n", "data.table.missing what stands for a missing value"},
      {"a,b,c\n\"1\n\n\",2,x\n", "train.csv:2: column 'a'"},
      {"a,b,c\n\n1,2,x\n1,2\n", "train.csv:4: expected 3 fields as in the first line, got 2"},
      {"a,b,c\n1,2,x\n1,2\"3,x\n", "train.csv:3: a quote in a field"},
      {"a,b,c\n1,\"2\"3,x\n", "train.csv:2: expected a delimiter after a closing quote"},
      {"a,b,c\n1,2,x\n1,\"2,x\n1,2,x\n", "train.csv:3: a quote that is never closed"},
      {"a,b,c\n1,2,\xFF\n", "train.csv:2: expected text in UTF-8"},
      {"a,b,a\n1,2,x\n", "train.csv:1: two columns have the name 'a'"},
      {"a,b,d\n1,2,x\n", "train.csv:1: no column 'c', which data.table.target names"},
      {"a;b;c\n1;2;x\n",
       "train.csv:1: no column 'c', which data.table.target names (the line has one column: "},
      {"a;c\n1;x\n", "no column 'c', which data.table.target names (the line has one column: "},
      {"a,b,c\n1,2,\n", "train.csv:2: column 'c': the class is missing"},
      {"c\nx\n", "train.csv:1: expected a column in addition to the target"},
      {"\x89PNG\r\n\x1A\n", "expected a table of text, got a PNG image"},
  };
  for (const auto& [text, expected] : cases) {
    write("train.csv", text);
    write("test.csv", good);
    EXPECT_THAT(error(options), HasSubstr(expected)) << text;
  }
  write("train.csv", good);
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"a,b,c\n1,2,y\n", "test.csv:2: column 'c': the training set has no class 'y'"},
           {"a,c\n1,x\n", "test.csv:1: no column 'b', which the training set names"},
           {"a,b,c,d\n1,2,x,3\n",
            "test.csv:1: the training set has no column 'd' (remove it here, or train with it in "
            "data.table.ignore)"}}) {
    write("test.csv", text);
    EXPECT_THAT(error(options), HasSubstr(expected));
  }
  write("test.csv", good);
  EXPECT_THAT(error({.target = {"c"}, .categories = {"bb"}}),
              HasSubstr("no column 'bb', which data.table.categories names (did you mean"));
  write("test.csv", "a,b,c\n1,3,x\n");
  EXPECT_THAT(error({.target = {"c"}, .categories = {"b"}}),
              HasSubstr("test.csv:2: column 'b': the training set has no category '3'"));
  write("test.csv", "a,b,c\n1,,x\n");
  EXPECT_THAT(error({.target = {"c"}, .categories = {"b"}, .missing = {"NA"}}),
              HasSubstr("test.csv:2: column 'b': the field is empty"));
  EXPECT_THAT(message_of<InputError>(
                  [&] { builtin_datasets().load({.name = "table", .path = folder_.path()}); }),
              HasSubstr("needs data.table.target"));
}

// For `predict`: a bad row is a sample whose reading says what is wrong with it.
TEST_F(Tables, BadRowsMayBeKept) {
  write("train.csv", "size,colour,kind\n1,red,a\n2,blue,b\n");
  write("test.csv", "size,colour,kind\n1,red,a\n");
  const TableOptions options{.target = {"kind"}, .categories = {"colour"}};
  const DatasetNames names = load(options).train.names;
  write(
      "new.csv",
      "size,colour\r\n1,red\r\n2\r\nx,red\r\n\r\n3,green\r\n\"4,red\r\n5,\"blue\"\r\n\"6\"7,red\r\n"
      "8,\xFF\r\n9,blue\r\n\"10,red");
  EXPECT_THROW(table_features(folder_ / "new.csv", options, names), InputError);
  const auto rows = table_features(folder_ / "new.csv", options, names, BadRows::kKeep);
  std::vector<std::string> results;
  for (std::int64_t i = 0; i < rows->size(); ++i) {
    std::vector<float> features(3);
    try {
      rows->read(i, nullptr, features.data());
      results.push_back(std::to_string(static_cast<int>(features[0])));
    } catch (const InputError& error) {
      const std::string fault = error.what();
      EXPECT_TRUE(fault.starts_with(rows->name(i) + ": ")) << fault;
      results.push_back(fault.substr(fault.rfind("new.csv:") + 8));
    }
  }
  EXPECT_THAT(results, ElementsAre("1", "3: expected 2 fields as in the first line, got 1",
                                   HasSubstr("4: column 'size': expected a finite number, got 'x'"),
                                   "6: column 'colour': the training set has no category 'green'",
                                   "7: a quote that is never closed",  // each line by itself
                                   "5", HasSubstr("9: expected a delimiter after a closing quote"),
                                   HasSubstr("10: expected text in UTF-8"), "9",
                                   "12: a quote that is never closed"));
}

// Records that end where the reader's buffer does.
TEST_F(Tables, RecordsAcrossBuffers) {
  std::string text = "a,b\r\n";
  std::int64_t rows = 0;
  while (text.size() < (3U << 20)) {
    text += "\"" + std::string(static_cast<std::size_t>(rows % 97), 'x') + "\r\n\"\"q\"," +
            std::to_string(rows) + "\r\n";
    ++rows;
  }
  write("t.csv", text);
  CsvReader reader(folder_ / "t.csv", ',');
  CsvRecord record;
  ASSERT_TRUE(reader.next(record));
  for (std::int64_t i = 0; i < rows; ++i) {
    ASSERT_TRUE(reader.next(record));
    ASSERT_EQ(record.fields[1], std::to_string(i));
    ASSERT_EQ(record.line, 2 + 2 * i);
    ASSERT_EQ(reader.at(record.begin, record.end, record.line).fields, record.fields);
  }
  EXPECT_FALSE(reader.next(record));
}

class Arrays : public Tables {
 protected:
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
      {npy("|b1", "(1, 4)", four), "expected whole numbers or floats, got bool [1, 4]"},
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
