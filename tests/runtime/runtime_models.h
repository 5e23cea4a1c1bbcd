// A model as a product ships it: u8 images, classes with names.
#pragma once

#include "steelyard/export/trace.h"
#include "steelyard/framework/data/images/pixels.h"
#include "tests/export/export_support.h"

namespace steelyard::testing {

// Of images u8 [9, 8, 3] and five classes.
inline deploy::Graph shipped_model() {
  Rng rng(7);
  const auto model = quantized_model(every_layer(rng), w8a8());
  deploy::Graph graph = deploy::trace(*model, images(2, 5), "shipped").graph;
  graph.preprocessing = {
      .dtype = DType::kU8,
      .normalization = {{0.4F, 0.5F, 0.6F}, {0.2F, 0.25F, 0.3F}},
      .transforms = ImageTransforms{.resize_shorter = 9, .centre_crop = {{9, 8}}}};
  graph.class_names = {"cat", "dog", "fish", "owl", "yak"};
  return graph;
}

// Pixels of `count` images.
inline Tensor pixels(std::int64_t count) {
  const Tensor tensor = Tensor::empty({count, 9, 8, 3}, DType::kU8);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 % 251);
  }
  return tensor;
}

// An image of another size than the model takes.
inline Image photo(std::int64_t height = 21, std::int64_t width = 30, std::int64_t channels = 3) {
  Image image{height, width, channels, {}};
  for (std::int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(i * i % 253));
  }
  return image;
}

}  // namespace steelyard::testing
