#include "steelyard/kernels/cpu/quant_forward.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/quant_cpu.h"

namespace steelyard::kernels {
namespace {

template <typename V>
void run_forward(const QuantProblem& problem, const QuantArgs& args) {
  const Forward<V> forward(problem, args);
  std::atomic<std::int64_t> nan{0};
  parallel_blocks(problem.map.elements, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t block_nan = forward.block_or_pass(begin, end);
    if (block_nan != 0) nan.fetch_add(block_nan, std::memory_order_relaxed);
  });
  if (args.non_finite_count != nullptr) *args.non_finite_count += nan.load();
}

template <typename V>
void run_batch(const std::vector<QuantCall>& calls) {
  std::vector<Forward<V>> forwards;
  std::vector<std::int64_t> first_block{0};  // of each call, then the end
  for (const QuantCall& call : calls) {
    forwards.emplace_back(*call.problem, call.args);
    const std::int64_t blocks = (call.problem->map.elements + kBlockElements - 1) / kBlockElements;
    first_block.push_back(first_block.back() + blocks);
  }
  std::vector<std::atomic<std::int64_t>> nan(calls.size());
  parallel_for(first_block.back(), 8, [&](std::int64_t begin, std::int64_t end) {
    const auto after = std::upper_bound(first_block.begin(), first_block.end(), begin);
    auto call = static_cast<std::size_t>(after - first_block.begin()) - 1;
    for (std::int64_t block = begin; block < end; ++block) {
      while (block >= first_block[call + 1]) ++call;
      const std::int64_t at = (block - first_block[call]) * kBlockElements;
      const std::int64_t stop = std::min(calls[call].problem->map.elements, at + kBlockElements);
      const std::int64_t found = forwards[call].block_or_pass(at, stop);
      if (found != 0) nan[call].fetch_add(found, std::memory_order_relaxed);
    }
    stream_fence();
  });
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].args.non_finite_count != nullptr) *calls[i].args.non_finite_count += nan[i].load();
  }
}

}  // namespace

void quant_batch_cpu(const std::vector<QuantCall>& calls) {
  if (calls.empty()) return;
  visit_value_type(calls.front().problem->value_type,
                   [&](auto* tag) { run_batch<std::remove_pointer_t<decltype(tag)>>(calls); });
}

void quant_forward_cpu(const QuantProblem& problem, const QuantArgs& args) {
  if (problem.statistics != Statistics::kGiven) {
    quant_forward_with_statistics_cpu(problem, args);
    return;
  }
  visit_value_type(problem.value_type, [&](auto* tag) {
    run_forward<std::remove_pointer_t<decltype(tag)>>(problem, args);
  });
}

}  // namespace steelyard::kernels
