#include "steelyard/framework/files/json_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string problem_of(const std::string& text) {
  try {
    nlohmann::json::parse(text).at("model").get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    return json_problem("folder/config.json", error);
  }
  return "";
}

TEST(JsonProblem, SaysWhereATextIsNoJson) {
  EXPECT_THAT(problem_of("{\n \"a\": x}"),
              StartsWith("folder/config.json:2:7: is no JSON: invalid literal"));
  EXPECT_THAT(problem_of(""), StartsWith("folder/config.json:1:1: is no JSON: unexpected end"));
  EXPECT_THAT(problem_of("{\"a\": 1"), HasSubstr(":1:8: is no JSON: unexpected end of input"));
}

TEST(JsonProblem, NamesTheFileOfOtherJson) {
  EXPECT_EQ(problem_of("{}"), "folder/config.json: key 'model' not found");
  EXPECT_EQ(problem_of("{\"model\": 3}"), "folder/config.json: type must be string, but is number");
  EXPECT_EQ(problem_of("{\"model\": \"a\"}"), "");
}

// What a file holds reaches a terminal as text alone.
TEST(JsonProblem, ShowsNoControlCharacters) {
  EXPECT_THAT(problem_of("{\"a\x1b[31m"), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace steelyard
