#include "steelyard/import/extents.h"

#include <algorithm>
#include <numeric>

#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

constexpr std::int64_t kMostElements = std::int64_t{1} << 31;  // of a sample's value

std::int64_t fixed(const Extent& extent) {
  if (extent.of_batch) refuse("expected a size that does not depend on the batch's");
  return extent.value;
}

std::int64_t channels_of(const ExtentShape& shape) {
  if (shape.size() < 2) refuse("expected channels, got " + to_string(shape));
  return fixed(shape[1]);
}

Extent elements(const ExtentShape& shape) {
  Extent product{1};
  std::int64_t of_others = 1;  // than 0: strides are products of some of them
  for (const Extent& dim : shape) {
    if (dim.of_batch && product.of_batch) refuse("two dimensions depend on the batch's size");
    product.of_batch = product.of_batch || dim.of_batch;
    if (dim.value < 0 || (dim.value > 0 && of_others > kMostElements / dim.value)) {
      refuse("a value of shape " + to_string(shape) + " is too large");
    }
    if (dim.value > 0) of_others *= dim.value;
    product.value *= dim.value;
  }
  return product;
}

Shape open_sizes(const ExtentShape& shape) {
  elements(shape);
  Shape sizes;
  for (const Extent& dim : shape) sizes.push_back(dim.of_batch ? -1 : dim.value);
  return sizes;
}

std::size_t batch_dimension(const ExtentShape& shape) {
  const auto batch = std::find(shape.begin(), shape.end(), Extent{1, true});
  if (batch == shape.end())
    refuse("expected a dimension of the batch alone, got " + to_string(shape));
  return static_cast<std::size_t>(batch - shape.begin());
}

std::vector<std::size_t> order_from(std::size_t first, std::size_t rank) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  const auto at = order.begin() + static_cast<std::ptrdiff_t>(first);
  std::rotate(order.begin(), at, at + 1);
  return order;
}

std::vector<std::size_t> held_order(std::size_t rank, bool channels_last) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (channels_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

std::size_t held_axis(std::size_t axis, std::size_t rank, bool channels_last) {
  const auto order = held_order(rank, channels_last);
  return static_cast<std::size_t>(std::find(order.begin(), order.end(), axis) - order.begin());
}

ExtentShape broadcast(const ExtentShape& a, const ExtentShape& b) {
  ExtentShape shape(std::max(a.size(), b.size()));
  const Extent one{1};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Extent of_a = i < a.size() ? a[a.size() - 1 - i] : one;
    const Extent of_b = i < b.size() ? b[b.size() - 1 - i] : one;
    if (of_a != of_b && of_a != one && of_b != one) {
      refuse("shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    }
    shape[shape.size() - 1 - i] = of_a == one ? of_b : of_a;
  }
  return shape;
}

}  // namespace steelyard::imports
