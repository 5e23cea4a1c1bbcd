#include "steelyard/observers/qscheme.h"

#include <cfloat>
#include <charconv>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace steelyard::observers {

using kernels::Granularity;

kernels::CodeRange QScheme::code_range() const {
  if (!is_signed) return {0, (1 << bits) - 1};
  const std::int32_t qmax = (1 << (bits - 1)) - 1;
  return {narrow_range ? -qmax : -qmax - 1, qmax};
}

void validate(const QScheme& scheme) {
  const int most = scheme.dynamic ? 8 : 16;
  if (scheme.bits < 2 || scheme.bits > most) {
    throw std::invalid_argument("[qscheme] expected 2 to " + std::to_string(most) + " bits" +
                                (scheme.dynamic ? " with dynamic scales" : "") + ", got " +
                                std::to_string(scheme.bits));
  }
  if (scheme.symmetric && !scheme.is_signed) {
    throw std::invalid_argument("[qscheme] a symmetric scheme needs signed codes");
  }
  if (scheme.narrow_range && !scheme.symmetric) {
    throw std::invalid_argument("[qscheme] a narrow range needs a symmetric scheme");
  }
  if ((scheme.group_size > 0) != (scheme.granularity == Granularity::kGroup) ||
      scheme.group_size < 0) {
    throw std::invalid_argument("[qscheme] expected a group size above 0 with groups, 0 elsewhere");
  }
  const bool blocks = scheme.granularity == Granularity::kBlock;
  const auto [block_rows, block_columns] = scheme.block;
  if (blocks ? block_rows < 1 || block_columns < 1 : block_rows != 0 || block_columns != 0) {
    throw std::invalid_argument(
        "[qscheme] expected rows and columns above 0 with blocks, 0 elsewhere");
  }
  if ((scheme.granularity == Granularity::kToken || blocks) && !scheme.dynamic) {
    throw std::invalid_argument("[qscheme] scales per token or block need dynamic: true");
  }
  if (scheme.dynamic && !blocks && scheme.granularity != Granularity::kToken &&
      scheme.granularity != Granularity::kGroup) {
    throw std::invalid_argument("[qscheme] dynamic needs the strategy token, group or block");
  }
}

std::int64_t scale_count(const QScheme& scheme, std::int64_t rows, std::int64_t row_size) {
  switch (scheme.granularity) {
    case Granularity::kTensor:
      return 1;
    case Granularity::kChannel:
    case Granularity::kToken:
      return rows;
    case Granularity::kGroup:
    case Granularity::kBlock:
      break;
  }
  const bool blocks = scheme.granularity == Granularity::kBlock;
  const std::int64_t sets = blocks ? (rows + scheme.block[0] - 1) / scheme.block[0] : rows;
  const std::int64_t size = blocks ? scheme.block[1] : scheme.group_size;
  if (row_size <= size) return sets;
  if (row_size % size != 0) {
    throw std::invalid_argument((blocks ? "blocks of " : "groups of ") + std::to_string(size) +
                                " do not divide the " + std::to_string(row_size) +
                                (blocks ? " features of a row" : " weights of an output"));
  }
  return sets * (row_size / size);
}

std::string to_string(const QScheme& scheme) {
  std::string strategy = ", per tensor";
  if (scheme.granularity == Granularity::kChannel) strategy = ", per channel";
  if (scheme.granularity == Granularity::kGroup) {
    strategy = ", groups of " + std::to_string(scheme.group_size);
  }
  if (scheme.granularity == Granularity::kToken) strategy = ", per token";
  if (scheme.granularity == Granularity::kBlock) {
    strategy = ", blocks of " + std::to_string(scheme.block[0]) + " rows and " +
               std::to_string(scheme.block[1]) + " columns";
  }
  if (scheme.dynamic) strategy += ", dynamic";
  return std::string(scheme.is_signed ? "int" : "uint") + std::to_string(scheme.bits) +
         (scheme.symmetric ? " symmetric" : " affine") +
         (scheme.symmetric && !scheme.narrow_range ? ", full range" : "") + strategy;
}

QScheme parse_qscheme(std::string_view text) {
  std::string_view rest = text;
  const auto takes = [&rest](std::string_view words) {
    if (!rest.starts_with(words)) return false;
    rest.remove_prefix(words.size());
    return true;
  };
  const auto take_number = [&rest](auto& number) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return error == std::errc();
  };
  QScheme scheme;
  const auto takes_strategy = [&] {
    if (takes(", per tensor")) return true;
    const auto is = [&](Granularity granularity) {
      scheme.granularity = granularity;
      return true;
    };
    if (takes(", per channel")) return is(Granularity::kChannel);
    if (takes(", per token")) return is(Granularity::kToken);
    if (takes(", groups of ")) return is(Granularity::kGroup) && take_number(scheme.group_size);
    return takes(", blocks of ") && is(Granularity::kBlock) && take_number(scheme.block[0]) &&
           takes(" rows and ") && take_number(scheme.block[1]) && takes(" columns");
  };
  const auto takes_all = [&] {
    scheme.is_signed = !takes("u");
    if (!takes("int") || !take_number(scheme.bits)) return false;
    scheme.symmetric = takes(" symmetric");
    if (!scheme.symmetric && !takes(" affine")) return false;
    scheme.narrow_range = scheme.symmetric && !takes(", full range");
    if (!takes_strategy()) return false;
    scheme.dynamic = takes(", dynamic");
    return rest.empty();
  };
  // Numbers have one text each: no zeros before them.
  if (takes_all() && to_string(scheme) == text) {
    validate(scheme);
    return scheme;
  }
  throw std::invalid_argument(
      "[qscheme] expected a text as \"int8 symmetric, per channel\", got \"" + std::string(text) +
      "\"");
}

QParams choose_qparams(const Range& range, const QScheme& scheme) {
  const kernels::CodeRange codes = scheme.code_range();
  if (!range.empty() && (!std::isfinite(range.lo) || !std::isfinite(range.hi))) {
    throw std::invalid_argument("[qparams] expected a finite range, got [" +
                                std::to_string(range.lo) + ", " + std::to_string(range.hi) + "]");
  }
  return kernels::qparams_of_range<float>(range.lo, range.hi, codes, scheme.symmetric);
}

void validate(const QParams& params, const QScheme& scheme, const std::string& quantizer) {
  const kernels::CodeRange codes = scheme.code_range();
  const bool fixed_zero = !scheme.symmetric || params.zero_point == 0;
  if (params.zero_point < codes.qmin || params.zero_point > codes.qmax || !fixed_zero) {
    throw std::invalid_argument("[" + quantizer + "] expected a zero point " +
                                (scheme.symmetric ? std::string("of 0")
                                                  : "in [" + std::to_string(codes.qmin) + ", " +
                                                        std::to_string(codes.qmax) + "]") +
                                ", got " + std::to_string(params.zero_point));
  }
  const double reach = kernels::largest_operand(codes, params.zero_point);
  if (!(params.scale >= FLT_MIN) || !(static_cast<double>(params.scale) * reach <= FLT_MAX)) {
    std::ostringstream message;
    message << "[" << quantizer << "] expected a scale of " << FLT_MIN
            << " (the smallest normal float) to " << FLT_MAX / reach
            << " (no code beyond the largest), got " << params.scale;
    throw std::invalid_argument(message.str());
  }
}

}  // namespace steelyard::observers
