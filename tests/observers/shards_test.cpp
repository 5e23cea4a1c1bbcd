// What observers learn from the shards of a step is what they learn from the whole of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/observers/registry.h"
#include "tests/support/tensors.h"

namespace steelyard::observers {
namespace {

constexpr QScheme kGrid{.bits = 8, .is_signed = false, .symmetric = false, .narrow_range = false};
constexpr std::int64_t kStepSize = 96;

// Steps whose range grows, so that bins merge; the third is negative only.
std::vector<Tensor> steps() {
  std::vector<Tensor> all;
  for (const double scale : {0.3, 5.0, 0.01, 70.0}) {
    Tensor x =
        testing::random_tensor({kStepSize}, static_cast<std::uint64_t>(100 * scale), DType::kF32);
    for (float& v : x.span<float>()) v = static_cast<float>(scale) * (all.size() == 2 ? -v * v : v);
    all.push_back(x);
  }
  return all;
}

void observe(Observer& observer, const Tensor& values) {
  observer.observe({1, 1, values.size()}, values, Tensor::zeros({1}, DType::kI64));
}

Tensor part_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
  const std::vector<float> part(x.data<float>() + begin, x.data<float>() + end);
  return Tensor::from(part, {end - begin});
}

// One step in four parts on two ranks, whose tensors are merged as the engine does.
void observe_in_parts(std::vector<std::unique_ptr<Observer>>& ranks, const Tensor& x) {
  for (const auto& rank : ranks) rank->begin_step();
  const std::int64_t cuts[] = {0, 7, 40, 41, kStepSize};
  for (std::size_t part = 0; part < 4; ++part) {
    observe(*ranks[part / 2], part_of(x, cuts[part], cuts[part + 1]));
  }
  const auto merge = [&]<typename T>(T, auto list, auto combine) {
    const std::vector<Tensor> a = (ranks[0].get()->*list)(), b = (ranks[1].get()->*list)();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::int64_t k = 0; k < a[i].size(); ++k) {
        T &p = a[i].template data<T>()[k], &q = b[i].template data<T>()[k];
        p = q = combine(p, q);
      }
    }
  };
  merge(float{}, &Observer::maxima, [](float p, float q) { return std::max(p, q); });
  merge(std::int64_t{}, &Observer::counts, [](std::int64_t p, std::int64_t q) { return p + q; });
  for (const auto& rank : ranks) rank->end_step();
}

TEST(Shards, TeachAnObserverWhatTheWholeStepTeachesIt) {
  int tried = 0;
  for (const ObserverRow& row : observer_rows()) {
    SCOPED_TRACE(std::string(row.name));
    ObserverOptions options;
    options.type = row.name;
    options.averaging_constant = 0.3;
    const auto whole = make_observer(options, kGrid, 1);
    if (!merges_over_shards(options)) {
      EXPECT_THROW(whole->begin_step(), std::logic_error);
      continue;
    }
    ++tried;
    std::vector<std::unique_ptr<Observer>> ranks;
    for (int i = 0; i < 2; ++i) ranks.push_back(make_observer(options, kGrid, 1));
    for (const Tensor& x : steps()) {
      observe(*whole, x);
      observe_in_parts(ranks, x);
      for (const auto& rank : ranks) {
        const auto expected = whole->state(), found = rank->state();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(testing::values(found[i].tensor), testing::values(expected[i].tensor))
              << expected[i].name;
        }
      }
    }
  }
  EXPECT_GE(tried, 5);
}

TEST(Shards, NothingIsLearnedFromAStepThatIsAbandoned) {
  for (const char* name : {"min_max", "moving_average", "histogram"}) {
    ObserverOptions options;
    options.type = name;
    const auto observer = make_observer(options, kGrid, 1),
               untouched = make_observer(options, kGrid, 1);
    observer->begin_step();
    observe(*observer, steps()[1]);
    // Asked for by then, as of every rank: learning began in the step.
    observer->maxima();
    observer->counts();
    observer->abandon_step();
    for (const auto& each : {observer.get(), untouched.get()}) observe(*each, steps()[0]);
    const auto expected = untouched->state(), found = observer->state();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(testing::values(found[i].tensor), testing::values(expected[i].tensor)) << name;
    }
  }
}

}  // namespace
}  // namespace steelyard::observers
