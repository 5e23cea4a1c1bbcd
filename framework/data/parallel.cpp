#include "steelyard/framework/data/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "steelyard/kernels/backend.h"

namespace steelyard {

void in_parallel(std::int64_t count, const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;  // guards what follows
  std::exception_ptr error;
  std::int64_t failed = count;
  const auto share = [&] {
    for (std::int64_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        next = count;
        if (i < failed) error = std::current_exception();
        failed = std::min(i, failed);
      }
    }
  };
  std::vector<std::jthread> threads;
  const std::int64_t others = std::min<std::int64_t>(count, kernels::num_threads()) - 1;
  for (std::int64_t i = 0; i < others; ++i) threads.emplace_back(share);
  share();
  threads.clear();  // waits
  if (error) std::rethrow_exception(error);
}

}  // namespace steelyard
