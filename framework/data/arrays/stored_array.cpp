#include "steelyard/framework/data/arrays/stored_array.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/float_range.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard {
namespace {

static_assert(std::endian::native == std::endian::little);

using ArrayKind = StoredArray::Kind;

template <typename T>
void widen(const std::string& bytes, std::int64_t* to) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    *to++ = static_cast<std::int64_t>(value);
  }
}

void widen(ArrayKind kind, std::int64_t item_bytes, const std::string& bytes, std::int64_t* to) {
  if (kind == ArrayKind::kBool) {
    for (const char byte : bytes) *to++ = byte != 0 ? 1 : 0;
    return;
  }
  const bool is_signed = kind == ArrayKind::kSigned;
  switch (item_bytes) {
    case 1:
      return is_signed ? widen<std::int8_t>(bytes, to) : widen<std::uint8_t>(bytes, to);
    case 2:
      return is_signed ? widen<std::int16_t>(bytes, to) : widen<std::uint16_t>(bytes, to);
    case 4:
      return is_signed ? widen<std::int32_t>(bytes, to) : widen<std::uint32_t>(bytes, to);
    default:
      return is_signed ? widen<std::int64_t>(bytes, to) : widen<std::uint64_t>(bytes, to);
  }
}

DType float_of(ArrayKind kind, std::int64_t item_bytes) {
  if (kind == ArrayKind::kBFloat) return DType::kBF16;
  return item_bytes == 2 ? DType::kF16 : item_bytes == 4 ? DType::kF32 : DType::kF64;
}

std::int64_t values_of(const Shape& shape) {
  std::int64_t values = 1;
  for (const std::int64_t extent : shape) values *= extent;
  return values;
}

class ArraySamples : public SampleSource {
 public:
  // `alone`: the array is one sample.
  ArraySamples(const StoredArray& array, bool alone) : array_(array), alone_(alone) {
    const Shape& shape = array.shape();
    if (shape.empty() && !alone) {
      throw InputError(array.name() + ": expected inputs [N, ...], got " + array.text());
    }
    const bool bytes = array.kind() == ArrayKind::kUnsigned && array.item_bytes() == 1;
    dtype_ = bytes ? DType::kU8 : DType::kF32;
    shape_.assign(shape.begin() + (alone ? 0 : 1), shape.end());
    if (shape_.empty()) shape_ = {1};
    values_ = values_of(shape_);
    if (values_ == 0) {
      throw InputError(array.name() + ": expected samples of one value or more, got " +
                       array.text());
    }
  }

  std::int64_t size() const override { return alone_ ? 1 : array_.shape()[0]; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override {
    return alone_ ? array_.name() : array_.name() + ": sample " + std::to_string(sample);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    const std::int64_t first = sample * values_;
    if (dtype_ == DType::kU8) return array_.read(first, values_, to);
    const Tensor stored = array_.read(first, shape_);
    const Tensor values = floats_of(stored, sample);
    std::memcpy(to, values.raw(), static_cast<std::size_t>(values.bytes()));
  }

 private:
  Tensor floats_of(const Tensor& stored, std::int64_t sample) const {
    if (!array_.holds_floats()) return whole_numbers(stored, name(sample));
    require_within_float32(stored, name(sample));
    require_whole_numbers_kept(stored, name(sample));
    require_finite_values(stored, name(sample));
    return stored.to(DType::kF32);
  }

  StoredArray array_;
  bool alone_;
  DType dtype_ = DType::kU8;
  Shape shape_;
  std::int64_t values_ = 0;
};

}  // namespace

StoredArray::StoredArray(std::shared_ptr<const ByteRange> bytes, std::uint64_t begin,
                         std::string name, ArrayKind kind, std::int64_t item_bytes, Shape shape)
    : bytes_(std::move(bytes)),
      begin_(begin),
      name_(std::move(name)),
      kind_(kind),
      item_bytes_(item_bytes),
      shape_(std::move(shape)) {}

std::string StoredArray::text() const {
  constexpr std::array<const char*, 5> kNames{"bool", "int", "uint", "float", "bfloat"};
  const std::string bits = kind_ == ArrayKind::kBool ? "" : std::to_string(item_bytes_ * 8);
  return kNames[static_cast<std::size_t>(kind_)] + bits + " " + shape_string(shape_);
}

Tensor StoredArray::read(std::int64_t first, const Shape& shape) const {
  const std::int64_t values = values_of(shape);
  if (holds_floats()) {
    const Tensor stored = Tensor::empty(shape, float_of(kind_, item_bytes_));
    read(first, values, stored.raw());
    return stored;
  }
  std::string bytes(static_cast<std::size_t>(values * item_bytes_), '\0');
  read(first, values, bytes.data());
  Tensor wide = Tensor::empty(shape, DType::kI64);
  widen(kind_, item_bytes_, bytes, wide.data<std::int64_t>());
  return wide;
}

void StoredArray::read(std::int64_t first, std::int64_t count, void* into) const {
  const auto item = static_cast<std::uint64_t>(item_bytes_);
  bytes_->read(begin_ + static_cast<std::uint64_t>(first) * item, into,
               static_cast<std::uint64_t>(count) * item);
}

std::shared_ptr<const SampleSource> array_samples(const StoredArray& array) {
  return std::make_shared<ArraySamples>(array, /*alone=*/false);
}

std::shared_ptr<const SampleSource> array_sample(const StoredArray& array) {
  return std::make_shared<ArraySamples>(array, /*alone=*/true);
}

Tensor array_targets(const StoredArray& array) {
  const Shape& shape = array.shape();
  if (shape.empty()) {
    throw InputError(array.name() + ": expected targets [N, ...], got " + array.text());
  }
  if (array.kind() == ArrayKind::kBool) {
    throw InputError(array.name() +
                     ": expected targets of integers (labels) or of floating-point numbers "
                     "(regression), got bool");
  }
  return with_memory_for(array.name(), [&] {
    const Tensor stored = array.read(0, shape);
    if (!array.holds_floats()) return stored;
    require_within_float32(stored, array.name());
    require_whole_numbers_kept(stored, array.name());
    const Tensor targets = stored.to(DType::kF32);
    return shape.size() == 1 ? targets.reshape({shape[0], 1}) : targets;
  });
}

}  // namespace steelyard
