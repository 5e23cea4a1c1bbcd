// The header of a safetensors file: which tensor lies where.
//
// A file is: u64 (little-endian) N, N bytes of JSON padded with spaces, then the tensors' bytes.
// Source: https://huggingface.co/docs/safetensors, format description.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/dtype.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

using TensorFileMetadata = std::map<std::string, std::string>;

constexpr std::uint64_t kSafetensorsPrefixBytes = 8;
constexpr std::uint64_t kMaxSafetensorsHeaderBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxSafetensorsTensors = 65'536;
// Room for a checksum per tensor and as many keys of the user's.
constexpr std::size_t kMaxSafetensorsMetadata = 2 * kMaxSafetensorsTensors;
constexpr std::size_t kMaxSafetensorsRank = 8;

// One tensor's place: bytes [begin, end) after the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset: contiguous from 0 to the end of the file
  TensorFileMetadata metadata;
};

// Parses N bytes of JSON of a file with `data_bytes` bytes after them and validates everything:
// UTF-8, unique names, known fields and dtypes, rank, sizes, contiguous offsets. Throws InputError
// that starts with `file`.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view json,
                                           std::uint64_t data_bytes);

// Prefix, JSON and padding to a multiple of 8, with the entries in the given order: equal arguments
// give equal bytes. Throws std::invalid_argument when a name is not UTF-8.
std::string encode_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                      const TensorFileMetadata& metadata);

}  // namespace steelyard
