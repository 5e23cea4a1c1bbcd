#include "steelyard/recipes/text/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "steelyard/layers/decoding.h"

namespace steelyard {
namespace {

// Numbers of tokens by their logits, the largest first; of `count` of them.
std::vector<std::int64_t> largest_first(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      const float x = logits[static_cast<std::size_t>(a)];
                      const float y = logits[static_cast<std::size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

}  // namespace

std::int64_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          Rng& random) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) continue;
    throw std::invalid_argument("the logit of token " + std::to_string(i) + " is " +
                                std::to_string(logits[i]));
  }
  const std::int64_t all = std::ssize(logits);
  const bool greedy = options.temperature == 0;
  const std::int64_t kept = greedy ? 1 : options.top_k > 0 ? std::min(options.top_k, all) : all;
  const std::vector<std::int64_t> order = largest_first(logits, kept);
  if (greedy) return order[0];
  std::vector<double> shares;
  const auto logit = [&](std::size_t place) {
    return static_cast<double>(logits[static_cast<std::size_t>(order[place])]);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    shares.push_back(std::exp((logit(i) - logit(0)) / options.temperature));
  }
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  double reached = 0;
  std::size_t count = 0;
  while (count < shares.size() && (count == 0 || reached < options.top_p * whole)) {
    reached += shares[count++];
  }
  double drawn = random.uniform() * reached;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    drawn -= shares[i];
    if (drawn < 0) return order[i];
  }
  return order[count - 1];
}

void generate(const Module& model, const std::vector<std::int64_t>& tokens, std::int64_t most,
              const SamplingOptions& options, std::uint64_t seed,
              const std::function<bool(std::int64_t)>& take) {
  Rng random(seed);
  Decoding decoding(model, std::ssize(tokens) + most - 1);  // nothing follows the last one
  std::vector<std::int64_t> added = tokens;
  for (std::int64_t count = 0; count < most; ++count) {
    const Tensor inputs = Tensor::empty({1, std::ssize(added)});
    std::transform(added.begin(), added.end(), inputs.data<float>(),
                   [](std::int64_t token) { return static_cast<float>(token); });
    const Tensor logits = decoding.next(inputs);
    added = {choose_token(logits.span<float>(), options, random)};
    if (!take(added[0])) return;
  }
}

}  // namespace steelyard
