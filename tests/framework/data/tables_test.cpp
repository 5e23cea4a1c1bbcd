// Datasets in tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/data/tables/table_dataset.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

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
      {"a,b,c\n1,\"3,14\",x\n",
       "train.csv:2: column 'b': expected a finite number, got '3,14' (numbers have a decimal "
       "point: replace the commas"},
      {"a,b,c\n1,\"3,1,4\",x\n", "got '3,1,4'"},
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

}  // namespace
}  // namespace steelyard
