// Shapes in which the batch's size stays free. All throw Unsupported for what does not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// The sizes without the batch's. None may depend on it.
std::int64_t fixed(const Extent& extent);
std::int64_t channels_of(const ExtentShape& shape);
// The sizes for a Reshape module: -1 for what depends on the batch.
Shape open_sizes(const ExtentShape& shape);
// The elements, a multiple of the batch's size where one dimension is.
Extent elements(const ExtentShape& shape);
// The dimension that is the batch's.
std::size_t batch_dimension(const ExtentShape& shape);
// Dimensions 0 to `rank` - 1 with `first` in front.
std::vector<std::size_t> order_from(std::size_t first, std::size_t rank);
// Dimension `axis` of ONNX in a held value of that rank.
std::size_t held_axis(std::size_t axis, std::size_t rank, bool channels_last);
// ONNX's dimension at each held position.
std::vector<std::size_t> held_order(std::size_t rank, bool channels_last);
ExtentShape broadcast(const ExtentShape& a, const ExtentShape& b);

}  // namespace steelyard::imports
