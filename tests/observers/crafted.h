// Distributions that observers must cope with, the same in every run.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace steelyard::observers {

struct Crafted {
  const char* name;
  double (*sample)(double u, std::int64_t i);  // u uniform in (0, 1)
};

inline constexpr Crafted kCrafted[] = {
    {"uniform", [](double u, std::int64_t) { return 4 * u - 1; }},
    {"heavy_tail", [](double u, std::int64_t) { return std::tan(3.0 * (u - 0.5)); }},
    {"outlier", [](double u, std::int64_t i) { return i == 0 ? 10.0 : u - 0.5; }},
    {"two_sided", [](double u, std::int64_t i) { return i % 2 == 0 ? 1 + u : -3 - u; }},
    {"spike", [](double u, std::int64_t i) { return i % 10 == 0 ? 5 * u : 0.001 * u; }},
    {"one_sided", [](double u, std::int64_t i) { return i % 2 == 0 ? 0.0 : -std::log(u); }},
    {"negative", [](double u, std::int64_t) { return std::log(u) - 0.25; }},
    {"one_value", [](double, std::int64_t i) { return i == 7 ? 3.0 : 0.0; }},
    {"constant", [](double, std::int64_t) { return -2.5; }},
    {"zero", [](double, std::int64_t) { return 0.0; }},
    {"away_from_zero", [](double u, std::int64_t) { return 0.9 + 0.2 * u; }},
    {"two_values", [](double u, std::int64_t i) { return (i % 5 < 3 ? 0.5 : 1) + 0.002 * u; }},
};

inline std::vector<float> crafted_samples(const Crafted& crafted, std::int64_t count,
                                          std::uint64_t seed = 17) {
  std::vector<float> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const double u = (static_cast<double>(seed >> 11) + 0.5) * 0x1p-53;
    samples.push_back(static_cast<float>(crafted.sample(u, i)));
  }
  return samples;
}

}  // namespace steelyard::observers
