#include "steelyard/framework/files/gguf/gguf_rewrite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard {
namespace {

using kernels::BlockType;

// llama.cpp's llama_ftype.
std::optional<std::uint32_t> file_type_of(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return 0;
    case BlockType::kF16:
      return 1;
    case BlockType::kQ4_0:
      return 2;
    case BlockType::kQ4_1:
      return 3;
    case BlockType::kQ8_0:
      return 7;
    case BlockType::kIq4Nl:
      return 25;
    case BlockType::kBF16:
      return 32;
    case BlockType::kMxfp4:
      return 38;
    default:
      return std::nullopt;
  }
}

bool is_float_type(BlockType type) {
  return type == BlockType::kF32 || type == BlockType::kF16 || type == BlockType::kBF16;
}

bool have_same_values(const Tensor& a, const Tensor& b) {
  const auto x = a.span<float>(), y = b.span<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// Values as blocks, and what these stand for.
struct Encoded {
  std::string bytes;
  Tensor values;
};

Encoded encoded_as(BlockType type, bool searched, const Tensor& values) {
  const kernels::GgmlType& layout = kernels::ggml_type(type);
  const std::int64_t n = values.size() / layout.elements;
  Encoded made{std::string(static_cast<std::size_t>(n * layout.bytes), '\0'),
               Tensor::empty(values.shape())};
  auto* blocks = reinterpret_cast<std::uint8_t*>(made.bytes.data());
  visit_block_makers(type, searched, [&](auto maker) {
    run(Device{}, kernels::EncodeBlocks<decltype(maker)>{
                      .n = n, .x = values.data<float>(), .scales = nullptr, .blocks = blocks});
  });
  visit_blocks(type, [&](auto format) {
    run(Device{}, kernels::DecodeBlocks<decltype(format)>{
                      .n = n, .blocks = blocks, .x = made.values.data<float>()});
  });
  return made;
}

class Rewrite {
 public:
  explicit Rewrite(const GgufReader& source) : source_(source), tensors_(source.header().tensors) {}

  void replace(const GgufValues& given) {
    const GgufTensor* old = source_.find(given.tensor);
    if (old == nullptr) fail(given.tensor, "the file has no such tensor");
    if (given.values.shape() != shape_of(*old)) {
      fail(given.tensor, "expected values " + shape_string(shape_of(*old)) + ", got " +
                             shape_string(given.values.shape()));
    }
    for (const float value : given.values.span<float>()) {
      if (!std::isfinite(value)) fail(given.tensor, "expected finite values, got NaN or infinity");
    }
    if (given.type) ++asked_for_[*given.type];
    const auto old_type = block_type_of(*old);
    const BlockType type = given.type.value_or(float_type_of(old_type, given.values));
    require_blocks(given.tensor, old->sizes[0], type);
    Encoded made = encoded_as(type, given.searched, given.values);
    if (type == old_type && have_same_values(made.values, read_values(source_, *old))) return;
    tensors_[static_cast<std::size_t>(old - source_.header().tensors.data())].type =
        &kernels::ggml_type(type);
    new_bytes_[given.tensor] = std::move(made.bytes);
  }

  void write(const std::filesystem::path& path) const {
    std::vector<GgufEntry> entries = source_.header().entries;
    const auto most =
        std::max_element(asked_for_.begin(), asked_for_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != asked_for_.end()) {
      if (const auto number = file_type_of(most->first)) {
        entries = with_file_type(std::move(entries), *number);
      }
    }
    GgufWriter writer(path, entries, tensors_);
    for (const GgufTensor& old : source_.header().tensors) {
      const auto replaced = new_bytes_.find(old.name);
      if (replaced != new_bytes_.end()) {
        writer.write(replaced->second.data(), replaced->second.size());
      } else {
        writer.write(*source_.bytes_of(old));
      }
    }
    writer.commit();
  }

 private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& message) const {
    throw InputError(source_.name() + ": tensor '" + printable(tensor) + "': " + message);
  }

  void require_blocks(const std::string& tensor, std::int64_t width, BlockType type) const {
    const kernels::GgmlType& layout = kernels::ggml_type(type);
    if (width % layout.elements == 0) return;
    fail(tensor, "expected rows of whole blocks of " + std::to_string(layout.elements) + " for " +
                     std::string(layout.name) + ", got rows of " + std::to_string(width));
  }

  static BlockType float_type_of(std::optional<BlockType> old, const Tensor& values) {
    const bool holds = old && is_float_type(*old) &&
                       have_same_values(encoded_as(*old, false, values).values, values);
    return holds ? *old : BlockType::kF32;
  }

  const GgufReader& source_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::string> new_bytes_;
  std::map<BlockType, std::int64_t> asked_for_;
};

}  // namespace

std::vector<GgufEntry> with_file_type(std::vector<GgufEntry> entries, std::uint32_t file_type) {
  const GgufValue value = GgufValue::of_u32(file_type);
  for (GgufEntry& entry : entries) {
    if (entry.key != "general.file_type") continue;
    entry.value = value;
    return entries;
  }
  entries.push_back({"general.file_type", value});
  return entries;
}

void rewrite_gguf(const GgufReader& source, const std::vector<GgufValues>& values,
                  const std::filesystem::path& path) {
  Rewrite rewrite(source);
  for (const GgufValues& given : values) rewrite.replace(given);
  rewrite.write(path);
}

}  // namespace steelyard
