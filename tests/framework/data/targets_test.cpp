#include "steelyard/framework/data/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <tuple>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::values;

template <typename F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Targets, LabelsBetweenSeparators) {
  const TargetOptions options{TargetKind::kMarks, ", "};
  Dataset train;
  set_targets(train, {"sky, sea", "", "sea", "sky, sand"}, options, {}, {"here"});
  EXPECT_THAT(train.names.classes, ElementsAre("sand", "sea", "sky"));
  EXPECT_EQ(train.classes, 3);
  EXPECT_EQ(target_kind(train.targets, 3), TargetKind::kMarks);
  EXPECT_EQ(values(train.targets), (std::vector<double>{0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1}));
  Dataset test;
  const TextSource lines{"there", [](std::size_t i) { return "there:" + std::to_string(i + 2); }};
  EXPECT_EQ(error_of([&] {
              set_targets(test, {"sea", "snow"}, options, {"sea"}, lines);
            }),
            "there:3: the training set has no label 'snow'");
  EXPECT_EQ(error_of([&] {
              set_targets(test, {"", ""}, options, {}, {"there"});
            }),
            "there: all targets are empty");
}

TEST(Targets, LabelsMayBeInAnyOrder) {
  const TargetOptions marks{TargetKind::kMarks}, texts{TargetKind::kText};
  EXPECT_TRUE(same_target("sky|sea", "sea|sky", marks));
  EXPECT_TRUE(same_target("sky|sea", " sea | sky", marks)) << "spaces around them do not count";
  EXPECT_FALSE(same_target("sky|sea", "sea", marks));
  EXPECT_FALSE(same_target("sky|sea", "sea|sky", texts));
}

TEST(Targets, TextsAreNumbersOfCharacters) {
  const TargetOptions options{TargetKind::kText};
  Dataset train;
  set_targets(train, {"ab", "", "b\u00e4b"}, options, {}, {"here"});
  EXPECT_THAT(train.names.classes, ElementsAre("", "a", "b", "\u00e4"));
  EXPECT_EQ(values(train.targets), (std::vector<double>{1, 2, -1, -1, -1, -1, 2, 3, 2}));
  const TextSource lines{"there", [](std::size_t i) { return "there:" + std::to_string(i + 2); }};
  Dataset test;
  set_targets(test, {"a"}, options, train.names.classes, {"there"});
  EXPECT_EQ(values(test.targets), (std::vector<double>{1}));
  EXPECT_EQ(error_of([&] {
              set_targets(test, {"a", "xa"}, options, {"", "a"}, lines);
            }),
            "there:3: the training set has no character 'x'");
  EXPECT_EQ(error_of([&] { set_targets(test, {"a\xC3"}, options, {}, lines); }),
            "there:2: the text 'a\\xc3' is not UTF-8");
}

TEST(Targets, ArraysBecomeMarks) {
  const TargetOptions options{TargetKind::kMarks};
  Dataset labels{Tensor::zeros({3, 2}), Tensor::from<std::int64_t>({2, 0, 2}, {3}), 3};
  convert_targets(labels, options);
  EXPECT_EQ(values(labels.targets), (std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 1}));
  // The last classes may have no sample here.
  for (const TargetOptions& known : {TargetOptions{TargetKind::kMarks, "|", {"a", "b", "c", "d"}},
                                     TargetOptions{.kind = TargetKind::kMarks, .classes = 4}}) {
    Dataset few{Tensor::zeros({1, 2}), Tensor::from<std::int64_t>({1}, {1}), 2};
    convert_targets(few, known);
    EXPECT_EQ(values(few.targets), (std::vector<double>{0, 1, 0, 0}));
    EXPECT_EQ(few.classes, 4);
  }
  Dataset columns{Tensor::zeros({2, 2}), Tensor::from<std::int64_t>({1, 0, 0, 1, 1, 1}, {2, 3}), 2};
  convert_targets(columns, options);
  EXPECT_EQ(columns.classes, 3);
  EXPECT_EQ(columns.targets.dtype(), DType::kF32);
  EXPECT_NO_THROW(validate_targets(columns, "here"));
  columns.targets.data<float>()[4] = 2;
  EXPECT_EQ(error_of([&] { validate_targets(columns, "here"); }),
            "here: expected marks from 0 to 1, got 2.000000 in sample 1");
  const Dataset texts{Tensor::zeros({2, 2}),
                      Tensor::from<std::int64_t>({1, 2, -1, 1, -1, 2}, {2, 3}), 3};
  EXPECT_EQ(
      error_of([&] { validate_targets(texts, "here"); }),
      "here: expected labels i64 [N], or for the loss ctc texts i64 [N, length] of characters "
      "from 1 to 2 (0 is the blank), then -1, got i64 [2, 3] with 2 in sample 1");
}

TEST(Targets, BalancedWeights) {
  const Dataset labels{Tensor::zeros({6, 2}), Tensor::from<std::int64_t>({2, 0, 2, 2, 0, 2}, {6}),
                       4};
  EXPECT_THAT(class_counts(labels), ElementsAre(2, 0, 4, 0));
  EXPECT_THAT(balanced_class_weights(labels), ElementsAre(6.0 / 8, 0, 6.0 / 16, 0));
  Dataset marks{Tensor::zeros({4, 2}), Tensor::from<float>({1, 0, 1, 0, 1, 0, 0, 0}, {4, 2}), 2};
  EXPECT_THAT(balanced_positive_weights(marks), ElementsAre(1.0 / 3, 1));
}

TEST(Targets, OfATableInColumnsOrWords) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "train.csv", "x,red,big,tags\n1,1,0,a|b\n2,0,1,\n3,1,1,b\n");
  testing::write_bytes(folder.path() / "test.csv", "x,red,big,tags\n4,0,0,b\n");
  DatasetRequest request{.name = "table",
                         .path = folder.path(),
                         .table = TableOptions{.target = {"red", "big"}, .ignore = {"tags"}},
                         .targets = {TargetKind::kMarks}};
  const DatasetRegistry registry = builtin_datasets();
  const DatasetSplits columns = registry.load(request);
  EXPECT_THAT(columns.train.names.classes, ElementsAre("red", "big"));
  EXPECT_EQ(values(columns.train.targets), (std::vector<double>{1, 0, 0, 1, 1, 1}));
  request.table = TableOptions{.target = {"tags"}, .ignore = {"red", "big"}};
  const DatasetSplits words = registry.load(request);
  EXPECT_THAT(words.train.names.classes, ElementsAre("a", "b"));
  EXPECT_EQ(values(words.train.targets), (std::vector<double>{1, 1, 0, 0, 0, 1}));
  EXPECT_EQ(values(words.test.targets), (std::vector<double>{0, 1}));
  request.targets.kind = TargetKind::kText;
  EXPECT_THAT(registry.load(request).train.names.classes, ElementsAre("", "a", "b", "|"));
}

TEST(ReadNames, AreThoseOfTheLines) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "names.txt";
  const auto names = [&](const std::string& text, bool characters = false) {
    std::ofstream(path, std::ios::binary) << text;
    return read_names(path, characters);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("b\r\na b\n \nc"), (Names{"b", "a b", " ", "c"}));
  EXPECT_EQ(names("x\n\u00e4\n", true), (Names{"", "x", "\u00e4"}));
  EXPECT_EQ(names(std::string(300, 'n') + "\n"), Names{std::string(300, 'n')});
  EXPECT_EQ(names("\xEF\xBB\xBF"
                  "first\n"),
            Names{"first"});
  for (const auto& [text, characters, problem] :
       {std::tuple("a\n\nb\n", false, "names.txt:2: expected a name, got ''"),
        std::tuple("a\nb\na\n", false, "names.txt:3: line 1 has the name 'a' already"),
        std::tuple("a\nbc\n", true, "names.txt:2: expected one character, got 'bc'"),
        std::tuple("a\tb\n", false, "names.txt:1: expected a name, got "),
        std::tuple("\xFF\n", false, "names.txt:1: the name '\\xff' is not UTF-8"),
        std::tuple("", true, "names.txt: expected a name in each line")}) {
    EXPECT_NE(error_of([&] { names(text, characters); }).find(problem), std::string::npos) << text;
  }
}

TEST(SetTargets, NamesOfAFileKeepTheirOrderAndTheirNumbers) {
  const TargetOptions options{.names = {"rose", "iris", "lily"}, .names_source = "names.txt"};
  Dataset train;
  set_targets(train, {"lily", "rose"}, options, options.names, {"here"});
  EXPECT_EQ(train.classes, 3);
  EXPECT_EQ(train.names.classes, options.names);
  EXPECT_EQ(train.targets.data<std::int64_t>()[0], 2);
  EXPECT_EQ(error_of([&] { set_targets(train, {"tulip"}, options, options.names, {"here"}); }),
            "here: names.txt has no class 'tulip'");
}

}  // namespace
}  // namespace steelyard
