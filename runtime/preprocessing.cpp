#include "steelyard/runtime/preprocessing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "steelyard/framework/data/images/transformed.h"
#include "steelyard/framework/data/tables/table_fields.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::deploy {
namespace {

[[noreturn]] void refuse_source(const Graph& graph, const char* source) {
  throw std::invalid_argument(fmt::format("[runtime] the model takes {} {}, not {}",
                                          dtype_name(graph.preprocessing.dtype),
                                          shape_string(graph.values[graph.input].shape), source));
}

bool takes_shape(const Graph& graph, const Shape& sample) {
  return graph.values[graph.input].shape == sample ||
         std::any_of(graph.resized.begin(), graph.resized.end(), [&](const auto& other) {
           return other->values[other->input].shape == sample;
         });
}

Image evaluated(const Graph& graph, const Image& image) {
  require_image_size(image.width, image.height);
  const auto& transforms = graph.preprocessing.transforms;
  const std::int64_t channels = graph.values[graph.input].shape[2];
  // Colours first, as files are decoded in those of the model.
  const std::optional<Image> coloured =
      image.channels == channels ? std::nullopt : std::optional(in_channels(image, channels));
  const Image& source = coloured ? *coloured : image;
  Image sample = transforms ? transformed(source, *transforms) : source;
  if (takes_shape(graph, {sample.height, sample.width, channels})) return sample;
  const Shape& taken = graph.values[graph.input].shape;
  throw InputError(fmt::format("expected an image of {} pixels as the model takes, got {}{}",
                               size_text(taken[0], taken[1]),
                               size_text(sample.height, sample.width),
                               transforms ? " after its transforms" : "; it has no transforms"));
}

}  // namespace

Tensor image_samples(const Graph& graph, std::span<const Image> images) {
  const Shape& shape = graph.values[graph.input].shape;
  const bool takes_images = graph.preprocessing.dtype == DType::kU8 && shape.size() == 3 &&
                            (shape[2] == 1 || shape[2] == 3);
  if (!takes_images) refuse_source(graph, "images");
  if (images.empty()) throw std::invalid_argument("[runtime] expected at least one image, got 0");
  Tensor samples;
  Shape first;
  for (std::size_t i = 0; i < images.size(); ++i) {
    try {
      const Image sample = evaluated(graph, images[i]);
      const Shape own{sample.height, sample.width, sample.channels};
      if (i == 0) {
        first = own;
        samples = Tensor::empty({std::ssize(images), own[0], own[1], own[2]}, DType::kU8);
      }
      if (own != first) {
        throw InputError("expected the size of the first, " + size_text(first[0], first[1]) +
                         ", got " + size_text(own[0], own[1]));
      }
      std::memcpy(samples.data<std::uint8_t>() + i * sample.pixels.size(), sample.pixels.data(),
                  sample.pixels.size());
    } catch (const InputError& error) {
      if (images.size() == 1) throw;
      throw InputError("image " + std::to_string(i) + ": " + error.what());
    }
  }
  return samples;
}

Tensor row_sample(const Graph& graph, std::span<const std::string_view> fields) {
  const auto& table = graph.preprocessing.table;
  if (!table) refuse_source(graph, "rows of a table");
  if (fields.size() != table->columns.size()) {
    throw std::invalid_argument("[runtime] expected " + std::to_string(table->columns.size()) +
                                " fields, one for each column, got " +
                                std::to_string(fields.size()));
  }
  Tensor sample = Tensor::empty({1, feature_count(table->columns)});
  encode_row(table->columns, table->options.missing, fields, sample.data<float>());
  return sample;
}

}  // namespace steelyard::deploy
