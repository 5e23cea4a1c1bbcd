// NumPy's arrays in .npy and .npz files.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/data/arrays/byte_range.h"
#include "steelyard/framework/data/sample_source.h"
#include "steelyard/framework/tensor.h"

namespace steelyard {

// An array whose values are read when they are asked for: little-endian, in C's order.
class NpyArray {
 public:
  enum class Kind { kBool, kSigned, kUnsigned, kFloat };

  // Reads the header. Throws InputError that starts with `name` for what is no such array, of other
  // types or orders, and of another length than the header says.
  NpyArray(std::shared_ptr<const ByteRange> bytes, std::string name);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  Kind kind() const { return kind_; }
  std::int64_t item_bytes() const { return item_bytes_; }
  // "uint8 [60000, 28, 28]".
  std::string text() const;
  // `count` values from `first` on, as they are stored.
  void read(std::int64_t first, std::int64_t count, void* into) const;

 private:
  void parse_header(const std::string& header);

  std::shared_ptr<const ByteRange> bytes_;
  std::string name_;
  Shape shape_;
  Kind kind_ = Kind::kUnsigned;
  std::int64_t item_bytes_ = 1;
  std::uint64_t begin_ = 0;  // of the values
};

// The arrays of a .npz file by their names, without ".npy", or the one of a .npy file as "". Arrays
// that are packed (numpy.savez_compressed) are unpacked to memory. Throws InputError.
std::map<std::string, NpyArray> read_npy_file(const std::filesystem::path& path);

// Samples of an array [N, ...]: u8, or other integers and floats as f32. Throws InputError for
// bool; read() throws it for integers that f32 does not hold.
std::shared_ptr<const SampleSource> npy_samples(const NpyArray& array);
// i64 of integers [N]; f32 of floats, [N] as [N, 1]. Throws InputError for bool.
Tensor npy_targets(const NpyArray& array);

}  // namespace steelyard
