#include "steelyard/export/c/c_kernels.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

namespace steelyard::deploy {
namespace {

constexpr std::string_view kScaledTwice = R"(
/* x * multiplier * 2^(shift - 31), rounded to 31 bits of the product and then to an integer. */
static int32_t scaled(int32_t x, int32_t multiplier, int32_t shift) {
  const int32_t left = (shift > 0) ? shift : 0;
  const int32_t right = left - shift;
  const int32_t wide = (int32_t)((uint32_t)x << left);
  const int32_t high = (int32_t)((((int64_t)wide * multiplier) + ((int64_t)1 << 30)) >> 31);
  const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1U);
  const int32_t half = (mask >> 1) + ((high < 0) ? 1 : 0);
  return (high >> right) + (((high & mask) > half) ? 1 : 0);
}
)";

constexpr std::string_view kScaledOnce = R"(
/* x * multiplier * 2^(shift - 31), rounded once. */
static int32_t scaled(int32_t x, int32_t multiplier, int32_t shift) {
  const int32_t right = 31 - shift;
  return (int32_t)((((int64_t)x * multiplier) + ((int64_t)1 << (right - 1))) >> right);
}
)";

constexpr std::string_view kCoded = R"(
/* The code of x on a grid with this zero point. */
static int8_t coded(int32_t x, int32_t zero_point, int32_t least, int32_t most) {
  int32_t code = (int32_t)((uint32_t)x + (uint32_t)zero_point);
  if (code < least) {
    code = least;
  }
  if (code > most) {
    code = most;
  }
  return (int8_t)code;
}
)";

// In the order in which they are declared.
const std::vector<CKernel>& kernel_table() {
  static const std::vector<CKernel> table = [] {
    std::vector<CKernel> all{
        {"scaled", kScaledTwice},
        {"coded", kCoded},
    };
    for (const auto& kernels :
         {c_product_kernels(), c_lstm_kernels(), c_code_kernels(), c_stream_kernels()}) {
      all.insert(all.end(), kernels.begin(), kernels.end());
    }
    return all;
  }();
  return table;
}

std::size_t index_of(std::string_view name) {
  const std::vector<CKernel>& table = kernel_table();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const CKernel& kernel) { return kernel.name == name; });
  if (found == table.end()) {
    throw std::invalid_argument("[c_program] unknown kernel " + std::string(name));
  }
  return static_cast<std::size_t>(found - table.begin());
}

void mark(std::string_view name, std::vector<bool>& used) {
  const std::size_t i = index_of(name);
  if (used[i]) return;
  used[i] = true;
  for (const std::string_view other : kernel_table()[i].needs) mark(other, used);
}

}  // namespace

std::string c_kernels(std::span<const std::string> names, kernels::Rounding rounding) {
  std::vector<bool> used(kernel_table().size(), false);
  for (const std::string& name : names) mark(name, used);
  std::string text;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const CKernel& kernel = kernel_table()[i];
    const bool once = kernel.name == "scaled" && rounding == kernels::Rounding::kFixedOnce;
    for (const char c : once ? kScaledOnce : kernel.text) {
      text += c == '@' ? kernel.name.back() : c;  // the width
    }
  }
  return text;
}

std::int64_t c_struct_bytes(std::string_view type) {
  static const std::regex comment(R"(/\*[^*]*\*/)"), member(R"(\w+(?:\[(\d+)\])?\s*[,;])");
  const std::string end = "} " + std::string(type) + ";";
  for (const CKernel& kernel : kernel_table()) {
    const std::size_t last = kernel.text.find(end);
    if (last == std::string_view::npos) continue;
    const std::size_t first = kernel.text.rfind('{', last);
    const std::string members = std::regex_replace(
        std::string(kernel.text.substr(first + 1, last - first - 1)), comment, "");
    std::int64_t bytes = 0;  // each member is a pointer or an int32_t, or an array of these
    for (std::sregex_iterator at(members.begin(), members.end(), member), none; at != none; ++at) {
      bytes += 4 * ((*at)[1].matched ? std::stoll((*at)[1]) : 1);
    }
    return bytes;
  }
  throw std::invalid_argument("[c_program] unknown struct " + std::string(type));
}

std::int64_t c_table_bytes(const std::string& kernels) {
  static const std::regex table(R"(static const int(\d+)_t \w+\[(\d+)\] = )");
  std::int64_t bytes = 0;
  for (std::sregex_iterator at(kernels.begin(), kernels.end(), table), none; at != none; ++at) {
    bytes += c_array_bytes(std::stoll((*at)[1]) / 8 * std::stoll((*at)[2]));
  }
  return bytes;
}

std::string c_kernel_for(std::string_view name, int bits) {
  return std::string(name) + "_" + std::to_string(8 / c_codes_per_byte(bits));
}

}  // namespace steelyard::deploy
