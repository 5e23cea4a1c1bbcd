// run() on the CPU, for the file of each family that emits it.
#pragma once

#include <algorithm>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/map.h"
#include "steelyard/kernels/cpu/row_sums.h"
#include "steelyard/kernels/cpu/table_lookup.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {
namespace cpu {

// An element that costs so much that a kernel gives kGrain is no work for vectors.
template <class K>
void run_elements(const K& kernel) {
  if constexpr (requires { K::kGrain; }) {
    parallel_for(kernel.n, K::kGrain, [&](std::int64_t begin, std::int64_t end) {
      const K own = kernel;
      for (std::int64_t i = begin; i < end; ++i) own(i);
    });
  } else {
    map(kernel.n, kernel);
  }
}

template <class K>
void run_together(const K& kernel) {
  parallel_for(kernel.n, K::kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t n = std::min({end - i, kernel.neighbours(i), K::kTogether});
      if (n == 1) {
        kernel(i);
      } else {
        kernel.together(i, n);
      }
      i += n;
    }
  });
}

template <class K>
void run_lookups(const K& kernel) {
  constexpr std::int64_t kPiece = 4096;  // looked up, it is still in the cache
  parallel_for(kernel.n, kMapGrain, [&](std::int64_t begin, std::int64_t end) {
    const K own = kernel;
    for (std::int64_t i = begin; i < end; i += kPiece) {
      const std::int64_t n = std::min(kPiece, end - i);
      look_up(n, own.x + i, own.table, own.y + i);
#pragma omp simd
      for (std::int64_t k = i; k < i + n; ++k) own.after(k);
    }
  });
}

template <class K, class Function>
void run_function(const K& kernel, Function function) {
  parallel_for(kernel.n, K::kGrain, [&](std::int64_t begin, std::int64_t end) {
    const K own = kernel;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) own.at(function, i);
  });
}

template <class K, int... n>
void run_functions(const K& kernel, std::integer_sequence<int, n...>) {
  using Function = decltype(kernel.function);
  const auto run_one = [&](auto function) {
    if (function == kernel.function) run_function(kernel, function);
  };
  (run_one(std::integral_constant<Function, static_cast<Function>(n)>()), ...);
}

// body(first + k, in_a + k * step_a, in_b + k * step_b) for every k in [0, n). By value: what is
// written may be what a member points to.
template <class Body, class StepA, class StepB>
void run_pairs(std::int64_t n, Body body, std::int64_t first, std::int64_t in_a, StepA step_a,
               std::int64_t in_b, StepB step_b) {
#pragma omp simd
  for (std::int64_t k = 0; k < n; ++k) body(first + k, in_a + k * step_a, in_b + k * step_b);
}

// Runs of one step in each operand, most of them of 1 or, where an operand repeats, 0.
template <class K>
void run_pairs(const K& kernel) {
  const auto with_step = [](std::int64_t step, const auto& use) {
    if (step == 0) return use(std::integral_constant<std::int64_t, 0>());
    if (step == 1) return use(std::integral_constant<std::int64_t, 1>());
    use(step);
  };
  parallel_for(kernel.n, K::kGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto body = kernel.body();
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t n = std::min({end - i, kernel.at_a.run(i), kernel.at_b.run(i)});
      with_step(kernel.at_a.step(), [&](auto step_a) {
        with_step(kernel.at_b.step(), [&](auto step_b) {
          run_pairs(n, body, i, kernel.at_a(i), step_a, kernel.at_b(i), step_b);
        });
      });
      i += n;
    }
  });
}

template <class K>
void run_rows(const K& kernel) {
  if (kernel.columns == 0) return;
  parallel_for(kernel.rows, std::max<std::int64_t>(1, kMapGrain / kernel.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 const K own = kernel;
                 for (std::int64_t row = begin; row < end; ++row) {
#pragma omp simd
                   for (std::int64_t c = 0; c < own.columns; ++c) own(row, c);
                 }
               });
}

// Repeats the values that a member points to for a wide row, and points it there.
template <typename T>
std::vector<T> widen_member(const RowChunks& layout, const T*& values) {
  if (values == nullptr) return {};
  std::vector<T> wide = widen<T>(layout, values);
  values = wide.data();
  return wide;
}

// Calls use(the kernel with its channels' values repeated).
template <class K, class Use>
void with_wide_members(const RowChunks& layout, K kernel, const Use& use) {
  if constexpr (requires { K::per_channel(); }) {
    const auto arrays = std::apply(
        [&](auto... member) { return std::tuple{widen_member(layout, kernel.*member)...}; },
        K::per_channel());
    use(kernel);
  } else {
    use(kernel);
  }
}

template <class K>
void run_channels(const K& kernel) {
  if (kernel.rows * kernel.channels == 0) return;
  const RowChunks layout(kernel.rows, kernel.channels);
  with_wide_members(layout, kernel, [&](const K& wide) { map_rows(layout, wide); });
}

template <class K>
void run_layout(const K& kernel) {
  const ChannelLayout& layout = kernel.layout;
  parallel_for(layout.size(), K::kGrain, [&](std::int64_t begin, std::int64_t end) {
    const K own = kernel;
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t group = i / layout.inner, channel = group % layout.channels;
      const std::int64_t stop = std::min(end, (group + 1) * layout.inner);
      for (; i < stop; ++i) own(i, channel);
    }
  });
}

template <class K>
void run_list(const K& kernel) {
  if constexpr (requires { kernel.idle(); }) {
    if (kernel.idle()) return;
  }
  for (const auto& tensor : kernel.tensors) map(tensor.size, kernel.of(tensor));
}

template <class K>
void run_sum(const K& kernel) {
  const auto term = [own = kernel](std::int64_t i, std::int64_t) { return own.term(i); };
  kernel.finish(row_sums(RowChunks(kernel.n, 1), term)[0]);
}

template <class K, int... n>
void run_channel_sums(const K& kernel, std::integer_sequence<int, n...>) {
  if (kernel.channels == 0) return;
  const RowChunks layout(kernel.rows, kernel.channels);
  KeptVector<double> sums;
  with_wide_members(layout, kernel, [&](const K& wide) {
    sums = row_sums(layout, [own = wide](std::int64_t i, std::int64_t c) {
      return own.template term<n>(i, c);
    }...);
  });
  for (std::int64_t c = 0; c < kernel.channels; ++c) {
    const double of_channel[] = {sums[n * kernel.channels + c]...};
    kernel.finish(c, of_channel);
  }
}

template <class K>
void run_teams(const K& kernel) {
  constexpr std::int64_t kGrain = 4096;  // elements per thread that pay for waking it
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kernel.columns + 1));
  KeptVector<double> values(TeamSumKernel<K> ? kernel.rows : 0, 0.0);
  parallel_for(kernel.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    const K own = kernel;
    for (std::int64_t row = begin; row < end; ++row) {
      if constexpr (TeamSumKernel<K>) {
        values[row] = own.row(row, OneThread());
      } else {
        own.row(row, OneThread());
      }
    }
  });
  if constexpr (TeamSumKernel<K>) {
    kernel.finish(std::accumulate(values.begin(), values.end(), 0.0));
  }
}

template <class K>
void run_by_kind(const K& kernel) {
  if constexpr (FunctionKernel<K>) {
    constexpr int kFunctions = static_cast<int>(K::kLastFunction) + 1;
    run_functions(kernel, std::make_integer_sequence<int, kFunctions>());
  } else if constexpr (TogetherKernel<K>) {
    run_together(kernel);
  } else if constexpr (LookupKernel<K>) {
    run_lookups(kernel);
  } else if constexpr (PairKernel<K>) {
    run_pairs(kernel);
  } else if constexpr (ElementKernel<K>) {
    run_elements(kernel);
  } else if constexpr (SingleKernel<K>) {
    kernel();
  } else if constexpr (RowKernel<K>) {
    run_rows(kernel);
  } else if constexpr (ChannelKernel<K>) {
    run_channels(kernel);
  } else if constexpr (LayoutKernel<K>) {
    run_layout(kernel);
  } else if constexpr (ListKernel<K>) {
    run_list(kernel);
  } else if constexpr (SumKernel<K>) {
    run_sum(kernel);
  } else if constexpr (ChannelSumKernel<K>) {
    run_channel_sums(kernel, std::make_integer_sequence<int, K::kTerms>());
  } else if constexpr (TeamKernel<K>) {
    run_teams(kernel);
  } else {
    compute(kernel);
  }
}

}  // namespace cpu

template <class K>
void run(const K& kernel) {
  if (kernel_watcher == nullptr) return cpu::run_by_kind(kernel);
  run_watched(kernel, [&] { cpu::run_by_kind(kernel); });
}

}  // namespace steelyard::kernels
