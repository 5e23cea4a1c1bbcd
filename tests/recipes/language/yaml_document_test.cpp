#include "steelyard/recipes/language/yaml_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string yaml_rejection(const std::string& text) {
  return rejection([&] { parse_yaml(text, "r.yaml"); });
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(YamlDocument, KeepsPlacesOfKeysAndValues) {
  const YamlNode node = parse_yaml("a: 1\nb:\n  - x\n  - {c: \"y\"}\n", "r.yaml");
  ASSERT_EQ(node.entries.size(), 2u);
  EXPECT_EQ(node.entries[0].place, "r.yaml:1:1");
  EXPECT_EQ(node.entries[0].value.place, "r.yaml:1:4");
  EXPECT_EQ(node.entries[1].place, "r.yaml:2:1");
  const YamlNode& list = node.entries[1].value;
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(list.items[0].place, "r.yaml:3:5");
  EXPECT_EQ(list.items[1].entries[0].place, "r.yaml:4:6");
  EXPECT_EQ(list.items[1].entries[0].value.text, "y");
  EXPECT_TRUE(list.items[1].entries[0].value.quoted);
  EXPECT_FALSE(list.items[0].quoted);
}

// It took 39 s when the line was counted anew for each value.
TEST(YamlDocument, ALongLineTakesTimeLinearInItsLength) {
  constexpr int kItems = 38'000;
  const auto begin = std::chrono::steady_clock::now();
  const YamlNode list =
      parse_yaml("[" + repeated("é23456789012345678901234, ", kItems) + "]", "r.yaml");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_EQ(list.items.size(), std::size_t{kItems});
  EXPECT_EQ(list.items[0].place, "r.yaml:1:2");
  EXPECT_EQ(list.items.back().place, "r.yaml:1:" + std::to_string(26 * (kItems - 1) + 2));
}

struct BadText {
  const char* name;
  std::string text;
  std::string message;
};

class YamlRejection : public ::testing::TestWithParam<BadText> {};

TEST_P(YamlRejection, HasThisMessage) {
  EXPECT_EQ(yaml_rejection(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, YamlRejection,
    ::testing::Values(
        BadText{"Alias", "a: &x 1\nb: 2\n", "r.yaml:1:4: anchors are not allowed in a recipe"},
        BadText{"AnchorOnTable", "a: &x {b: 1}\n",
                "r.yaml:1:4: anchors are not allowed in a recipe"},
        BadText{"AnchorOnKey", "&x a: 1\n", "r.yaml:1:1: anchors are not allowed in a recipe"},
        BadText{"Tag", "a: !!int 1\n",
                "r.yaml:1:4: tags are not allowed in a recipe, got 'tag:yaml.org,2002:int'"},
        BadText{"TagOnList", "a: !x [1]\n",
                "r.yaml:1:4: tags are not allowed in a recipe, got '!x'"},
        BadText{"NonSpecificTag", "a: ! 1\n",
                "r.yaml:1:4: tags are not allowed in a recipe, got '!'"},
        BadText{"OpenSingleQuote", "é: 'x'\na: 'it''s\nb: 1\n",
                "r.yaml:2:4: not valid YAML: the quote that opens here is not closed"},
        BadText{"OpenDoubleQuote", "a: \"x\\\"\n",
                "r.yaml:1:4: not valid YAML: the quote that opens here is not closed"},
        BadText{"SecondDocument", "a: 1\n---\nb: 2\n",
                "r.yaml:3:1: expected one YAML document, got a second one"},
        BadText{"DuplicateKey", "a: 1\nb: 2\na: 3\n",
                "r.yaml:3:1: duplicate key 'a', first at r.yaml:1:1"},
        BadText{"DuplicateQuotedKey", "t: {a: 1, \"a\": 2}\n",
                "r.yaml:1:11: duplicate key 'a', first at r.yaml:1:5"},
        BadText{"LongKey", "a: 1\n? " + std::string(1001, 'k') + "\n: 2\n",
                "r.yaml:2:3: a key is longer than 1000 bytes: '" + std::string(60, 'k') + "...'"},
        BadText{"MergeKey", "a: {<<: {b: 1}}\n",
                "r.yaml:1:5: merge keys ('<<') are not allowed in a recipe"},
        BadText{
            "ListAsKey", "? [a, b]\n: 1\n",
            "r.yaml:1:3: expected a word as key, got a list or table (is a bracket not closed?)"},
        BadText{
            "Tab", "a:\n\t- 1\n",
            "r.yaml:2:2: not valid YAML: illegal block entry (a tab is in the indentation, which "
            "takes spaces only)"},
        BadText{"OpenBracket", "a: 1\nb: [2, 3\n",
                "r.yaml:3:1: not valid YAML: end of sequence flow not found"},
        BadText{"OpenBracketAtTheStart", "[1",
                "r.yaml:1:1: expected a word as key, got a list or table (is a bracket not "
                "closed?)"},
        BadText{"NullAsKey", "~: 1\n", "r.yaml:1:1: expected a word as key, got nothing"},
        BadText{"NulByte", std::string("a: \0b\n", 6),
                "r.yaml:1:4: expected UTF-8 text without control characters"},
        BadText{"EndOfTransmission", "a: 1\nb\x04: 2\n",
                "r.yaml:2:2: expected UTF-8 text without control characters"},
        BadText{"ControlInTwoBytes", "a: \xC2\x9B\n",
                "r.yaml:1:4: expected UTF-8 text without control characters"},
        BadText{"BadUtf8", "a: \xC3(\n",
                "r.yaml:1:4: expected UTF-8 text without control characters"},
        BadText{"OverlongUtf8", "a: \xC0\x80\n",
                "r.yaml:1:4: expected UTF-8 text without control characters"},
        BadText{"EscapedByte", "a: \"\\_\"\n",
                "r.yaml:1:4: expected UTF-8 text; for \\_ write \\u00a0, for \\N \\u0085"}),
    [](const auto& test) { return test.param.name; });

// What is printed of a recipe has no effect on a terminal, and is the same when read again.
TEST(YamlDocument, ControlCharactersAreWrittenEscaped) {
  const YamlNode node = parse_yaml(R"(a: "\x1b[31m\x9b\u202e\u2028\"\\")", "r.yaml");
  EXPECT_EQ(node.entries[0].value.text, "\x1b[31m\xC2\x9B\xE2\x80\xAE\xE2\x80\xA8\"\\");
  const std::string written = to_yaml(node);
  EXPECT_EQ(written, R"(a: "\x1b[31m\x9b\u202e\u2028\"\\")"
                     "\n");
  EXPECT_EQ(parse_yaml(written, "w.yaml"), node);
}

TEST(YamlDocument, RejectsAnUndefinedAlias) {
  EXPECT_THAT(yaml_rejection("a: *x\n"), StartsWith("r.yaml:1:4: "));
}

TEST(YamlDocument, BrokenYamlHasAPlaceAndOneLine) {
  for (const char* text : {"a: [1, 2\n", "a: b: c\n", "a: 'x\n", "\ta: 1\n", "a: }\n",
                           "- a\nb: 1\n", "a: \"\\q\"\n", "%FOO\n---\na: %\n"}) {
    const std::string message = yaml_rejection(text);
    EXPECT_THAT(message, StartsWith("r.yaml:")) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(YamlDocument, ReadsByteOrderMarkWindowsLinesAndBlockText) {
  const YamlNode node = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 'x'\r\nb: \"y\"\r\nc: |\r\n  z\r\nd: ''\r\n",
      "r.yaml");
  ASSERT_EQ(node.entries.size(), 4u);
  EXPECT_EQ(node.entries[1].value.text, "y");
  EXPECT_EQ(node.entries[2].value.text, "z\n");
  EXPECT_EQ(node.entries[3].value.text, "");
}

TEST(YamlDocument, DepthAtTheLimitIsAcceptedAndAboveRejected) {
  const auto nested = [](int depth) { return repeated("[", depth) + repeated("]", depth); };
  EXPECT_EQ(yaml_rejection(nested(kMaxYamlDepth)), "accepted");
  EXPECT_EQ(yaml_rejection(nested(kMaxYamlDepth + 1)),
            "r.yaml:1:33: expected at most 32 levels of nesting, got more");
}

TEST(YamlDocument, NodesAtTheLimitAreAcceptedAndAboveRejected) {
  const auto list = [](int items) { return std::string("[").append(repeated("1,", items)) + "]"; };
  EXPECT_EQ(yaml_rejection(list(kMaxYamlNodes - 1)), "accepted");
  EXPECT_THAT(yaml_rejection(list(kMaxYamlNodes)),
              HasSubstr("expected at most 40000 values, got more"));
}

TEST(YamlDocument, BombsAreRejectedQuickly) {
  const int kBytes = static_cast<int>(kMaxYamlBytes);
  std::string staircase;
  for (int i = 0; i < 600; ++i) staircase += repeated(" ", i) + "a:\n";
  const std::vector<std::string> bombs{repeated("[", kBytes),
                                       repeated("{", kBytes),
                                       repeated("[{", kBytes / 2),
                                       repeated("{a: ", kBytes / 4),
                                       repeated("- ", kBytes / 2),
                                       repeated("? ", kBytes / 2),
                                       repeated("[a: ", kBytes / 4),
                                       repeated("!", kBytes),
                                       repeated("a: ", kBytes / 3),
                                       repeated("\"", kBytes),
                                       repeated("&a ", kBytes / 3),
                                       repeated("---\n", kBytes / 4),
                                       repeated("]", kBytes),
                                       repeated(": ", kBytes / 2),
                                       repeated("|\n", kBytes / 2),
                                       repeated("%TAG ! !\n", kBytes / 9),
                                       "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\n",
                                       staircase};
  for (const std::string& bomb : bombs) {
    const auto start = std::chrono::steady_clock::now();
    const std::string message = yaml_rejection(bomb);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_THAT(message, StartsWith("r.yaml:")) << bomb.substr(0, 20);
    EXPECT_LT(seconds.count(), 3.0) << bomb.substr(0, 20);
  }
}

TEST(YamlDocument, TwoMegabytesAreRejectedBeforeParsing) {
  EXPECT_EQ(yaml_rejection(repeated("[", 2'000'000)),
            "r.yaml:1:1: expected at most 1048576 bytes, got 2000000");
}

TEST(YamlDocument, EveryTruncationAndByteChangeEndsInATreeOrAnInputError) {
  const std::string text = kQuantizedRecipe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_NO_FATAL_FAILURE(yaml_rejection(text.substr(0, i)));
    for (char c : {'[', '{', ':', '-', '\n', ' ', '"', '&', '*', '!', '%', '\x80'}) {
      std::string changed = text;
      changed[i] = c;
      const std::string message = yaml_rejection(changed);
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
}

// The examples of https://yaml.org/type (int, float, bool, null, timestamp) and of YAML 1.2's core
// schema, as texts, and what no reader mistakes.
TEST(YamlDocument, TextsThatLookLikeSomethingElseAreQuoted) {
  const auto emitted = [](const std::string& text, bool quoted) {
    return to_yaml({.kind = YamlNode::Kind::kScalar, .text = text, .quoted = quoted});
  };
  for (const std::string text :
       {"685230", "+685_230",   "02472256",   "0x_0A_74_AE", "0b1010_0111", "0o14", "-17", "1e3",
        "6.8523", "685.230_15", "-.inf",      ".NaN",        ".5",          "-.5",  "12.", "y",
        "No",     "TRUE",       "false",      "on",          "Off",         "YES",  "n",   "~",
        "null",   "",           "2002-12-14", "1:20",        "=",           "<<",   "-",   "...",
        "Null",   "+1",         "1_000"}) {
    EXPECT_EQ(emitted(text, true), "\"" + text + "\"\n");
  }
  for (const std::string text : {"conv1", "block.0.conv", "../data", "./x", "a-1", "north", "tf32",
                                 "e3", "fc.weight", "nan", "-x", "+", "inf"}) {
    EXPECT_EQ(emitted(text, true), text + "\n");
  }
  for (const std::string text : {"3", "-1.5e-05", "true"}) {
    EXPECT_EQ(emitted(text, false), text + "\n");
  }
  EXPECT_EQ(emitted("1e-08", false), "1.0e-08\n");  // a float of YAML 1.1 has a point
  EXPECT_EQ(emitted("-2e+20", false), "-2.0e+20\n");
  const YamlNode table = parse_yaml("{\"on\": 1}", "r.yaml");
  EXPECT_EQ(to_yaml(table), "\"on\": 1\n");
}

TEST(YamlDocument, EmittedTextParsesToTheSameTree) {
  const char* text =
      "a: [1, [2, 3], []]\nb: {}\nc:\n  - {d: \"x: y\", e: [{f: 1}]}\n  - \"null\"\n"
      "\"odd key\": \"tab\\tquote\\\"back\\\\ é\"\nf: '...'\ng: '-'\nh: '#'\n";
  const YamlNode tree = parse_yaml(text, "r.yaml");
  const std::string emitted = to_yaml(tree);
  EXPECT_EQ(parse_yaml(emitted, "emitted.yaml"), tree) << emitted;
}

}  // namespace
}  // namespace steelyard
