#include "steelyard/qat/ptq/bit_allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace steelyard::qat {
namespace {

using Layers = std::vector<std::vector<WidthChoice>>;

// A step along the lower convex hull of one layer's choices.
struct Step {
  std::size_t layer;
  std::size_t from;  // indices of choices
  std::size_t to;
  std::int64_t cost;   // > 0
  double improvement;  // > 0: the error that it removes
  double slope() const { return improvement / static_cast<double>(cost); }
};

void require_valid(const Layers& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string where = "[allocate_widths] layer " + std::to_string(i);
    if (layers[i].empty()) throw std::invalid_argument(where + " has no choice");
    for (const WidthChoice& choice : layers[i]) {
      if (choice.cost < 0 || !std::isfinite(choice.error)) {
        throw std::invalid_argument(where + ": expected a cost of at least 0 and a finite error");
      }
    }
  }
}

// The choice of least cost, of several the one of least error.
std::size_t cheapest(const std::vector<WidthChoice>& choices) {
  const auto less = [](const WidthChoice& a, const WidthChoice& b) {
    return a.cost < b.cost || (a.cost == b.cost && a.error < b.error);
  };
  return static_cast<std::size_t>(std::min_element(choices.begin(), choices.end(), less) -
                                  choices.begin());
}

// The hull from the cheapest choice on, each step less steep than the one before.
std::vector<Step> hull_steps(std::size_t layer, const std::vector<WidthChoice>& choices) {
  std::vector<Step> steps;
  for (std::size_t at = cheapest(choices);;) {
    std::optional<Step> best;
    for (std::size_t to = 0; to < choices.size(); ++to) {
      const Step step{layer, at, to, choices[to].cost - choices[at].cost,
                      choices[at].error - choices[to].error};
      if (step.cost <= 0 || step.improvement <= 0) continue;
      const bool steeper = !best || step.slope() > best->slope() ||
                           (step.slope() == best->slope() && step.cost > best->cost);
      if (steeper) best = step;
    }
    if (!best) return steps;
    steps.push_back(*best);
    at = best->to;
  }
}

// The linear relaxation of the layers from `first` on: the least error as a function of the budget,
// convex and piecewise linear.
class Relaxation {
 public:
  Relaxation(const Layers& layers, std::size_t first, const std::vector<Step>& sorted) {
    std::int64_t cost = 0;
    double error = 0;
    for (std::size_t i = first; i < layers.size(); ++i) {
      const WidthChoice& choice = layers[i][cheapest(layers[i])];
      cost += choice.cost;
      error += choice.error;
    }
    costs_.push_back(cost);
    errors_.push_back(error);
    for (const Step& step : sorted) {
      if (step.layer < first) continue;
      costs_.push_back(cost += step.cost);
      errors_.push_back(error -= step.improvement);
    }
  }

  std::int64_t smallest_cost() const { return costs_.front(); }
  // For a budget of at least smallest_cost().
  double error_at(std::int64_t budget) const {
    const auto next = std::upper_bound(costs_.begin(), costs_.end(), budget);
    const auto i = static_cast<std::size_t>(next - costs_.begin());
    if (i == costs_.size()) return errors_.back();
    const double part = static_cast<double>(budget - costs_[i - 1]) /
                        static_cast<double>(costs_[i] - costs_[i - 1]);
    return errors_[i - 1] + part * (errors_[i] - errors_[i - 1]);
  }

 private:
  std::vector<std::int64_t> costs_;
  std::vector<double> errors_;
};

// The error of a solution: every layer's steps are taken, steepest first, as long as they fit.
double greedy_error(const Layers& layers, const std::vector<Step>& sorted, std::int64_t budget) {
  double error = 0;
  std::vector<std::size_t> at;
  for (const auto& choices : layers) {
    at.push_back(cheapest(choices));
    budget -= choices[at.back()].cost;
    error += choices[at.back()].error;
  }
  for (const Step& step : sorted) {
    if (step.from != at[step.layer] || step.cost > budget) continue;
    at[step.layer] = step.to;
    budget -= step.cost;
    error -= step.improvement;
  }
  return error;
}

// Choices for the layers so far.
struct State {
  std::int64_t cost = 0;
  double error = 0;
  std::size_t parent = 0;  // index among the states of the layer before
  std::size_t choice = 0;
};

// The states that no other one beats in both, by rising cost and falling error.
std::vector<State> undominated(std::vector<State> states) {
  std::stable_sort(states.begin(), states.end(), [](const State& a, const State& b) {
    return a.cost < b.cost || (a.cost == b.cost && a.error < b.error);
  });
  std::vector<State> kept;
  for (const State& state : states) {
    if (kept.empty() || state.error < kept.back().error) kept.push_back(state);
  }
  return kept;
}

// The cost of the cheapest choices together.
std::int64_t smallest_cost(const Layers& layers) {
  std::int64_t cost = 0;
  for (const auto& choices : layers) cost += choices[cheapest(choices)].cost;
  return cost;
}

}  // namespace

std::optional<Allocation> allocate_widths(const Layers& layers, std::int64_t budget) {
  require_valid(layers);
  if (smallest_cost(layers) > budget) return std::nullopt;
  std::vector<Step> steps;
  double magnitude = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<Step> own = hull_steps(i, layers[i]);
    steps.insert(steps.end(), own.begin(), own.end());
    for (const WidthChoice& choice : layers[i]) magnitude += std::abs(choice.error);
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.slope() > b.slope(); });
  // What rounding may add to sums of errors: a state is given up only when it is behind by more.
  const double slack = magnitude * 64 * std::numeric_limits<double>::epsilon();
  const double known = greedy_error(layers, steps, budget) + slack;

  std::vector<std::vector<State>> reached{{State{}}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Relaxation rest(layers, i + 1, steps);
    std::vector<State> next;
    for (std::size_t parent = 0; parent < reached.back().size(); ++parent) {
      for (std::size_t choice = 0; choice < layers[i].size(); ++choice) {
        const State& before = reached.back()[parent];
        const State state{before.cost + layers[i][choice].cost,
                          before.error + layers[i][choice].error, parent, choice};
        const std::int64_t left = budget - state.cost;
        if (left < rest.smallest_cost() || state.error + rest.error_at(left) > known) continue;
        next.push_back(state);
      }
    }
    reached.push_back(undominated(std::move(next)));
  }
  std::size_t at = reached.back().size() - 1;  // the least error comes last
  Allocation best{std::vector<std::size_t>(layers.size()), reached.back()[at].cost,
                  reached.back()[at].error};
  for (std::size_t i = layers.size(); i > 0; --i) {
    best.choice[i - 1] = reached[i][at].choice;
    at = reached[i][at].parent;
  }
  return best;
}

}  // namespace steelyard::qat
