// Samples as a model was trained on, of images of any size and of rows of tables.
#pragma once

#include <span>
#include <string_view>

#include "steelyard/framework/data/images/pixels.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// u8 [N, H, W, C] for Interpreter::run_raw(): each image in the model's colours, resized and
// cropped as evaluation in training does (the recipe's data.transforms). Throws InputError where
// the result has another size than the model takes, with the number of the image where there are
// several, and std::invalid_argument for a model of something else than images.
Tensor image_samples(const Graph& graph, std::span<const Image> images);

// f32 [1, features] for Interpreter::run_raw(): the row of a table whose fields are those of
// graph.preprocessing.table's columns, texts as in a CSV file, without quotes. Throws InputError
// that names the column for what is no finite number, and for a category that the training set did
// not have, and std::invalid_argument for another number of fields or a model of something else.
Tensor row_sample(const Graph& graph, std::span<const std::string_view> fields);

}  // namespace steelyard::deploy
