#include "steelyard/framework/tensor/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/matmul_precision_words.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Fruit { kApple, kPear, kPlum };
constexpr Word<Fruit> kFruit[] = {{Fruit::kApple, "apple"}, {Fruit::kPear, "pear", "or two"}};
constexpr std::span<const Word<Fruit>> words_of(Fruit) { return kFruit; }

template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Words, ReadAndWrite) {
  EXPECT_EQ(word_of(Fruit::kPear), "pear");
  EXPECT_EQ(row_of(Fruit::kPear).help, "or two");
  EXPECT_EQ(value_of<Fruit>("pear"), Fruit::kPear);
  EXPECT_THAT(all_words<Fruit>(), ElementsAre("apple", "pear"));
}

// Nothing becomes the first value, or the last, in silence.
TEST(Words, WhatIsMissingIsAnError) {
  EXPECT_THROW(value_of<Fruit>("plum"), std::invalid_argument);
  EXPECT_EQ(message_of([] { value_of<Fruit>("plum"); }), "expected one of apple, pear, got 'plum'");
  EXPECT_THROW(value_of<Fruit>(""), std::invalid_argument);
  EXPECT_THROW(word_of(Fruit::kPlum), std::logic_error);
  EXPECT_THAT(message_of([] { value_of<qat::BatchNormFold>("batch"); }), HasSubstr("got 'batch'"));
}

// What the assertions beside the tables find.
TEST(Words, IncompleteTablesAreFound) {
  static_assert(!is_complete<Fruit>(kFruit, Fruit::kPlum), "a value without a word");
  static_assert(is_complete<Fruit>(kFruit, Fruit::kPear));
  static constexpr Word<Fruit> kTwice[] = {{Fruit::kApple, "apple"}, {Fruit::kPear, "apple"}};
  static_assert(!is_complete<Fruit>(kTwice, Fruit::kPear), "a word for two values");
  static constexpr Word<Fruit> kOrder[] = {{Fruit::kPear, "pear"}, {Fruit::kApple, "apple"}};
  static_assert(!is_complete<Fruit>(kOrder, Fruit::kPear), "values out of order");
}

template <typename E>
void expect_round_trip() {
  for (const std::string& word : all_words<E>()) EXPECT_EQ(word_of(value_of<E>(word)), word);
}

TEST(Words, EveryTableReadsWhatItWrites) {
  expect_round_trip<Loss::Type>();
  expect_round_trip<LrSchedule::Type>();
  expect_round_trip<kernels::MatmulPrecision>();
  expect_round_trip<kernels::Granularity>();
  expect_round_trip<qat::BatchNormFold>();
  expect_round_trip<qat::Profile>();
  expect_round_trip<qat::Learning>();
  expect_round_trip<OptimizerType>();
  expect_round_trip<Normalize>();
}

}  // namespace
}  // namespace steelyard
