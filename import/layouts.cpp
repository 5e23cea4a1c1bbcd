// The orders of dimensions in which modules give values.
#include <algorithm>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {
Order held_order(const ImportedValue& value) {
  return value.order.empty() ? held_order(value.rank(), value.channels_last) : value.order;
}

std::size_t held_axis(const ImportedValue& value, std::size_t axis) {
  const auto order = held_order(value);
  return static_cast<std::size_t>(std::find(order.begin(), order.end(), axis) - order.begin());
}

std::string Translator::held(std::size_t i, bool channels_last) {
  input(i);
  return node_of(node_->input(i), channels_last);
}

std::string Translator::node_of(const std::string& name, bool channels_last) {
  const ImportedValue& value = values_.at(name);
  if (channels_last && value.rank() < 3 && !value.known) {
    refuse("expected images, got " + to_string(value.shape));
  }
  return converted(name, held_order(value.rank(), channels_last));
}

std::string Translator::held_in(std::size_t i, const Order& order) {
  input(i);
  return converted(node_->input(i), order);
}

std::string Translator::as_held(std::size_t i) { return held_in(i, held_order(input(i))); }

const std::string& Translator::converted(const std::string& name, const Order& wanted) {
  ImportedValue& value = values_.at(name);
  if (value.known) refuse("'" + printable(name) + "' is a constant, expected a computed value");
  if (value.compared && value.node.empty()) {
    const ImportedValue numbers = as_numbers(*this, value);
    value.node = numbers.node;
    value.channels_last = numbers.channels_last;
  }
  if (value.one_hot != 0) refuse("of one-hot values, which only a table may follow");
  if (value.node.empty() && any_size_) {  // a global average of an image of any size
    value.node = add_called(legal(value.label) + "_image", "Reshape", {averaged_row_of(name)},
                            {{"shape", Shape{-1, 1, 1, fixed(value.shape[1])}}});
  } else if (value.node.empty()) {  // a pool with one window
    const ImportedValue& source = values_.at(value.averaged);
    const std::vector<std::int64_t> window{fixed(source.shape[2]), fixed(source.shape[3])};
    value.node = add_called(legal(value.label), "AvgPool2d", {node_of(value.averaged, true)},
                            {{"kernel", window},
                             {"stride", std::vector<std::int64_t>{1, 1}},
                             {"padding", std::vector<std::int64_t>{0, 0}},
                             {"count_include_pad", true}});
  }
  const Order from = held_order(value);
  if (from == wanted) return value.node;
  auto [found, added] = converted_.try_emplace({name, wanted});
  if (!added) return found->second;
  ExtentShape shape;
  std::vector<std::int64_t> order;
  for (const std::size_t axis : wanted) {
    shape.push_back(value.shape[axis]);
    order.push_back(std::find(from.begin(), from.end(), axis) - from.begin());
  }
  // Dimensions of size 1 move no elements.
  const auto moved = [&](Order axes) {
    std::erase_if(axes, [&](std::size_t axis) { return value.shape[axis] == Extent{1}; });
    return axes;
  };
  const bool last = value.rank() > 2 && wanted == held_order(value.rank(), true);
  const std::string as = value.node + (last ? "_channels_last" : "_channels_first");
  found->second = moved(from) == moved(wanted)
                      ? add_called(as, "Reshape", {value.node}, {{"shape", open_sizes(shape)}})
                      : add_called(as, "Permute", {value.node}, {{"order", order}});
  return found->second;
}

}  // namespace steelyard::imports
