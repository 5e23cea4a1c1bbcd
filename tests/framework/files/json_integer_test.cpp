#include "steelyard/framework/files/json_integer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace steelyard {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

template <typename F>
void expect_refused(const F& f, const std::string& what) {
  EXPECT_THAT(
      f, Throws<std::invalid_argument>(Property(&std::invalid_argument::what, HasSubstr(what))));
}

TEST(JsonInteger, HoldsWhatItsTypeHolds) {
  EXPECT_EQ(integer_of<std::int64_t>(Json::parse("-9223372036854775808")), INT64_MIN);
  EXPECT_EQ(integer_of<std::uint64_t>(Json::parse("18446744073709551615")), UINT64_MAX);
  EXPECT_THAT(integers_of<std::int32_t>(Json::parse("[1, -2]")), ElementsAre(1, -2));
  for (const char* text : {"2147483648", "-2147483649", "1.5", "1e+300", "true", "\"1\"", "null"}) {
    const Json json = Json::parse(text);
    expect_refused([&] { integer_of<std::int32_t>(json); },
                   std::string("expected an integer of 32 bits, got ") + text);
    expect_refused([&] { integers_of<std::int32_t>(json); },
                   std::string("expected integers, got ") + text);
  }
}

// A message about a million brackets must not take a million stack frames.
TEST(JsonInteger, RefusesDeepArrays) {
  const std::string brackets(1'000'000, '[');
  const Json deep = Json::parse(brackets + std::string(brackets.size(), ']'));
  expect_refused([&] { integer_of<std::int64_t>(deep); }, "got an array");
  expect_refused([&] { integers_of<std::int64_t>(deep); }, "got an array");
  expect_refused([&] { integers_of<std::int64_t>(Json::object()); }, "got an object");
}

}  // namespace
}  // namespace steelyard
