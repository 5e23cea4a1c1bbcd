// The section `data`.
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

Table<NormalizeSpec> given_normalization() {
  constexpr double kLargest = 3.4e38;
  constexpr std::size_t kMostChannels = 65536;
  return Table<NormalizeSpec>(
             "", {key("mean", "mean of each channel", &NormalizeSpec::mean)
                      .required()
                      .within(-kLargest, kLargest)
                      .items(1, kMostChannels),
                  key("std", "standard deviation of each channel", &NormalizeSpec::stddev)
                      .required()
                      .within(1e-38, kLargest)
                      .items(1, kMostChannels)})
      .check([](const OptionReader& from, NormalizeSpec& spec) {
        spec.type = Normalize::kGiven;
        if (spec.mean.size() == spec.stddev.size()) return;
        fail_at(from.at("std").place, "data.normalize.std: expected one for each of the " +
                                          std::to_string(spec.mean.size()) + " means, got " +
                                          std::to_string(spec.stddev.size()));
      });
}

// A word, or the numbers.
Row<DataSpec> normalize_row() {
  const Table<NormalizeSpec> given = given_normalization();
  Row<DataSpec> row{given.option()};
  row.option.kind = OptionKind::kChoiceOrTable;
  row.option.name = "normalize";
  row.option.help =
      "normalization of the inputs, (x - mean) / std per channel; bytes are "
      "divided by 255 first. `dataset`: with the mean and standard deviation of "
      "this run's training set; a table: with the given ones (those of the model "
      "in `init.checkpoint`, if another framework trained it); `none`: not at all. "
      "Checkpoints hold the numbers";
  row.stores.push_back([given](const YamlNode& node, DataSpec& data) {
    if (node.kind == YamlNode::Kind::kTable) {
      given.read(node, data.normalize);
    } else {
      data.normalize.type = value_of<Normalize>(node.text);
    }
  });
  return row.only({Normalize::kDataset, Normalize::kNone}).by_default("dataset");
}

}  // namespace

Table<DataSpec> data_table() {
  const auto augment = [](const std::string& word, bool Augmentation::*member) {
    return flag(word, &DataSpec::loader, &LoaderOptions::augment, member);
  };
  return Table<DataSpec>(
             "What to train and test on.",
             {key("dataset", "fashion_mnist, cifar10, safetensors or a registered one",
                  &DataSpec::dataset)
                  .required(),
              key("path",
                  "the dataset's folder, relative to the current folder; absent: its default "
                  "folder",
                  &DataSpec::path)
                  .role(OptionRole::kFree),
              key("batch_size", "samples per step", &DataSpec::loader, &LoaderOptions::batch_size)
                  .by_default("128")
                  .within(1, 65536),
              flags<DataSpec>("augment",
                              "random changes of training images, any of random_crop and flip",
                              {augment("random_crop", &Augmentation::random_crop),
                               augment("flip", &Augmentation::flip)})
                  .by_default("[]"),
              normalize_row(),
              key("crop_padding", "pixels added on each side before random_crop", &DataSpec::loader,
                  &LoaderOptions::augment, &Augmentation::crop_padding)
                  .by_default("2")
                  .within(1, 64),
              key("validation",
                  "training samples set aside for validation, on which the best epoch is "
                  "chosen; 0: none",
                  &DataSpec::validation)
                  .by_default("5000")
                  .within(0, kMaxCount)})
      .check([](const OptionReader&, DataSpec& data) { data.loader.shuffle = true; });
}

}  // namespace steelyard
