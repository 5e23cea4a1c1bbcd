#include "steelyard/recipes/text/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

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

void generate(Module& model, std::vector<std::int64_t> tokens, const SamplingOptions& options,
              std::uint64_t seed, const std::function<bool(std::int64_t)>& take) {
  const NoGradGuard no_grad;
  Rng random(seed);
  for (;;) {
    const Tensor inputs = Tensor::empty({1, std::ssize(tokens)});
    std::transform(tokens.begin(), tokens.end(), inputs.data<float>(),
                   [](std::int64_t token) { return static_cast<float>(token); });
    ForwardContext context;
    const Tensor logits = model.forward(Variable(inputs), context).value();
    const std::int64_t vocabulary = logits.dim(-1);
    const float* last = logits.data<float>() + logits.size() - vocabulary;
    tokens.push_back(choose_token({last, static_cast<std::size_t>(vocabulary)}, options, random));
    if (!take(tokens.back())) return;
  }
}

}  // namespace steelyard
