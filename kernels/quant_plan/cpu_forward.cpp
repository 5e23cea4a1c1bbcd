#include "steelyard/kernels/quant_plan/cpu_forward.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {
namespace {

template <typename V>
void run_batch(std::span<const QuantForward> calls) {
  std::vector<Forward<V>> forwards;
  std::vector<std::int64_t> first_block{0};  // of each call, then the end
  for (const auto& [problem, args] : calls) {
    forwards.emplace_back(problem, args);
    const std::int64_t blocks = (problem.map.elements + kBlockElements - 1) / kBlockElements;
    first_block.push_back(first_block.back() + blocks);
  }
  std::vector<std::atomic<std::int64_t>> nan(calls.size());
  parallel_for(first_block.back(), 8, [&](std::int64_t begin, std::int64_t end) {
    const auto after = std::upper_bound(first_block.begin(), first_block.end(), begin);
    auto call = static_cast<std::size_t>(after - first_block.begin()) - 1;
    for (std::int64_t block = begin; block < end; ++block) {
      while (block >= first_block[call + 1]) ++call;
      const std::int64_t at = (block - first_block[call]) * kBlockElements;
      const std::int64_t stop = std::min(calls[call].problem.map.elements, at + kBlockElements);
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

static void compute(const QuantForward& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) { run_forward<V>(k); });
}

static void compute(const QuantBatch& k) {
  if (k.calls.empty()) return;
  visit_value_type(k.calls.front().problem.value_type,
                   [&]<typename V>(V*) { run_batch<V>(k.calls); });
}

template struct CpuKernels<KernelList<QuantForward, QuantBatch>>;

}  // namespace steelyard::kernels
