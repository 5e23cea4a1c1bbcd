#include "steelyard/recipes/searches/effects.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace steelyard {
namespace {

std::vector<double> log_softmax(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - largest);
  std::vector<double> logs;
  for (const float x : row) logs.push_back(x - largest - std::log(sum));
  return logs;
}

}  // namespace

double divergence(const Tensor& from, const Tensor& to, bool classes) {
  const auto width = static_cast<std::size_t>(from.size() / from.dim(0));
  double sum = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(from.dim(0)); ++row) {
    const auto a = from.span<float>().subspan(row * width, width);
    const auto b = to.span<float>().subspan(row * width, width);
    if (!classes) {
      for (std::size_t i = 0; i < width; ++i) sum += std::pow(double{a[i]} - b[i], 2) / width;
      continue;
    }
    const std::vector<double> p = log_softmax(a);
    const std::vector<double> q = log_softmax(b);
    for (std::size_t i = 0; i < width; ++i) {
      if (std::isfinite(p[i])) sum += std::exp(p[i]) * (p[i] - q[i]);
    }
  }
  const double mean = sum / static_cast<double>(from.dim(0));
  return std::isnan(mean) ? std::numeric_limits<double>::infinity() : std::max(0.0, mean);
}

EffectNumbers numbers_of(const QuantizationEffect& effect) {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  return {effect.sqnr_db.value_or(kNothing), effect.clipped, effect.loss_increase,
          effect.top1_drop.value_or(kNothing), effect.divergence};
}

QuantizationEffect effect_of(int bits, const EffectNumbers& numbers) {
  const auto if_any = [](double value) {
    return std::isnan(value) ? std::nullopt : std::optional(value);
  };
  return {.bits = bits,
          .sqnr_db = if_any(numbers.sqnr_db),
          .clipped = numbers.clipped,
          .loss_increase = numbers.loss_increase,
          .top1_drop = if_any(numbers.top1_drop),
          .divergence = numbers.divergence};
}

}  // namespace steelyard
