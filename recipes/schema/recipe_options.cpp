#include "steelyard/recipes/schema/recipe_options.h"

#include <algorithm>

#include "steelyard/export/compressed_tensors.h"
#include "steelyard/observers/registry.h"
#include "steelyard/recipes/language/option_docs.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

Table<InitSpec::Rename> rename_table() {
  return {"A rule that renames tensors.",
          {key("from", "a regular expression (RE2's syntax); every match is replaced",
               &InitSpec::Rename::from)
               .required(),
           key("to", "what replaces it, where `\\1` is the first group; absent: nothing",
               &InitSpec::Rename::to)}};
}

Table<Recipe> init_table() {
  return {
      "Where the weights come from; random when absent.",
      {key("checkpoint",
           "a safetensors file with PyTorch's names, or a file of `torch.save` with a state "
           "dict, at its top or as its entry `state_dict`, `model_state_dict` or `model`",
           &Recipe::init_checkpoint)
           .required(),
       list_of<InitSpec::Rename, Recipe>(
           "rename", "renaming rules for the tensors in the file, applied one after the other",
           rename_table(), &Recipe::init, &InitSpec::rename),
       key("skip",
           "modules or tensors that are not loaded and keep their random values, such as the last "
           "layer if the classes are others; `re:` and a regular expression matches whole paths",
           &Recipe::init, &InitSpec::skip)
           .items(1)}};
}

Table<OwnPart> needs_table() {
  return {"A part that the library does not have.",
          {key("kind", "kind of part", &OwnPart::kind).required(),
           key("name", "its name in recipes", &OwnPart::name).required(),
           key("plugin", "the plugin that adds it; empty: a C++ program", &OwnPart::plugin)
               .by_default("\"\"")
               .may_be_empty()}};
}

// Samples without labels have what the float model gives for them as they are.
void require_teachable(const OptionReader& from, const Recipe& recipe) {
  const Loss& loss = recipe.train.trainer.loss;
  const bool fidelity = loss.type == Loss::Type::kFidelity;
  const std::string& place = from.table("train").at("loss").place;
  if (recipe.data.labels) {
    if (!fidelity) return;
    fail_at(place,
            "train.loss: fidelity compares with what the float model gives: it needs "
            "data.labels: false");
  }
  constexpr const char* kWithout =
      "data.labels: false: the float model's outputs are the targets: ";
  if (loss_info(loss).targets != TargetKind::kValues) {
    fail_at(place, kWithout + ("train.loss: expected fidelity, mse, huber or cosine, got " +
                               loss_name(loss)));
  }
  const Augmentation& augment = recipe.data.loader.augment;
  if (augment.places() || augment.changes_bytes() || augment.mixes() || augment.resized_crop ||
      augment.erasing) {
    fail_at(from.table("data").at("augment").place,
            std::string(kWithout) +
                "data.augment: expected none, they belong to the samples as "
                "they are");
  }
}

// Modules that are not trained keep their ranges and their statistics.
void require_known_ranges(const OptionReader& from, const Recipe& recipe) {
  if (recipe.train.only.empty()) return;
  const std::string& place = from.table("train").at("only").place;
  if (recipe.quantize && !recipe.calibrates) {
    fail_at(place,
            "train.only with 'quantize' needs 'calibrate', which finds the ranges of modules that "
            "are not trained");
  }
  if (recipe.reestimate_bn) {
    fail_at(place,
            "train.only keeps batch norms, schedule.reestimate_bn changes them: expected one of "
            "the two");
  }
}

void require_rows_for_shards(const OptionReader& from, const Recipe& recipe) {
  const std::int64_t shards = recipe.train.trainer.shards;
  if (shards <= recipe.data.loader.batch_size) return;
  fail_at(from.table("train").at("shards").place,
          "train.shards: expected at most the data.batch_size of " +
              std::to_string(recipe.data.loader.batch_size) + ", got " + std::to_string(shards));
}

// The range of a batch must follow from the ranges of its shards.
void require_mergeable_ranges(const OptionReader& from, const Recipe& recipe) {
  if (!recipe.quantize) return;
  const std::int64_t shards = recipe.train.trainer.shards;
  const std::optional<bool> delayed = recipe.quantize->delayed_ranges;
  if (delayed && !*delayed && shards > 1) {
    fail_at(from.table("quantize").at("ranges").place,
            "quantize.ranges: current needs one shard, train.shards is " + std::to_string(shards));
  }
  if (recipe.schedule.keep_ranges || !delayed.value_or(shards > 1)) return;
  for (std::size_t i = 0; i < recipe.quantize->config.groups.size(); ++i) {
    const auto& activations = recipe.quantize->config.groups[i].config.activations;
    if (!activations || activations->scheme.dynamic ||
        observers::merges_over_shards(activations->observer)) {
      continue;
    }
    fail_at(recipe.quantize->group_places[i],
            "the observer " + activations->observer.type +
                " of activations measures whole batches: it needs one shard, and "
                "quantize.ranges: current");
  }
}

// A GGUF file has one arithmetic, and is made of another one.
void require_gguf_target(const OptionReader& from, const Recipe& recipe) {
  if (!recipe.exports.target) {
    if (!recipe.model.gguf || !recipe.quantize) return;
    fail_at(from.at("quantize").place,
            "quantize: a language model (model.gguf) needs export.target beside it");
  }
  const std::string& place = from.table("export").at("target").place;
  const std::string target = "export.target: " + word_of(*recipe.exports.target);
  if (!recipe.model.gguf) fail_at(place, target + " needs model.gguf");
  if (!recipe.exports.formats.empty()) {
    fail_at(place, target + " is written by `steelyard export`: expected no export.formats");
  }
}

// What a folder of transformers has a form for.
void require_compressed_form(const OptionReader& from, const Recipe& recipe) {
  if (!recipe.model.huggingface) return;
  if (!recipe.exports.formats.empty()) {
    fail_at(from.table("export").at("formats").place,
            "export.formats: a language model of model.huggingface becomes such a folder by "
            "`steelyard export`: expected none");
  }
  if (!recipe.quantize) return;
  const auto& groups = recipe.quantize->config.groups;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string refusal = deploy::refusal_of_compressed(groups[i].config);
    if (refusal.empty()) continue;
    fail_at(recipe.quantize->group_places[i],
            "a language model of model.huggingface is exported as compressed-tensors has it: " +
                refusal);
  }
}

// What belongs to a loop, and is not done where that is the host's.
void require_what_a_host_does_not(const OptionReader& from, const Recipe& recipe) {
  const auto refuse = [&](const char* table, const char* key, const char* why) {
    const OptionReader of(from.at(table));
    fail_at(of.has(key) ? of.at(key).place : of.place(),
            std::string(table) + "." + key + ": " + why);
  };
  if (recipe.quantize) {
    if (recipe.quantize->scale_lr) {
      refuse("quantize", "algorithm", "scale_lr: the learning rates are the host optimizer's");
    }
    if (recipe.quantize->delayed_ranges.value_or(false)) {
      refuse("quantize", "ranges", "delayed needs the trainer's steps: expected current");
    }
    if (recipe.quantize->oscillations) {
      refuse("quantize", "oscillations",
             "they are followed by the trainer, which the host replaces");
    }
  }
  if (recipe.reestimate_bn) {
    refuse("schedule", "reestimate_bn", "it follows the last epoch, which only the host knows");
  }
  if (!recipe.exports.formats.empty()) {
    refuse("export", "formats", "the host exports when it wants to: expected none");
  }
  if (recipe.exports.target) {
    refuse("export", "target", "GGUF files are of models that the command line trains");
  }
  if (recipe.exports.limits) {
    refuse("export", "limits", "they are checked by the trainer, which the host replaces");
  }
  if (recipe.exports.stream) {
    refuse("export", "stream", "it is of files that the command line writes");
  }
}

std::vector<Row<Recipe>> recipe_rows(const Registries& registries) {
  return {
      key_of<std::int64_t, Recipe>("version", "version of the recipe format: 1",
                                   [](Recipe&, std::int64_t) {})
          .required()
          .within(1, 1),
      key("name", "name of the run and its folder", &Recipe::name)
          .required()
          .matching("[A-Za-z0-9_][A-Za-z0-9._-]*", "a name of letters, digits, '.', '_' and '-'")
          .role(OptionRole::kNotEssential),
      key("seed", "random seed for initialization, shuffling and augmentation", &Recipe::seed)
          .also(&Recipe::data, &DataSpec::loader, &LoaderOptions::seed)
          .also(&Recipe::train, &TrainSpec::trainer, &TrainerOptions::seed)
          .by_default("1")
          .at_least(0),
      key("device", "where to train; auto: the first GPU that works, else the CPU", &Recipe::device)
          .by_default("auto")
          .matching("auto|cpu|cuda(:[0-9]{1,3})?", "auto, cpu, cuda or cuda:N")
          .role(OptionRole::kFree),
      nested<Recipe>("data", data_table(registries), &Recipe::data).required(),
      nested<Recipe>("model", registries.models.model_table(), &Recipe::model).required(),
      nested<Recipe>("init", init_table()).role(OptionRole::kNotEssential),
      nested<Recipe>("train", train_table(registries), &Recipe::train).required(),
      nested<Recipe>("quantize", quantize_table(registries), &Recipe::quantize),
      nested<Recipe>("calibrate", calibrate_table()).needs("quantize"),
      nested<Recipe>("schedule", schedule_table()).by_default("{}"),
      nested<Recipe>("export", export_table()).by_default("{}"),
      list_of<OwnPart, Recipe>(
          "needs",
          "parts of plugins and C++ programs that the recipe names; the recipe in a "
          "run's folder lists them. Naming a part loads nothing: `--plugin` does "
          "(docs/own_parts.md)",
          needs_table(), &Recipe::needs)
          .role(OptionRole::kFree)};
}

void check_recipe(const OptionReader& from, Recipe& recipe) {
  if (from.has("schedule")) check_schedule(from.table("schedule"), recipe);
  require_teachable(from, recipe);
  require_gguf_target(from, recipe);
  require_compressed_form(from, recipe);
  require_known_ranges(from, recipe);
  require_rows_for_shards(from, recipe);
  require_mergeable_ranges(from, recipe);
}

// Blocks have no ranges that other keys could change: those are errors.
void need_ranges(RecipeOption& option) {
  if (option.needs == "quantize") option.needs = "quantize' without 'export.target";
  for (RecipeOption& member : option.members) need_ranges(member);
}

}  // namespace

Table<Recipe> recipe_table(const Registries& registries) {
  return Table<Recipe>("", recipe_rows(registries)).check(check_recipe);
}

Table<Recipe> target_table(const Registries& registries) {
  std::vector<Row<Recipe>> rows = recipe_rows(registries);
  for (Row<Recipe>& row : rows) {
    need_ranges(row.option);
    if (row.option.name != "quantize") continue;
    row = nested<Recipe>("quantize", block_table(), &Recipe::exports, &ExportSpec::blocks);
  }
  return Table<Recipe>("", std::move(rows)).check([](const OptionReader& from, Recipe& recipe) {
    check_recipe(from, recipe);
    check_blocks(from, recipe);
  });
}

Table<Recipe> hosted_table(const Registries& registries) {
  constexpr std::string_view kKeys[] = {"version",  "name",     "seed",
                                        "quantize", "schedule", "export"};
  std::vector<Row<Recipe>> rows = recipe_rows(registries);
  std::erase_if(rows, [&](const Row<Recipe>& row) {
    return std::find(std::begin(kKeys), std::end(kKeys), row.option.name) == std::end(kKeys);
  });
  return Table<Recipe>("", std::move(rows)).check([](const OptionReader& from, Recipe& recipe) {
    if (from.has("schedule")) check_schedule(from.table("schedule"), recipe);
    require_what_a_host_does_not(from, recipe);
  });
}

RecipeOption recipe_options(const Registries& registries) {
  return recipe_table(registries).option();
}

std::string recipe_schema(const Registries& registries) {
  return json_schema(recipe_options(registries), "Steelyard recipe");
}

std::string recipe_markdown(const Registries& registries) {
  return "# Recipes\n\n"
         "For users of the command line and of C++: every key of a recipe, with its values,\n"
         "default and meaning. [tutorial.md](tutorial.md#which-preset-to-copy) says which recipe\n"
         "to start from; [glossary.md](glossary.md) explains the terms.\n\n"
         "One YAML file describes a training run. Every key is checked: an unknown key, a wrong\n"
         "type or a value out of range is an error with its line and column. Whole numbers are\n"
         "decimal, booleans are `true` and `false`; anchors, aliases, tags and merge keys are not\n"
         "allowed, nor keys of more than 1000 bytes. `--set key.path=value` replaces one value\n"
         "(`null` removes the key, a number in the path is a list index). The resolved recipe, "
         "with\n"
         "every default but those that follow from other keys (\"absent: ...\" below), is saved "
         "with\n"
         "the run.\n\n"
         "This page is generated from the rows that declare the keys: in `recipes/schema/`\n"
         "(`*_rows.cpp`, `recipe_options.cpp`), `recipes/models/` (`model` and its layers) and\n"
         "`observers/registry.cpp`.\n\n" +
         markdown(recipe_options(registries));
}

}  // namespace steelyard
