#include "steelyard/recipes/language/option_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;

enum class Shape2d { kRound, kSquare };
constexpr Word<Shape2d> kShapes[] = {{Shape2d::kRound, "round", "without corners"},
                                     {Shape2d::kSquare, "square"}};
constexpr std::span<const Word<Shape2d>> words_of(Shape2d) { return kShapes; }

struct Point {
  double x = 0;
  double y = 0;
};

struct Inner {
  std::int64_t count = 0;
  int small = 0;
};

struct Everything {
  std::string text;
  std::optional<std::string> absent;
  std::uint64_t seed = 0;
  std::int64_t same_seed = 0;
  bool on = false;
  std::array<std::int64_t, 2> pair{};
  Shape2d shape = Shape2d::kSquare;
  std::vector<double> numbers;
  std::vector<std::string> places;
  std::optional<Inner> inner;
  std::vector<Point> points;
  double radius = 0;
  double side = 0;
  bool fast = false;
};

Table<Everything> everything() {
  const Table<Inner> inner("", {key("count", "", &Inner::count).required().within(1, 5),
                                key("small", "", &Inner::small).by_default("3")});
  const Table<Point> point(
      "", {key("x", "", &Point::x).required().above(0), key("y", "", &Point::y).by_default("0.5")});
  return Table<Everything>(
             "",
             {key("text", "", &Everything::text).required().role(OptionRole::kNotEssential),
              key("absent", "", &Everything::absent).role(OptionRole::kFree),
              key("seed", "", &Everything::seed).also(&Everything::same_seed).by_default("7"),
              key("on", "", &Everything::on).by_default("true"),
              key("pair", "", &Everything::pair).by_default("2"),
              key("shape", "", &Everything::shape).by_default("round"),
              key("numbers", "", &Everything::numbers)
                  .within(0, 1)
                  .items(1, 3)
                  .places(&Everything::places),
              nested<Everything>("inner", inner, &Everything::inner),
              list_of<Point, Everything>("points", "", point, &Everything::points),
              flags<Everything>("flags", "", {flag("fast", &Everything::fast)}),
              nested<Everything>(
                  "empty",
                  Table<Everything>(
                      "",
                      {key("side", "", &Everything::side).needs("inner").role(OptionRole::kFree)}))
                  .by_default("{}")})
      .cases("shape", {when<Shape2d, Everything>(
                           Shape2d::kRound,
                           {key("radius", "", &Everything::radius).by_default("1").above(0)}),
                       when<Shape2d, Everything>(Shape2d::kSquare, {})})
      .check([](const OptionReader& from, Everything& all) {
        if (all.fast && all.text == "slow") fail_at(from.at("text").place, "slow is not fast");
      });
}

Everything read(const std::string& yaml) {
  const Table<Everything> table = everything();
  return table.read(resolve_options(parse_yaml(yaml, "t"), table.option(), ""));
}

std::string refusal(const std::string& yaml) {
  return rejection([&] { read(yaml); });
}

TEST(OptionRows, ValuesGoWhereTheRowsSay) {
  const Everything all = read(
      "text: a\nabsent: b\nseed: 9\non: false\npair: [1, 4]\nshape: square\nnumbers: [0.25, 1]\n"
      "inner: {count: 2}\npoints: [{x: 1}, {x: 2, y: 3}]\nflags: [fast]\n");
  EXPECT_EQ(all.text, "a");
  EXPECT_EQ(all.absent, "b");
  EXPECT_EQ(all.seed, 9U);
  EXPECT_EQ(all.same_seed, 9) << "two members";
  EXPECT_FALSE(all.on);
  EXPECT_THAT(all.pair, ElementsAre(1, 4));
  EXPECT_EQ(all.shape, Shape2d::kSquare);
  EXPECT_THAT(all.numbers, ElementsAre(0.25, 1));
  EXPECT_THAT(all.places, ElementsAre("t:7:11", "t:7:17"));
  ASSERT_TRUE(all.inner);
  EXPECT_EQ(all.inner->count, 2);
  EXPECT_EQ(all.inner->small, 3);
  ASSERT_EQ(all.points.size(), 2U);
  EXPECT_EQ(all.points[0].y, 0.5);
  EXPECT_EQ(all.points[1].y, 3);
  EXPECT_TRUE(all.fast);
}

TEST(OptionRows, DefaultsAreRead) {
  const Everything all = read("text: a\n");
  EXPECT_FALSE(all.absent);
  EXPECT_EQ(all.seed, 7U);
  EXPECT_TRUE(all.on);
  EXPECT_THAT(all.pair, ElementsAre(2, 2));
  EXPECT_EQ(all.shape, Shape2d::kRound);
  EXPECT_EQ(all.radius, 1) << "of the default case";
  EXPECT_FALSE(all.inner);
  EXPECT_TRUE(all.points.empty() && all.numbers.empty());
}

struct Initial {
  double number = 0.5;
  bool flag = true;
  Shape2d shape = Shape2d::kSquare;
  std::array<std::int64_t, 2> pair{3, 3};
  std::array<double, 2> limits{0.25, 2};
  std::vector<std::int64_t> sizes{8, 4};
  std::string text = "word";
  std::optional<Inner> inner;
};

TEST(OptionRows, ADefaultIsTheMembersOwn) {
  const Table<Initial> table(
      "",
      {key("number", "", &Initial::number).by_default(),
       key("flag", "", &Initial::flag).by_default(), key("shape", "", &Initial::shape).by_default(),
       key("pair", "", &Initial::pair).by_default(),
       key("limits", "", &Initial::limits).by_default(),
       key("sizes", "", &Initial::sizes).by_default(), key("text", "", &Initial::text).by_default(),
       key("count", "", &Initial::inner, &Inner::count).by_default()});
  std::vector<std::string> defaults;
  for (const RecipeOption& option : table.option().members) {
    defaults.push_back(option.default_yaml.value());
  }
  EXPECT_THAT(defaults,
              ElementsAre("0.5", "true", "square", "3", "[0.25, 2]", "[8, 4]", "word", "0"));
  EXPECT_EQ(rejection([&] {
              table.read(resolve_options(parse_yaml("limits: [1]", "t"), table.option(), ""));
            }),
            "t:1:9: expected at least 2 in the list 'limits', got 1");
  const Initial read =
      table.read(resolve_options(parse_yaml("limits: [1, 3]", "t"), table.option(), ""));
  EXPECT_THAT(read.limits, ElementsAre(1, 3));
}

TEST(OptionRows, LimitsAreTheRows) {
  EXPECT_EQ(refusal("inner: {count: 2}\n"), "t:1:1: missing key 'text'");
  EXPECT_EQ(refusal("text: a\ninner: {count: 6}\n"),
            "t:2:16: expected a whole number from 1 to 5, got '6'");
  EXPECT_EQ(refusal("text: a\nnumbers: [0.5, 2]\n"),
            "t:2:16: expected a number from 0 to 1, got '2'");
  EXPECT_EQ(refusal("text: a\nnumbers: []\n"),
            "t:2:10: expected at least 1 in the list 'numbers', got 0");
  EXPECT_EQ(refusal("text: a\npoints: [{x: 0}]\n"), "t:2:14: expected a number above 0, got '0'");
  EXPECT_EQ(refusal("text: a\nshape: squar\n"),
            "t:2:8: expected one of round, square, got 'squar' (did you mean 'square'?)");
  EXPECT_EQ(refusal("text: a\nshape: square\nradius: 2\n"),
            "t:3:1: key 'radius' applies only to shape round");
  EXPECT_EQ(refusal("text: a\nflags: [slow]\n"), "t:2:9: expected 'fast', got 'slow'");
  EXPECT_EQ(refusal("text: slow\nflags: [fast]\n"), "t:1:7: slow is not fast");
}

TEST(OptionRows, WhatNeedsAnotherKeyIsAnErrorWithoutIt) {
  EXPECT_EQ(refusal("text: a\nempty: {side: 2}\n"), "t:2:9: empty.side needs 'inner'");
  EXPECT_EQ(read("text: a\ninner: {count: 1}\nempty: {side: 2}\n").side, 2);
}

TEST(OptionRows, ADefaultTableThatHoldsNothingStaysAbsent) {
  const RecipeOption table = everything().option();
  EXPECT_EQ(resolve_options(parse_yaml("text: a\n", "t"), table, "").find("empty"), nullptr);
  EXPECT_NE(resolve_options(parse_yaml("text: a\nempty: {}\n", "t"), table, "").find("empty"),
            nullptr);
}

TEST(OptionRows, RolesGivePaths) {
  const RecipeOption table = everything().option();
  EXPECT_THAT(paths_of_role(table, OptionRole::kFree), ElementsAre("absent", "empty.side"));
  EXPECT_THAT(paths_of_role(table, OptionRole::kNotEssential), ElementsAre("text"));
}

// A type that a recipe chooses in one place and the engine names in another.
TEST(OptionRows, OptimizersAreCalledAsRecipesCallThem) {
  EXPECT_EQ(word_of(OptimizerType::kSgd), Sgd({}, {}).type_name());
  EXPECT_EQ(word_of(OptimizerType::kAdamW), AdamW({}, {}).type_name());
}

}  // namespace
}  // namespace steelyard
