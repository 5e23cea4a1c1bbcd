#include "steelyard/framework/train/step_clock.h"

#include <cstring>
#include <string>

namespace steelyard {

void StepClock::start() {
  begin_ = std::chrono::steady_clock::now();
  before_ = ranks_.stats();
  if (loader_ != nullptr) loader_before_ = loader_->seconds();
}

std::vector<StepSeconds> StepClock::of_all_ranks() const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  const comm::CommStats now = ranks_.stats();
  StepSeconds own;
  own.reduce = now.busy_seconds - before_.busy_seconds;
  own.wait = now.waited_seconds - before_.waited_seconds;
  own.compute = passed.count() - own.wait;
  if (loader_ != nullptr) {
    const LoaderSeconds loader = loader_->seconds();
    own.batches = loader.waited - loader_before_.waited;
    own.making = loader.making - loader_before_.making;
  }
  std::string bytes(sizeof own, '\0');
  std::memcpy(bytes.data(), &own, sizeof own);
  std::vector<StepSeconds> all;
  for (const std::string& of_rank : ranks_.gather_equal(bytes)) {
    std::memcpy(&own, of_rank.data(), sizeof own);
    all.push_back(own);
  }
  return all;
}

}  // namespace steelyard
