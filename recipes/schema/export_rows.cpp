// The section `export`.
#include <algorithm>

#include "steelyard/export/formats.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

// "a, b and c".
std::string listed(std::vector<std::string> words) {
  const std::string last = words.back();
  words.pop_back();
  return words.empty() ? last : join(words) + " and " + last;
}

// Sums of two products with codes of activations then fit in 16 bits. Runtimes multiply weights in
// groups as floats.
void reduce_range(QuantizeSpec& quantize) {
  for (qat::QuantizeGroup& group : quantize.config.groups) {
    if (!group.config.weights) continue;
    observers::QScheme& scheme = group.config.weights->scheme;
    scheme.bits = std::min(scheme.bits, most_bits_of_reduced(scheme.granularity));
  }
}

Table<DeviceLimits> limits_table() {
  return {
      "What the device has for the program in C: a model that takes more is refused before "
      "training. Needs the profile tflm.",
      {key("flash",
           "bytes of constants at most: weights, biases, factors, tables and geometry, without "
           "code",
           &DeviceLimits::flash)
           .at_least(1),
       key("ram", "bytes of values, without the stack", &DeviceLimits::ram).at_least(1),
       key("macs", "multiplications for a sample, or for a call of a stream", &DeviceLimits::macs)
           .at_least(1)}};
}

Table<deploy::StreamOptions> stream_table() {
  return {
      "A program in C and a TFLite file that are given the new frames of a sequence with each call "
      "and keep what they need of those before: the same codes as the whole window "
      "(docs/microcontrollers.md). Needs the profile tflm.",
      {key("frames", "new frames in each call", &deploy::StreamOptions::frames)
           .required()
           .at_least(1),
       key("axis",
           "which dimension of a sample is time, counted from 0; absent: the first of more than "
           "one position",
           &deploy::StreamOptions::axis)
           .at_least(0)}};
}

}  // namespace

Table<Recipe> export_table() {
  const std::vector<std::string> formats = deploy::format_names();
  return Table<Recipe>(
             "How the model is deployed: in integers, or in float without `quantize`.",
             {key("formats", "formats written after training, any of " + listed(formats),
                  &Recipe::exports, &ExportSpec::formats)
                  .by_default()
                  .role(OptionRole::kFree)
                  .with([&](RecipeOption& option) {
                    option.members = {{.kind = OptionKind::kChoice, .choices = formats}};
                  }),
              key("profile",
                  "where tensors are quantized and how integers are rounded to codes: as ONNX "
                  "Runtime, "
                  "TensorRT or TFLite Micro (tflm; with TFLITE_SINGLE_ROUNDING: "
                  "tflm_single_rounding) executes them",
                  &Recipe::exports, &ExportSpec::profile)
                  .also(&Recipe::quantize, &QuantizeSpec::config, &qat::QuantizeConfig::profile)
                  .by_default()
                  .needs("quantize"),
              key("reduce_range",
                  "whether 8-bit weights, but for those of the strategy group, are reduced to 7 "
                  "bits (codes "
                  "from "
                  "-63 to 63; from -64 without `narrow_range`), so that no sum saturates in ONNX "
                  "Runtime's default "
                  "session on x86 without VNNI",
                  &Recipe::exports, &ExportSpec::reduce_range)
                  .by_default()
                  .needs("quantize"),
              nested<Recipe>("limits", limits_table(), &Recipe::exports, &ExportSpec::limits),
              nested<Recipe>("stream", stream_table(), &Recipe::exports, &ExportSpec::stream),
              key("target",
                  "for a model of `model.gguf`: training computes what llama.cpp computes with "
                  "weights of this type, or of those that `quantize` gives single layers by "
                  "`type` and `scale` alone, and `steelyard export` writes the GGUF file; absent: "
                  "such a model is trained in float, and not exported (docs/language_models.md)",
                  &Recipe::exports, &ExportSpec::target)})
      .check([](const OptionReader& from, Recipe& recipe) {
        const ExportSpec& exports = recipe.exports;
        for (const auto& [key, given] : {std::pair("limits", exports.limits.has_value()),
                                         std::pair("stream", exports.stream.has_value())}) {
          if (!given || qat::is_fixed_point(exports.profile)) continue;
          fail_at(from.at(key).place,
                  std::string("export.") + key +
                      ": expected export.profile: tflm or tflm_single_rounding");
        }
        if (recipe.quantize && recipe.exports.reduce_range) reduce_range(*recipe.quantize);
      });
}

}  // namespace steelyard
