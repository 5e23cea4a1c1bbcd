// The section `data`.
#include <algorithm>
#include <utility>

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
      "normalization of the inputs, (x - mean) / std per channel; bytes are divided by 255 first. "
      "`dataset`: the mean and standard deviation of this run's training set; a table: the given "
      "ones (for a model that another framework trained, those of its training); `none`: no "
      "normalization. Checkpoints contain the numbers";
  row.stores.push_back([given](const YamlNode& node, DataSpec& data) {
    if (node.kind == YamlNode::Kind::kTable) {
      given.read(node, data.normalize);
    } else {
      data.normalize.type = value_of<Normalize>(node.text);
    }
  });
  return row.only({Normalize::kDataset, Normalize::kNone})
      .by_default(word_of(NormalizeSpec{}.type));
}

Table<ImageTransforms> transforms_table() {
  constexpr double kLargestSide = 16384;
  return Table<ImageTransforms>(
             "Transforms that bring images to one size, in this order, in training, evaluation and "
             "`predict`. In training, `augment: [random_resized_crop]` replaces them.",
             {key("resize", "height and width to resize to, antialiased", &ImageTransforms::resize)
                  .within(1, kLargestSide),
              key("resize_shorter",
                  "number of pixels of the shorter side after resizing; the other side follows in "
                  "proportion",
                  &ImageTransforms::resize_shorter)
                  .within(1, kLargestSide),
              key("centre_crop", "height and width of the centre crop",
                  &ImageTransforms::centre_crop)
                  .within(1, kLargestSide),
              key("interpolation", "interpolation of resizing", &ImageTransforms::interpolation)
                  .by_default(),
              key("grey", "whether images are read with one channel, not three",
                  &ImageTransforms::grey)
                  .by_default(),
              key("random_area",
                  "smallest and largest fraction of an image that random_resized_crop takes",
                  &ImageTransforms::random_area)
                  .by_default()
                  .above(0)
                  .at_most(1)
                  .items(2, 2),
              key("random_ratio", "smallest and largest aspect ratio (width / height) of that part",
                  &ImageTransforms::random_ratio)
                  .by_default()
                  .within(0.01, 100)
                  .items(2, 2)})
      .check([](const OptionReader& from, ImageTransforms& transforms) {
        const auto& [resize, shorter, crop, interpolation, grey, area, ratio] = transforms;
        if (resize && shorter) {
          fail_at(from.at("resize_shorter").place, "expected resize or resize_shorter, got both");
        }
        if (shorter && crop && std::max((*crop)[0], (*crop)[1]) > *shorter) {
          fail_at(from.at("centre_crop").place, "expected a crop of at most the " +
                                                    std::to_string(*shorter) +
                                                    " pixels of resize_shorter");
        }
        if (resize && crop && ((*crop)[0] > (*resize)[0] || (*crop)[1] > (*resize)[1])) {
          fail_at(from.at("centre_crop").place, "expected a crop of at most resize");
        }
        for (const auto& [key, limits] :
             {std::pair("random_area", area), std::pair("random_ratio", ratio)}) {
          if (limits.size() == 2 && limits[0] > limits[1]) {
            fail_at(from.at(key).place, std::string(key) + ": expected the least first");
          }
        }
      });
}

Table<Augmentation> augment_table() {
  return Table<Augmentation>(
             "Options of the changes that `augment` lists.",
             {key("brightness",
                  "colour_jitter: a factor is drawn between 1 - this value and 1 + this value",
                  &Augmentation::brightness)
                  .by_default()
                  .within(0, 10),
              key("contrast", "colour_jitter: the same", &Augmentation::contrast)
                  .by_default()
                  .within(0, 10),
              key("saturation", "colour_jitter: the same", &Augmentation::saturation)
                  .by_default()
                  .within(0, 10),
              key("hue",
                  "colour_jitter: the hue is rotated by at most this fraction of the colour "
                  "circle, in both directions",
                  &Augmentation::hue)
                  .by_default()
                  .within(0, 0.5),
              key("rotation_degrees", "rotation: largest angle, in both directions",
                  &Augmentation::rotation_degrees)
                  .by_default()
                  .within(0, 180),
              key("erasing_probability",
                  "erasing: probability that a rectangle of an image is erased",
                  &Augmentation::erasing_probability)
                  .by_default()
                  .within(0, 1),
              key("erasing_area",
                  "erasing: smallest and largest fraction of the image that is erased",
                  &Augmentation::erasing_area)
                  .by_default()
                  .above(0)
                  .at_most(1),
              key("erasing_ratio", "erasing: smallest and largest aspect ratio (height / width)",
                  &Augmentation::erasing_ratio)
                  .by_default()
                  .within(0.01, 100),
              key("mixup_alpha", "mixup: mixing weights are drawn from Beta(alpha, alpha)",
                  &Augmentation::mixup_alpha)
                  .by_default()
                  .within(0.01, 100),
              key("cutmix_alpha", "cutmix: the same", &Augmentation::cutmix_alpha)
                  .by_default()
                  .within(0.01, 100)})
      .check([](const OptionReader& from, Augmentation& augmentation) {
        for (const auto& [key, limits] : {std::pair("erasing_area", augmentation.erasing_area),
                                          std::pair("erasing_ratio", augmentation.erasing_ratio)}) {
          if (limits[0] > limits[1]) {
            fail_at(from.at(key).place, std::string(key) + ": expected the least first");
          }
        }
      });
}

Table<TableOptions> table_table() {
  constexpr std::size_t kMostColumns = 65536;
  return {
      "The meaning of the columns, for `dataset: table`. All other columns are numeric inputs of "
      "the model.",
      {key("target",
           "the column to predict; for a regression, one or several; may be absent with labels: "
           "false",
           &TableOptions::target)
           .by_default()
           .items(0, kMostColumns),
       key("regression", "whether the targets are numbers, not classes", &TableOptions::regression)
           .by_default(),
       key("categories",
           "categorical columns: each category of the training set becomes a feature, 0 or 1 "
           "(one-hot)",
           &TableOptions::categories)
           .by_default()
           .items(0, kMostColumns),
       key("ignore", "columns that are not used", &TableOptions::ignore)
           .by_default()
           .items(0, kMostColumns),
       key("missing",
           "strings that stand for a missing value, \"\" for an empty field: a missing number "
           "becomes the mean of its column, a missing category a category of its own. Any other "
           "field that is not a number is an error in a numeric column",
           &TableOptions::missing)
           .by_default()
           .may_be_empty(),
       key("delimiter", "separator of fields; absent: a tab in .tsv files, else a comma",
           &TableOptions::delimiter)}};
}

Table<TokenOptions> tokens_table() {
  constexpr double kMostTokens = 1 << 20, kMostEnd = (1 << 24) - 1;
  return {"The sequences of `dataset: tokens`.",
          {key("length", "tokens of a sequence", &TokenOptions::length)
               .by_default()
               .within(1, kMostTokens),
           key("type", "what a .bin file holds: u16 or u32, little-endian", &TokenOptions::type)
               .by_default(),
           key("documents",
               "separate: within a sequence, attention does not look over the token that ends a "
               "document, and positions begin again at 0 after it; joined: a sequence is one text",
               &TokenOptions::documents)
               .by_default(),
           key("end",
               "number of the token that ends a document, of `documents: separate`; absent: what "
               "model.gguf has as tokenizer.ggml.eos_token_id, or config.json of "
               "model.huggingface as eos_token_id",
               &TokenOptions::end)
               .within(0, kMostEnd)}};
}

// Keys that speak of targets need them.
void require_labels_for_keys(const OptionReader& from, const DataSpec& data) {
  const bool no_target = data.table && data.table->target.empty();
  if (data.labels && no_target) {
    fail_at(from.at("table").place,
            "missing key 'data.table.target', the column to predict (data.labels: false reads "
            "inputs alone)");
  }
  if (data.labels) return;
  const std::string no_labels = ": expected data.labels: true, there are no targets without labels";
  if (data.class_names) fail_at(from.at("class_names").place, "data.class_names" + no_labels);
  if (data.stratified) fail_at(from.at("stratified").place, "data.stratified" + no_labels);
}

void require_path_of_made_data(const OptionReader& from, const DataSpec& data) {
  if (data.path || !data.made_by) return;
  fail_at(from.at("made_by").place, "data.made_by: expected data.path, where the data are made");
}

}  // namespace

Table<DataSpec> data_table(const Registries& registries) {
  constexpr std::size_t kMostInputs = 256;
  const auto augment = [](const std::string& word, bool Augmentation::*member) {
    return flag(word, &DataSpec::loader, &LoaderOptions::augment, member);
  };
  return Table<DataSpec>(
             "What to train and test on.",
             {key("dataset",
                  "fashion_mnist, cifar10, cifar100, idx, images (folders), shards (tar archives), "
                  "table (CSV), arrays (NumPy), safetensors, tokens (.bin or .npy), or a dataset "
                  "that "
                  "a plugin or a C++ program adds",
                  &DataSpec::dataset)
                  .required(),
              key("path",
                  "the dataset's folder or file, relative to the current folder; absent: its "
                  "default "
                  "folder",
                  &DataSpec::path)
                  .role(OptionRole::kFree),
              key("made_by",
                  "the command that makes the data, which is told where nothing is at `path`",
                  &DataSpec::made_by)
                  .role(OptionRole::kFree),
              key("batch_size", "samples per step", &DataSpec::loader, &LoaderOptions::batch_size)
                  .by_default("128")
                  .within(1, 65536),
              flags<DataSpec>(
                  "augment",
                  "random changes of training samples, applied in this order: random_resized_crop, "
                  "rotation, trivial_augment, colour_jitter, random_crop, flip, vertical_flip and "
                  "erasing for images; mixup, and cutmix for images, mix two samples and their "
                  "targets",
                  {augment("random_crop", &Augmentation::random_crop),
                   augment("flip", &Augmentation::flip),
                   augment("vertical_flip", &Augmentation::vertical_flip),
                   augment("random_resized_crop", &Augmentation::resized_crop),
                   augment("rotation", &Augmentation::rotation),
                   augment("trivial_augment", &Augmentation::trivial_augment),
                   augment("colour_jitter", &Augmentation::colour_jitter),
                   augment("erasing", &Augmentation::erasing),
                   augment("mixup", &Augmentation::mixup),
                   augment("cutmix", &Augmentation::cutmix)})
                  .by_default("[]"),
              normalize_row(),
              key("normalize_targets",
                  "whether the loss compares normalized targets, (target - mean) / std per column "
                  "by the training set, for the losses mse and huber; outputs of `predict` and of "
                  "exports are in the units of the data. Absent: yes, except for model.onnx and "
                  "for weights of init.checkpoint that were trained on raw targets; the "
                  "statistics are those of init.checkpoint where it has them",
                  &DataSpec::normalize_targets),
              key("crop_padding", "pixels added on each side before random_crop", &DataSpec::loader,
                  &LoaderOptions::augment, &Augmentation::crop_padding)
                  .by_default()
                  .within(1, 64),
              nested<DataSpec>("augment_options", augment_table(), &DataSpec::loader,
                               &LoaderOptions::augment),
              key("validation",
                  "training samples set aside for validation, which chooses the best epoch; must "
                  "be fewer than the training samples; 0: none; absent: a tenth of them, at most "
                  "5000",
                  &DataSpec::validation)
                  .within(0, kMaxCount),
              key("test", "samples set aside as the test set, for a dataset without one",
                  &DataSpec::test)
                  .within(1, kMaxCount),
              key("stratified",
                  "whether each class keeps its share of the samples that validation and test set "
                  "aside; for targets that are classes",
                  &DataSpec::stratified)
                  .by_default(),
              key("labels",
                  "whether samples have targets; false: inputs alone, and the float model's own "
                  "outputs are what a quantized model is trained on and compared with",
                  &DataSpec::labels)
                  .by_default(),
              key("label_separator",
                  "with the loss binary_cross_entropy: the separator between the labels of a "
                  "sample, in tables and .cls files",
                  &DataSpec::label_separator)
                  .by_default("\"|\""),
              key("class_names",
                  "a text file with the name of a class, label or (loss ctc) character in each "
                  "line, in the order of the model's outputs; a character's number is its line, 0 "
                  "is the blank; absent: the names that the training set has, sorted",
                  &DataSpec::class_names)
                  .role(OptionRole::kFree),
              key("inputs",
                  "names of the arrays or tensors that are the inputs of a sample, for a model "
                  "with several inputs (datasets arrays and safetensors); empty: one input",
                  &DataSpec::inputs)
                  .by_default()
                  .items(0, kMostInputs),
              nested<DataSpec>("transforms", transforms_table(), &DataSpec::transforms),
              nested<DataSpec>("table", table_table(), &DataSpec::table),
              nested<DataSpec>("tokens", tokens_table(), &DataSpec::tokens)})
      .some_cases("dataset", cases_of(registries.dataset_options))
      .check([&registries](const OptionReader& from, DataSpec& data) {
        require_path_of_made_data(from, data);
        data.loader.shuffle = true;
        if (const auto* own = find_row(registries.dataset_options, data.dataset)) {
          data.dataset_options = own->make(from.node());
        }
        require_labels_for_keys(from, data);
        if (data.tokens && data.tokens->end &&
            data.tokens->documents != TokenDocuments::kSeparate) {
          fail_at(from.at("tokens").place,
                  "data.tokens.end: needs data.tokens.documents: separate");
        }
        std::vector<std::string> names = data.inputs;
        if (!names.empty()) names.emplace_back("targets");
        std::sort(names.begin(), names.end());
        if (std::adjacent_find(names.begin(), names.end()) == names.end()) return;
        fail_at(from.at("inputs").place,
                "data.inputs: expected different names other than targets");
      });
}

}  // namespace steelyard
