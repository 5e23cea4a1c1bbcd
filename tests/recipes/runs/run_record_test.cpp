#include "steelyard/recipes/runs/records/run_record.h"

#include <gtest/gtest.h>

#include <cstring>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/language/recipe_differences.h"
#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

RunRecord example() {
  return {{DType::kU8, {28, 28, 2}, 10},
          {{0.1F, -1e-30F}, {1.0F / 3, 3e30F}},
          std::string(64, 'a'),
          essential_recipe(parsed(kQuantizedRecipe))};
}

std::optional<RunRecord> read(const TensorFileMetadata& metadata) {
  return record_in(metadata, "c.safetensors", builtin_registries());
}

// The floats are those that trained, bit for bit.
TEST(RunRecord, ReadsBackToTheSameBits) {
  const RunRecord record = example();
  TensorFileMetadata metadata{{"step", "3"}};
  add_record(record, metadata);
  EXPECT_EQ(metadata.size(), 3u);
  const auto again = read(metadata);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->input, record.input);
  EXPECT_EQ(again->normalization, record.normalization);
  EXPECT_EQ(again->data_digest, record.data_digest);
  EXPECT_EQ(again->recipe, record.recipe);
  EXPECT_EQ(normalization_in(metadata, "c"), record.normalization);

  const std::string given = "data: {dataset: d, normalize: " + normalize_text(record.normalization);
  const Recipe recipe = parsed(with(kSmallRecipe, "data: {dataset: fashion_mnist", given));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto mean = static_cast<float>(recipe.data.normalize.mean[i]);
    EXPECT_EQ(std::memcmp(&mean, &record.normalization.mean[i], sizeof mean), 0);
    EXPECT_EQ(static_cast<float>(recipe.data.normalize.stddev[i]), record.normalization.stddev[i]);
  }
  EXPECT_EQ(normalize_text({}), "none");

  RunRecord named = record;
  named.input = {DType::kF32, {3}, 2, {{"a\n\"", "b"}, {{"size", {}, 0.1F}, {"kind", {"", "x"}}}}};
  named.normalization = {};
  add_record(named, metadata);
  EXPECT_EQ(read(metadata)->input, named.input);
  EXPECT_EQ(difference_of_names(named.input.names, named.input.names), "");
  EXPECT_EQ(difference_of_names({{"a", "b"}}, {{"a"}}),
            "; its class 1 is 'b', the dataset's is absent");
  EXPECT_EQ(difference_of_names({{}, {{"x"}}}, {{}, {{"y"}}}),
            "; its column 0 is 'x', the dataset's is 'y'");
  EXPECT_EQ(difference_of_names({{}, {{"x"}}}, {{}, {{"x", {"c"}}}}),
            "; categories or missing values of its columns differ");
}

// What the outputs of a regression are in units of.
TEST(RunRecord, HoldsTheNormalizationOfTargets) {
  RunRecord record = example();
  TensorFileMetadata metadata;
  add_record(record, metadata);
  EXPECT_EQ(metadata["data"].find("target_mean"), std::string::npos);
  EXPECT_FALSE(target_normalization_in(metadata, "c")) << "of classes";
  record.input.classes = 0;
  add_record(record, metadata);
  EXPECT_EQ(target_normalization_in(metadata, "c"), Normalization{}) << "raw targets";
  record.target_normalization = {{250000.125F, -1e-30F}, {1.0F / 3, 3e30F}};
  add_record(record, metadata);
  EXPECT_EQ(target_normalization_in(metadata, "c"), record.target_normalization);
  EXPECT_EQ(read(metadata)->target_normalization, record.target_normalization);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"target_std\":[", "\"target_std\":[0.0,"},
           {"\"target_mean\":[", "\"target_mean\":[1.0,"},
           {"\"target_std\"", "\"target_stddev\""},
           {"\"classes\":0", "\"classes\":10"}}) {
    TensorFileMetadata damaged = metadata;
    damaged["data"] = with(damaged["data"], from, to);
    EXPECT_NE(rejection([&] { read(damaged); }).find("metadata 'data' is not valid"),
              std::string::npos);
  }
}

// The network is in the checkpoint: where it came from decides nothing.
TEST(RunRecord, HoldsAnImportedNetworkAndNotItsFile) {
  const auto recipe_with = [](const std::string& file) {
    return parsed(with(kSmallRecipe, "{type: mlp, hidden: [8]}", "{onnx: " + file + "}"));
  };
  RunRecord record = example();
  record.recipe = essential_recipe(recipe_with("a.onnx"));
  record.network = R"({"format":1})";
  TensorFileMetadata metadata;
  add_record(record, metadata);
  EXPECT_EQ(metadata.at("network"), record.network);
  const auto again = read(metadata);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->network, record.network);
  EXPECT_EQ(again->recipe, essential_recipe(recipe_with("b.onnx")));
  EXPECT_NE(lasting_recipe(recipe_with("a.onnx")), lasting_recipe(recipe_with("b.onnx")));
}

TEST(RunRecord, IsAbsentFromCheckpointsOfEarlierVersions) {
  EXPECT_FALSE(read({{"step", "3"}}));
  EXPECT_FALSE(normalization_in({{"step", "3"}}, "c"));
}

// A recipe of before an option was there has its default.
TEST(RunRecord, TakesRecipesOfEarlierVersions) {
  TensorFileMetadata metadata;
  add_record(example(), metadata);
  std::string& text = metadata["recipe"];
  text = with(text, "  normalize: dataset\n", "");
  EXPECT_EQ(read(metadata)->recipe, example().recipe);
}

TEST(RunRecord, RefusesWhatNoRunWrites) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"u8\"", "\"i8\""},
                                                        {"[28,28,2]", "[28,28]"},
                                                        {"[28,28,2]", "[28,28,0]"},
                                                        {"[28,28,2]", "[4611686018427387904,4,2]"},
                                                        {"[28,28,2]", "\"x\""},
                                                        {":10", ":-1"},
                                                        {":10", ":1e300"},
                                                        {":10", ":10.5"},
                                                        {":10", ":\x7f"},
                                                        {"[28,28,2]", "[28,28.5,2]"},
                                                        {"\"mean\":[", "\"mean\":[0.5,"},
                                                        {"\"std\":[", "\"std\":[0.0,"},
                                                        {"\"std\":[", "\"std\":[-1.0,"},
                                                        {"\"mean\"", "\"means\""},
                                                        {"{", ""}}) {
    TensorFileMetadata metadata;
    add_record(example(), metadata);
    metadata["data"] = with(metadata["data"], from, to);
    const std::string message = rejection([&] { read(metadata); });
    EXPECT_TRUE(message.starts_with("c.safetensors: metadata 'data' is not valid: "))
        << metadata["data"] << "\n"
        << message;
    EXPECT_EQ(message, printable(message, message.size()));
  }
  TensorFileMetadata metadata;
  add_record(example(), metadata);
  metadata["recipe"] += "colour: red\n";
  EXPECT_NE(rejection([&] { read(metadata); }).find("metadata 'recipe'"), std::string::npos);
}

// Equal results, equal files.
TEST(RunRecord, HoldsOnlyWhatDecidesOnTheResult) {
  const YamlNode plain = essential_recipe(parsed(kQuantizedRecipe));
  for (const char* without_effect :
       {"name=other", "device=cuda:1", "data.path=elsewhere", "init={checkpoint: x}",
        "train.tensorboard=true", "train.cuda_graph=off", "train.checkpoint_every_steps=5",
        "train.divergence_limit=0", "export.formats=[onnx]"}) {
    EXPECT_EQ(essential_recipe(parsed(kQuantizedRecipe, {without_effect})), plain)
        << without_effect;
  }
  for (const char* with_effect : {"seed=2", "data.batch_size=5", "data.normalize=none",
                                  "train.optimizer.lr=0.5", "export.profile=tensorrt"}) {
    EXPECT_NE(essential_recipe(parsed(kQuantizedRecipe, {with_effect})), plain) << with_effect;
  }
}

TEST(RunRecord, EpochsOnlyGrow) {
  YamlNode three = essential_recipe(parsed(kSmallRecipe));
  const YamlNode two = essential_recipe(parsed(kSmallRecipe, {"train.epochs=2"}));
  const YamlNode nine = essential_recipe(parsed(kSmallRecipe, {"train.epochs=9"}));
  EXPECT_FALSE(take_more_epochs(three, two));
  EXPECT_NE(three, two);
  EXPECT_TRUE(take_more_epochs(three, nine));
  EXPECT_EQ(three, nine);
}

TEST(RecipeDifferences, NamesKeysAndValues) {
  const auto differences = [](const std::string& a, const std::string& b) {
    return to_string(recipe_differences(parse_yaml(a, "a"), parse_yaml(b, "b")), "given");
  };
  EXPECT_EQ(differences("{a: 1, b: {c: [1, 2]}}", "{a: 1, b: {c: [1, 2]}}"), "");
  EXPECT_EQ(differences("{a: 1, b: {c: x}}", "{a: 2, b: {c: y}}"),
            "a ('1', given '2'), b.c ('x', given 'y')");
  EXPECT_EQ(differences("{a: 1}", "{b: [1, 2]}"),
            "a ('1', given nothing), b (nothing, given '[1, 2]')");
  EXPECT_EQ(differences("[{a: 1}, {a: 2}]", "[{a: 1}, {a: 3}]"), "1.a ('2', given '3')");
  EXPECT_EQ(differences("{a: [{a: 1}]}", "{a: [{a: 1}, {a: 3}]}"), "a (a list, given a list)");
  EXPECT_EQ(differences("{a: {b: 1}}", "{a: 1}"), "a (a table, given '1')");
  EXPECT_EQ(differences("[1, 2]", "[1]"), " ('[1, 2]', given '[1]')");
  EXPECT_EQ(differences("{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1}", "{}"),
            "a ('1', given nothing), b ('1', given nothing), c ('1', given nothing), "
            "d ('1', given nothing), e ('1', given nothing) and 2 more");
}

}  // namespace
}  // namespace steelyard
