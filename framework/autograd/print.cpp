#include "steelyard/framework/autograd/print.h"

#include <fmt/format.h>  // IWYU pragma: keep

#include <ostream>

namespace steelyard {
namespace {

constexpr std::int64_t kLongestAxis = 8;
constexpr std::int64_t kShownEnds = 3;

// The elements of the block that begins at `offset`, by `text_of`.
template <typename F>
void add_block(std::string& text, const Tensor& tensor, const F& text_of, std::size_t axis,
               std::int64_t offset) {
  if (axis == tensor.shape().size()) {
    text += text_of(offset);
    return;
  }
  const std::int64_t size = tensor.shape()[axis];
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < tensor.shape().size(); ++i) inner *= tensor.shape()[i];
  const bool last = axis + 1 == tensor.shape().size();
  const std::string between = last ? ", " : ",\n" + std::string(axis + 1, ' ');
  text += '[';
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) text += between;
    if (size > kLongestAxis && i == kShownEnds) {
      text += "..." + between;
      i = size - kShownEnds;
    }
    add_block(text, tensor, text_of, axis + 1, offset + i * inner);
  }
  text += ']';
}

std::string values_text(const Tensor& tensor) {
  std::string text;
  const auto add = [&](const auto& elements, const auto& text_of) {
    add_block(
        text, tensor,
        [&](std::int64_t i) { return text_of(elements[static_cast<std::size_t>(i)]); }, 0, 0);
  };
  if (is_floating(tensor.dtype())) {
    const Tensor wide = tensor.to(DType::kF64);
    add(wide.span<double>(), [](double value) { return fmt::format("{:.6g}", value); });
  } else {
    const Tensor wide = tensor.to(DType::kI64);
    add(wide.span<std::int64_t>(), [](std::int64_t value) { return std::to_string(value); });
  }
  return text;
}

void add_module(std::string& text, const std::string& name, const Module& module, int depth) {
  text += std::string(2 * static_cast<std::size_t>(depth), ' ');
  if (!name.empty()) text += name + ": ";
  text += module.description() + "\n";
  for (const auto& child : module.children()) {
    add_module(text, child->name(), **child, depth + 1);
  }
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  return fmt::format("{} {} on {}\n{}", dtype_name(tensor.dtype()), shape_string(tensor.shape()),
                     device_name(tensor.device()), values_text(tensor.to(Device::cpu())));
}

std::string to_string(const Module& module) {
  std::string text;
  add_module(text, "", module, 0);
  return text;
}

std::ostream& operator<<(std::ostream& stream, Device device) {
  return stream << device_name(device);
}
std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}
std::ostream& operator<<(std::ostream& stream, const Variable& variable) {
  if (!variable.defined()) return stream << "undefined variable";
  return stream << variable.value();
}
std::ostream& operator<<(std::ostream& stream, const Module& module) {
  return stream << to_string(module);
}

}  // namespace steelyard
