// Validation and test samples that are set aside class by class.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;

// Samples of classes 0, 1, ... as many as `counts` says, in turn while there are any.
Dataset of_classes(std::vector<std::int64_t> counts) {
  std::vector<std::int64_t> labels;
  const std::int64_t classes = std::ssize(counts);
  while (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) > 0) {
    for (std::int64_t c = 0; c < classes; ++c) {
      if (counts[static_cast<std::size_t>(c)]-- > 0) labels.push_back(c);
    }
    for (std::int64_t& count : counts) count = std::max<std::int64_t>(count, 0);
  }
  Dataset d;
  d.inputs = Tensor::zeros({std::ssize(labels), 2});
  for (std::int64_t i = 0; i < d.inputs.dim(0); ++i) {
    d.inputs.data<float>()[2 * i] = static_cast<float>(i);
  }
  d.targets = Tensor::from(labels, {std::ssize(labels)});
  d.classes = classes;
  return d;
}

TEST(StratifiedSplit, EachClassKeepsItsShare) {
  struct Case {
    std::vector<std::int64_t> counts;
    std::int64_t aside;
    std::vector<std::int64_t> expected;
  };
  for (const Case& c : {Case{{90, 9, 1}, 50, {45, 5, 0}},  // 45, 4.5 and 0.5: the first of equals
                        Case{{90, 9, 1}, 60, {54, 5, 1}},  // 54, 5.4 and 0.6
                        Case{{10, 10, 10}, 4, {2, 1, 1}}, Case{{7, 0, 13}, 10, {4, 0, 6}},
                        Case{{5, 5}, 0, {0, 0}}, Case{{5, 5}, 9, {5, 4}}}) {
    const Dataset d = of_classes(c.counts);
    const auto [train, validation] = split_validation(d, c.aside, 7, true);
    EXPECT_EQ(class_counts(validation), c.expected);
    EXPECT_EQ(train.size() + validation.size(), d.size());
    if (c.aside == 0) continue;
    EXPECT_EQ(class_counts(split_test(d, c.aside, 7, true).second), c.expected);
  }
}

TEST(StratifiedSplit, ChoosesAtRandomOrderedAndRepeatable) {
  const auto firsts = [](const Dataset& d) {
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < d.size(); ++i) {
      numbers.push_back(d.inputs.data<float>()[2 * i]);
    }
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
    return numbers;
  };
  const Dataset d = of_classes({300, 60});
  const auto [train, validation] = split_validation(d, 120, 7, true);
  std::vector<float> all = firsts(train);
  for (const float number : firsts(validation)) all.push_back(number);
  EXPECT_EQ(std::set<float>(all.begin(), all.end()).size(), 360u);
  EXPECT_EQ(firsts(split_validation(d, 120, 7, true).second), firsts(validation));
  EXPECT_NE(firsts(split_validation(d, 120, 8, true).second), firsts(validation));
  EXPECT_NE(firsts(split_test(d, 120, 7, true).second), firsts(validation));
}

TEST(StratifiedSplit, NeedsAClassForEachSample) {
  Dataset d = of_classes({10, 10});
  const auto message = [&](Tensor targets, std::int64_t classes) {
    d.targets = std::move(targets);
    d.classes = classes;
    return message_of<InputError>([&] { split_validation(d, 5, 7, true); });
  };
  const std::string expected =
      "data.stratified: expected a class for each sample, the targets are ";
  EXPECT_EQ(message(Tensor::zeros({20, 1}), 0), expected + "numbers");
  EXPECT_EQ(message(Tensor::zeros({20, 2}), 2), expected + "labels");
  EXPECT_EQ(message(Tensor::zeros({20, 4}, DType::kI64), 2), expected + "text");
}

}  // namespace
}  // namespace steelyard
