// The functions of C programs (c_program.h), as text: C99, integers alone, one for each kind of
// operation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/kernels/fixed_point.h"

namespace steelyard::deploy {

// A function, its struct of constants NAME_node, and what is declared before it.
struct CKernel {
  std::string_view name;
  std::string_view text;
  std::vector<std::string_view> needs = {};  // names of others
};

// Of linear maps, of LSTMs, of the other operations, and of streams.
std::vector<CKernel> c_product_kernels();
std::vector<CKernel> c_lstm_kernels();
std::vector<CKernel> c_code_kernels();
std::vector<CKernel> c_stream_kernels();

// The text of the kernels with these names and of what they need, each once. Throws
// std::invalid_argument for an unknown name. Sums become codes by `rounding`, a fixed one.
std::string c_kernels(std::span<const std::string> names, kernels::Rounding rounding);

// Bytes of a kernel's struct of constants on a processor with pointers of 32 bits. Throws
// std::invalid_argument for an unknown type.
std::int64_t c_struct_bytes(std::string_view type);
// Of the tables in a text of c_kernels().
std::int64_t c_table_bytes(const std::string& kernels);
// An array's place among constants: the next one may begin at a multiple of 4.
constexpr std::int64_t c_array_bytes(std::int64_t bytes) { return (bytes + 3) / 4 * 4; }

// Weights of `bits` bits: how many are in a byte.
constexpr int c_codes_per_byte(int bits) { return bits <= 2 ? 4 : bits <= 4 ? 2 : 1; }
// The name of the kernel for weights of so many bits: "conv" is "conv_8", "conv_4" or "conv_2".
std::string c_kernel_for(std::string_view name, int bits);

}  // namespace steelyard::deploy
