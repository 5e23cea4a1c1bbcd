// The header of a GGUF file: metadata, and which tensor lies where.
//
// A file is, little-endian: "GGUF", u32 version (3), u64 number of tensors, u64 number of metadata
// entries; the entries (key, u32 type, value); the tensors (name, u32 number of dimensions, u64
// sizes, innermost first, u32 type, u64 offset); padding to the alignment; the tensors' bytes, each
// padded to the alignment, offsets counted from the first one's. Strings are u64 length and bytes;
// arrays are u32 type of the elements, u64 length and the elements.
// Source: ggml's docs/gguf.md, and gguf.cpp for what its reader refuses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/byte_range.h"
#include "steelyard/framework/files/gguf/gguf_value.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"

namespace steelyard {

constexpr std::uint64_t kMaxGgufEntries = 65'536;
constexpr std::uint64_t kMaxGgufTensors = 65'536;
constexpr std::uint64_t kMaxGgufKeyBytes = 65'535;
constexpr std::uint64_t kMaxGgufNameBytes = 63;  // ggml's names end with a NUL at the 64th
constexpr std::uint64_t kMaxGgufRank = 4;
constexpr std::uint64_t kMaxGgufHeaderBytes = std::uint64_t{1} << 28;  // vocabularies have 10 MB
constexpr std::uint64_t kGgufAlignment = 32;  // where general.alignment does not say another
constexpr std::uint64_t kMaxGgufAlignment = std::uint64_t{1} << 20;

struct GgufEntry {
  std::string key;
  GgufValue value;

  bool operator==(const GgufEntry&) const = default;
};

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> sizes;  // innermost first, 1 to 4 of them, each at least 1
  const kernels::GgmlType* type = nullptr;
  std::uint64_t offset = 0;  // from the first tensor's bytes

  std::int64_t elements() const;
  std::uint64_t bytes() const;

  bool operator==(const GgufTensor&) const = default;
};

struct GgufHeader {
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;
  std::uint64_t alignment = kGgufAlignment;
  std::uint64_t data_begin = 0;  // where the first tensor's bytes are in the file

  // Null where there is no such key.
  const GgufValue* find(std::string_view key) const;
};

// Parses and validates everything before it allocates by it: lengths against the file's end, types,
// sizes and their products, unique names, offsets that follow each other without gaps. Throws
// InputError that starts with `file` and names the offset.
GgufHeader parse_gguf_header(const std::string& file, const ByteRange& bytes);

// The header of these entries and tensors, whose offsets it sets, padded to the alignment of
// `general.alignment`: equal arguments give equal bytes. Throws std::invalid_argument for what
// parse_gguf_header() would refuse.
std::string encode_gguf_header(const std::vector<GgufEntry>& entries,
                               std::vector<GgufTensor>& tensors);

// `bytes` rounded up to a multiple of the alignment, a power of two.
constexpr std::uint64_t gguf_padded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

}  // namespace steelyard
