// Arrays of numbers in files, read when they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "steelyard/framework/data/sample_source.h"
#include "steelyard/framework/files/byte_range.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// Little-endian values in C's order.
class StoredArray {
 public:
  enum class Kind { kBool, kSigned, kUnsigned, kFloat, kBFloat };

  // The values begin at byte `begin`, and lie in `bytes`. Messages call it `name`.
  StoredArray(std::shared_ptr<const ByteRange> bytes, std::uint64_t begin, std::string name,
              Kind kind, std::int64_t item_bytes, Shape shape);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  Kind kind() const { return kind_; }
  std::int64_t item_bytes() const { return item_bytes_; }
  bool holds_floats() const { return kind_ == Kind::kFloat || kind_ == Kind::kBFloat; }
  // "uint8 [60000, 28, 28]".
  std::string text() const;

  // `shape` values from `first` on: floats as they are stored, other values as i64. Unsigned values
  // above 2^63 become negative. Throws InputError.
  Tensor read(std::int64_t first, const Shape& shape) const;
  // The bytes of `count` values from `first` on.
  void read(std::int64_t first, std::int64_t count, void* into) const;

 private:
  std::shared_ptr<const ByteRange> bytes_;
  std::uint64_t begin_;
  std::string name_;
  Kind kind_;
  std::int64_t item_bytes_;
  Shape shape_;
};

// Samples of an array [N, ...], or [N] as [N, 1]: u8, or other integers and floats as f32. Throws
// InputError for bool; read() throws it for values that f32 does not hold or that are not finite.
std::shared_ptr<const SampleSource> array_samples(const StoredArray& array);
// One sample: the whole array, or of a single number [1].
std::shared_ptr<const SampleSource> array_sample(const StoredArray& array);
// i64 of integers; f32 of floats, [N] as [N, 1]. Throws InputError for bool.
Tensor array_targets(const StoredArray& array);

}  // namespace steelyard
