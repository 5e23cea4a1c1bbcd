// The element types of ggml's tensors: their numbers and names, and the size of their blocks.
//
// A row of a tensor is a sequence of blocks of equal size; plain numbers are blocks of one element.
// Source: ggml's type traits (ggml.c) and block structures (ggml-common.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace steelyard::kernels {

// The types that are encoded and decoded (block_formats.h), or decoded alone (stored_formats.h);
// the values are ggml's numbers.
enum class BlockType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,  // decoded alone, as all from here to kQ6_K but kQ8_0
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIq4Nl = 20,
  kBF16 = 30,
  kMxfp4 = 39,
  kQ2_0 = 42,
};

struct GgmlType {
  std::uint32_t id;
  std::string_view name;
  std::int64_t elements;  // of a block
  std::int64_t bytes;     // of a block
};

// Every type that a file may have, by its number. Numbers between them were given up by ggml.
inline constexpr std::array kGgmlTypes = {
    GgmlType{0, "f32", 1, 4},         GgmlType{1, "f16", 1, 2},
    GgmlType{2, "q4_0", 32, 18},      GgmlType{3, "q4_1", 32, 20},
    GgmlType{6, "q5_0", 32, 22},      GgmlType{7, "q5_1", 32, 24},
    GgmlType{8, "q8_0", 32, 34},      GgmlType{9, "q8_1", 32, 36},
    GgmlType{10, "q2_k", 256, 84},    GgmlType{11, "q3_k", 256, 110},
    GgmlType{12, "q4_k", 256, 144},   GgmlType{13, "q5_k", 256, 176},
    GgmlType{14, "q6_k", 256, 210},   GgmlType{15, "q8_k", 256, 292},
    GgmlType{16, "iq2_xxs", 256, 66}, GgmlType{17, "iq2_xs", 256, 74},
    GgmlType{18, "iq3_xxs", 256, 98}, GgmlType{19, "iq1_s", 256, 50},
    GgmlType{20, "iq4_nl", 32, 18},   GgmlType{21, "iq3_s", 256, 110},
    GgmlType{22, "iq2_s", 256, 82},   GgmlType{23, "iq4_xs", 256, 136},
    GgmlType{24, "i8", 1, 1},         GgmlType{25, "i16", 1, 2},
    GgmlType{26, "i32", 1, 4},        GgmlType{27, "i64", 1, 8},
    GgmlType{28, "f64", 1, 8},        GgmlType{29, "iq1_m", 256, 56},
    GgmlType{30, "bf16", 1, 2},       GgmlType{34, "tq1_0", 256, 54},
    GgmlType{35, "tq2_0", 256, 66},   GgmlType{39, "mxfp4", 32, 17},
    GgmlType{40, "nvfp4", 64, 36},    GgmlType{41, "q1_0", 128, 18},
    GgmlType{42, "q2_0", 64, 18},
};

// Null where ggml has no such type.
constexpr const GgmlType* find_ggml_type(std::uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

constexpr const GgmlType* find_ggml_type(std::string_view name) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

constexpr const GgmlType& ggml_type(BlockType type) {
  return *find_ggml_type(static_cast<std::uint32_t>(type));
}

}  // namespace steelyard::kernels
