// Parts that a program adds to the library's, in recipes.
#include "steelyard/recipes/schema/registries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/observers/min_max.h"
#include "steelyard/recipes/runs/recipe_data.h"
#include "steelyard/recipes/runs/records/run_record.h"
#include "steelyard/recipes/schema/recipe_options.h"
#include "tests/recipes/recipe_support.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;

struct Factor {
  double factor = 1;
};
struct Count {
  std::int64_t count = 4;
};

std::vector<Row<Factor>> factor_rows() {
  return {key("factor", "a factor", &Factor::factor).by_default().within(0, 10)};
}

LossInfo scaled_mean(const Factor& options) {
  if (options.factor == 7) throw std::runtime_error("no sevens");
  return {.targets = TargetKind::kClass,
          .compute = [factor = options.factor](const Loss&, const Variable& outputs, const Tensor&,
                                               const LossPart&) {
            if (factor == 9) throw std::runtime_error("no nines");
            return factor * mean(outputs);
          }};
}

DatasetSplits load_zeros(const Count& options, const DatasetRequest&) {
  const auto zeros = [&] {
    return Dataset{Tensor::zeros({options.count, 2}), Tensor::zeros({options.count}, DType::kI64),
                   2};
  };
  return {zeros(), zeros()};
}

std::unique_ptr<observers::Observer> make_min_max(const Factor&, const observers::QScheme&,
                                                  std::int64_t channels) {
  return std::make_unique<observers::MinMaxObserver>(channels);
}

void add_all(Registries& registries) {
  registries.add_dataset<Count>(
      "zeros", "nothing but zeros",
      {key("count", "samples", &Count::count).by_default().within(1, 100)}, "none", load_zeros);
  registries.add_loss<Factor>("scaled", "a mean", factor_rows(), scaled_mean);
  registries.add_observer<Factor>("mine", "", factor_rows(), true, make_min_max);
  registries.add_metric({.name = "one",
                         .label = "one",
                         .value = [](const Predictions&, const Dataset&) { return 1.0; }});
}

Registries with_all() {
  Registries registries;
  registries.adding = "my_plugin";
  add_all(registries);
  registries.adding.clear();
  return registries;
}

constexpr const char* kOwn = R"(version: 1
name: own
data: {dataset: zeros, count: 6, validation: 0}
model: {type: mlp, hidden: [8]}
train: {epochs: 1, loss: scaled, factor: 2, best: one, optimizer: {type: sgd, lr: 0.1}}
quantize:
  groups:
    - {targets: [Linear], weights: {observer: mine, factor: 3}, activations: {}}
)";

Recipe own_recipe(const Registries& registries, const std::string& text = kOwn) {
  return parse_recipe(text, "r.yaml", {}, registries);
}

TEST(OwnParts, AreReadWithTheirOptions) {
  const Registries registries = with_all();
  const Recipe recipe = own_recipe(registries);
  const Loss& loss = recipe.train.trainer.loss;
  const Variable outputs(Tensor::full({2, 2}, 3));
  EXPECT_EQ(compute_loss(loss, outputs, Tensor::zeros({2}, DType::kI64)).value().item(), 6);
  EXPECT_EQ(loss_name(loss), "scaled");
  EXPECT_EQ(load_splits(recipe, registries.datasets).train.size(), 6);
  const auto& observer = recipe.quantize->config.groups[0].config.weights->observer;
  EXPECT_EQ(observers::make_observer(observer, {}, 1)->name(), "min_max");
  EXPECT_TRUE(observers::merges_over_shards(observer));
}

TEST(OwnParts, HaveDefaultsInTheResolvedRecipeAsAllOptionsHave) {
  const Registries registries = with_all();
  const Recipe recipe = own_recipe(registries, with(kOwn, "count: 6, ", ""));
  EXPECT_EQ(recipe.resolved.find("data")->find("count")->text, "4");
  EXPECT_EQ(load_splits(recipe, registries.datasets).train.size(), 4);
  const std::string text = resolved_yaml(recipe);
  EXPECT_EQ(resolved_yaml(own_recipe(registries, text)), text);
  EXPECT_EQ(registries.datasets.load("zeros").train.size(), 4) << "without a recipe";
}

TEST(OwnParts, WrongOptionsAreRefusedWithTheirPlace) {
  const Registries registries = with_all();
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return rejection([&] { own_recipe(registries, with(kOwn, from, to)); });
  };
  EXPECT_EQ(refusal("factor: 2", "factor: 11"),
            "r.yaml:5:42: expected a number from 0 to 10, got '11'");
  EXPECT_EQ(refusal("loss: scaled", "loss: mse"),
            "r.yaml:5:31: key 'factor' applies only to loss scaled");
  EXPECT_EQ(refusal("dataset: zeros", "dataset: idx"),
            "r.yaml:3:22: key 'count' applies only to dataset zeros");
  EXPECT_THAT(refusal("best: one", "distill: {checkpoint: a.pt}"),
              HasSubstr("distill needs the loss cross_entropy or token_cross_entropy, got scaled"));
  EXPECT_THAT(refusal("loss: scaled", "loss: scale"), HasSubstr("did you mean 'scaled'?"));
  EXPECT_THAT(refusal("count", "cout"), HasSubstr("unknown key 'cout' (did you mean 'count'?)"));
}

TEST(OwnParts, NamesThatAreTakenAreErrors) {
  Registries registries = with_all();
  const auto taken = [](const std::function<void()>& add) {
    return testing::message_of<std::invalid_argument>(add);
  };
  EXPECT_EQ(taken([&] { registries.add_loss<Factor>("huber", "", {}, scaled_mean); }),
            "[registries] the loss 'huber' is taken: by the library");
  EXPECT_EQ(taken([&] { registries.add_loss<Factor>("scaled", "", {}, scaled_mean); }),
            "[registries] the loss 'scaled' is taken: by the plugin my_plugin");
  EXPECT_THAT(taken([&] { registries.add_dataset<Count>("idx", "", {}, "", load_zeros); }),
              HasSubstr("dataset 'idx'"));
  EXPECT_THAT(taken([&] { registries.add_observer<Factor>("mse", "", {}, true, make_min_max); }),
              HasSubstr("observer 'mse'"));
  EXPECT_THAT(taken([&] { registries.add_metric({.name = "top1"}); }), HasSubstr("metric 'top1'"));
  EXPECT_THAT(taken([&] { registries.add_layer<Factor>("Linear", "", {}, nullptr); }),
              HasSubstr("layer 'Linear'"));
  EXPECT_THAT(taken([&] { registries.add_model<Factor>("mlp", "", {}, nullptr); }),
              HasSubstr("model 'mlp'"));
  qat::QuantizedForm form;
  form.type = "Linear";
  EXPECT_THAT(taken([&] { registries.add_form(form); }), HasSubstr("Linear has a quantized form"));
}

TEST(OwnParts, AnOptionWithTheNameOfAKeyBesideItIsAnError) {
  Registries registries;
  registries.add_loss<Factor>("mine", "", {key("epochs", "", &Factor::factor)}, scaled_mean);
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { recipe_options(registries); }),
            "[recipes] the option 'epochs' of 'mine' has the name of a key beside it");
}

TEST(OwnParts, AResolvedRecipeSaysWhatItNeeds) {
  const Registries registries = with_all();
  const Recipe recipe = own_recipe(registries);
  const std::vector<OwnPart> expected{{PartKind::kDataset, "zeros", "my_plugin"},
                                      {PartKind::kLoss, "scaled", "my_plugin"},
                                      {PartKind::kMetric, "one", "my_plugin"},
                                      {PartKind::kObserver, "mine", "my_plugin"}};
  EXPECT_EQ(recipe.needs, expected);
  const std::string text = resolved_yaml(recipe);
  EXPECT_EQ(own_recipe(registries, text).needs, expected);
  EXPECT_THAT(rejection([&] { own_recipe(builtin_registries(), text); }),
              HasSubstr("the recipe needs the dataset 'zeros' of the plugin my_plugin: pass "
                        "--plugin with its shared object"));
  EXPECT_EQ(essential_recipe(recipe).find("needs"), nullptr) << "other parts give other results";

  Registries program;
  add_all(program);
  EXPECT_EQ(essential_recipe(own_recipe(program)), essential_recipe(recipe));
  EXPECT_THAT(
      rejection([&] { own_recipe(builtin_registries(), resolved_yaml(own_recipe(program))); }),
      HasSubstr("needs the dataset 'zeros', which a C++ program added"));
}

TEST(OwnParts, ARecipeWithoutThemNeedsNothing) {
  Registries registries;
  registries.add_loss<Factor>("scaled", "", factor_rows(), scaled_mean);
  const Recipe recipe = own_recipe(registries, kSmallRecipe);
  EXPECT_TRUE(recipe.needs.empty());
  EXPECT_EQ(resolved_yaml(recipe), resolved_yaml(parsed(kSmallRecipe)));
}

TEST(OwnParts, WhatTheyThrowNamesThem) {
  const Registries registries = with_all();
  EXPECT_EQ(testing::message_of<std::runtime_error>(
                [&] { own_recipe(registries, with(kOwn, "factor: 2", "factor: 7")); }),
            "the loss 'scaled' of the plugin my_plugin: no sevens");
  const Recipe recipe = own_recipe(registries, with(kOwn, "factor: 2", "factor: 9"));
  EXPECT_EQ(testing::message_of<std::runtime_error>([&] {
              compute_loss(recipe.train.trainer.loss, Variable(Tensor::zeros({1, 2})),
                           Tensor::zeros({1}, DType::kI64));
            }),
            "the loss 'scaled' of the plugin my_plugin: no nines");
  EXPECT_EQ(rejection([] { in_part("a part", [] { throw InputError("a.yaml:1:1: no"); }); }),
            "a.yaml:1:1: no");
  EXPECT_EQ(testing::message_of<std::runtime_error>([] { in_part("a part", [] { throw 7; }); }),
            "a part: threw something that is no std::exception");
}

// Samples of which the second cannot be read.
class Holes : public SampleSource {
 public:
  std::int64_t size() const override { return 2; }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  void read(std::int64_t sample, Rng*, void* to) const override {
    if (sample == 1) throw std::runtime_error("a hole");
    *static_cast<float*>(to) = 0;
  }

 private:
  Shape shape_{1};
};

TEST(OwnParts, WhatTheirSamplesThrowNamesThemAndTheSample) {
  Registries registries;
  registries.adding = "my_plugin";
  registries.add_dataset<Count>("holes", "", {}, "none", [](const Count&, const DatasetRequest&) {
    Dataset holes{{}, Tensor::zeros({2}, DType::kI64), 1};
    holes.source = std::make_shared<Holes>();
    return DatasetSplits{holes, holes};
  });
  const Dataset train = registries.datasets.load("holes", "nowhere").train;
  EXPECT_EQ(testing::message_of<std::runtime_error>([&] { load_samples(train); }),
            "the dataset 'holes' of the plugin my_plugin: sample 1: a hole");
}

// Throws what its factor says: 6 in every pass, else in training.
class Throws : public Module {
 public:
  explicit Throws(double factor) : factor_(factor) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    if (factor_ == 6) throw 6;
    if (!context.training) return x;
    if (factor_ == 7) throw 7;
    if (factor_ == 8) throw std::out_of_range("no eights");
    if (factor_ == 9) throw std::invalid_argument("no nines");
    return x;
  }
  std::string type_name() const override { return "Throws"; }

 private:
  double factor_;
};

Registries with_throwing_layer() {
  Registries registries;
  registries.adding = "my_plugin";
  registries.add_layer<Factor>("Throws", "", factor_rows(),
                               [](const Factor& options, const LayerSpec&, Rng&) {
                                 return std::make_shared<Throws>(options.factor);
                               });
  registries.add_form(qat::form_of<Throws>(
      "Throws", qat::FormKind::kPassesThrough,
      +[](const Throws&, const qat::FormRequest&) -> std::shared_ptr<Module> {
        return std::make_shared<Throws>(9);
      }));
  registries.adding.clear();
  return registries;
}

// A model of one such layer.
std::shared_ptr<Module> throwing_model(const Registries& registries, int factor) {
  const Recipe recipe = own_recipe(
      registries,
      with(kSmallRecipe, "{type: mlp, hidden: [8]}",
           "{layers: [{type: Throws, name: mine, factor: " + std::to_string(factor) + "}]}"));
  Rng rng(0);
  return build_model(recipe.model, Shape{2}, 2, rng, registries.models);
}

TEST(OwnParts, WhatALayerThrowsNamesIt) {
  const Registries registries = with_throwing_layer();
  const Variable x(Tensor::zeros({1, 2}));
  const auto pass = [&](int factor) {
    return
        [&, factor] { (*throwing_model(registries, factor))(x, ForwardContext{.training = true}); };
  };
  pass(1)();
  const std::string begin = "the layer 'Throws' of the plugin my_plugin: ";
  EXPECT_EQ(testing::message_of<std::runtime_error>(pass(7)),
            begin + "threw something that is no std::exception");
  EXPECT_THAT(rejection(pass(6)), HasSubstr("Throws on an input of [2]: " + begin + "threw some"));
  // As an index that no table has, which callers look for.
  EXPECT_EQ(testing::message_of<std::out_of_range>(pass(8)), begin + "mine: no eights");
  EXPECT_EQ(testing::message_of<std::runtime_error>(pass(9)), begin + "mine: no nines");
  const auto form = registries.own_forms[0].make(Throws(1), {});
  EXPECT_EQ(testing::message_of<std::runtime_error>(
                [&] { (*form)(x, ForwardContext{.training = true}); }),
            "the quantized form of Throws of the plugin my_plugin: no nines");
}

// Measures as min_max does, and throws what its factor says.
class ThrowingObserver : public observers::MinMaxObserver {
 public:
  ThrowingObserver(std::int64_t channels, double factor)
      : MinMaxObserver(channels), factor_(factor) {}
  void set_bits(int) override {
    if (factor_ == 7) throw 7;
    throw std::runtime_error("no bits");
  }

 private:
  double factor_;
};

TEST(OwnParts, WhatAnObserverThrowsNamesIt) {
  Registries registries;
  registries.add_observer<Factor>(
      "mine", "", factor_rows(), true,
      [](const Factor& options, const observers::QScheme&, std::int64_t channels) {
        return std::make_unique<ThrowingObserver>(channels, options.factor);
      });
  registries.add_loss<Factor>("scaled", "", factor_rows(), scaled_mean);
  registries.add_dataset<Count>("zeros", "", {key("count", "", &Count::count)}, "none", load_zeros);
  const auto made = [&](const std::string& factor) {
    const Recipe recipe = own_recipe(
        registries, with(with(kOwn, "factor: 3", "factor: " + factor), "best: one, ", ""));
    const auto& observer = recipe.quantize->config.groups[0].config.weights->observer;
    return observers::make_observer(observer, {}, 1);
  };
  EXPECT_EQ(testing::message_of<std::runtime_error>([&] { made("7")->set_bits(8); }),
            "the observer 'mine': threw something that is no std::exception");
  EXPECT_EQ(testing::message_of<std::runtime_error>([&] { made("3")->set_bits(8); }),
            "the observer 'mine': no bits");
  // All else is the observer's own.
  const auto observer = made("3");
  EXPECT_EQ(observer->name(), "min_max");
  EXPECT_EQ(observer->state().size(), observers::MinMaxObserver(1).state().size());
  EXPECT_TRUE(observer->running_range().has_value());
}

TEST(OwnParts, AMetricOwnsItsWords) {
  Registries registries;
  {
    std::string name = "a_rather_long_name_of_a_metric";
    std::vector<Loss::Type> losses{Loss::Type::kHuber};
    registries.add_metric({.name = name,
                           .label = name,
                           .value = [](const Predictions&, const Dataset&) { return 1.0; },
                           .losses = losses});
    std::fill(name.begin(), name.end(), 'Z');
    losses[0] = Loss::Type::kCtc;
  }
  EXPECT_TRUE(registries.has(PartKind::kMetric, "a_rather_long_name_of_a_metric"));
  EXPECT_EQ(registries.own_metrics[0].label, "a_rather_long_name_of_a_metric");
  EXPECT_TRUE(has_metric({.type = Loss::Type::kHuber}, registries.own_metrics[0]));
}

TEST(OwnParts, TheSchemaHasTheirOptions) {
  const auto schema = nlohmann::json::parse(recipe_schema(with_all()));
  const auto& variants = schema["properties"]["train"]["oneOf"];
  ASSERT_EQ(variants.size(), 2U);
  EXPECT_EQ(variants[0]["properties"]["loss"]["enum"], nlohmann::json({"scaled"}));
  EXPECT_EQ(variants[0]["properties"]["factor"]["maximum"], 10);
  EXPECT_FALSE(variants[1]["properties"].contains("factor"));
  EXPECT_THAT(variants[1]["properties"]["loss"]["enum"].dump(), HasSubstr("\"huber\""));
  const auto& data = schema["properties"]["data"]["oneOf"];
  EXPECT_EQ(data[1]["properties"]["dataset"]["not"]["enum"], nlohmann::json({"zeros"}));
}

}  // namespace
}  // namespace steelyard
