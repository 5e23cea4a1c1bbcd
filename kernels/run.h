// What a kernel is and how it runs.
//
// A kernel is a struct of sizes and pointers, declared once in its family's header:
//
//   template <typename T>
//   struct Add {  // y = a + b; y may alias either
//     std::int64_t n;
//     const T *a, *b;
//     T* y;
//     STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = a[i] + b[i]; }
//   };
//
// run(Add<float>{.n = n, .a = a, .b = b, .y = y}) computes it on the CPU, run(queue, ...) on a GPU.
// Its members decide which loop a device gives it (the concepts below); a kernel that fits none has
// a body of its own for each device: compute(kernel) in its family's cpu.cpp and
// compute(queue, kernel) in cuda.cu. Where a family's kernels exist is said once, by its
// KernelList: every device emits run() for the whole list.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cuda_queue.h"
#include "steelyard/kernels/layout.h"

namespace steelyard::kernels {

// On the CPU: the pointers are the host's, and the result is there on return.
template <class K>
void run(const K& kernel);
// On a GPU (kernels/cuda_queue.h).
template <class K>
void run(const CudaQueue& queue, const K& kernel);

// kernel(i) for every i in [0, n), in any order. `kGrain`, where there is one, says how many
// elements pay for waking a thread.
template <class K>
concept ElementKernel = requires(const K& kernel, std::int64_t i) {
  kernel.n;
  kernel(i);
};

// An ElementKernel whose element i meets element at_a(i) of one operand and at_b(i) of another
// (StridedIndex, kernels/broadcast): kernel.body()(i, at_a(i), at_b(i)). The body is made once.
template <class K>
concept PairKernel = ElementKernel<K> && requires(const K& kernel, std::int64_t i) {
  kernel.body()(i, kernel.at_a(i), kernel.at_b(i));
};

// An ElementKernel whose element is kernel.at(kernel.function, i), of an enumeration from 0 to
// kLastFunction. The CPU has a loop for each function.
template <class K>
concept FunctionKernel = ElementKernel<K> && requires(const K& kernel, std::int64_t i) {
  K::kLastFunction;
  kernel.at(kernel.function, i);
};

// An ElementKernel whose elements i to i + neighbours(i) - 1 the CPU computes faster together, at
// most kTogether at once: kernel.together(i, n).
template <class K>
concept TogetherKernel = ElementKernel<K> && requires(const K& kernel, std::int64_t i) {
  K::kTogether;
  kernel.together(i, kernel.neighbours(i));
};

// An ElementKernel that writes kernel.table[kernel.x[i]], of a table of 256, and then
// kernel.after(i) to it: the CPU looks many bytes up at once.
template <class K>
concept LookupKernel = ElementKernel<K> && requires(const K& kernel, std::int64_t i) {
  kernel.y[i] = kernel.table[kernel.x[i]];
  kernel.after(i);
};

// kernel(), once.
template <class K>
concept SingleKernel = requires(const K& kernel) {
  kernel();
};

// kernel(row, column) for every element of [rows, columns].
template <class K>
concept RowKernel = requires(const K& kernel, std::int64_t i) {
  kernel.rows;
  kernel.columns;
  kernel(i, i);
};

// kernel(i, c) for every element i of [rows, channels], c its channel. per_channel() names the
// members that point to a value per channel, so that the CPU can repeat them for wider rows.
template <class K>
concept ChannelKernel = requires(const K& kernel, std::int64_t i) {
  kernel.rows;
  kernel.channels;
  kernel(i, i);
  K::per_channel();
};

// finish(the sum of term(i) over [0, n), in double), once.
template <class K>
concept SumKernel = requires(const K& kernel, std::int64_t i) {
  kernel.n;
  kernel.term(i);
  kernel.finish(0.0);
};

// finish(c, sums) for every c: the sums of term<0>(i, c) ... term<kTerms - 1>(i, c) over the rows
// of [rows, channels], in double; on the CPU eight rows at a time are added in the term's own type
// first (kernels/cpu/row_sums.h). per_channel(), where there is one, as above.
template <class K>
concept ChannelSumKernel = requires(const K& kernel, std::int64_t i,
                                    const double (&sums)[K::kTerms]) {
  kernel.rows;
  kernel.channels;
  kernel.template term<0>(i, i);
  kernel.finish(i, sums);
};

// The threads that share a row: one on the CPU, a team on a GPU (cuda/row_team.h). A team may have
// no row of its own: it joins values of another one, and writes nothing.
struct OneThread {
  // Calls f(c) for every c in [0, n), each by one thread.
  template <class F>
  STEELYARD_HOST_DEVICE void each(std::int64_t n, const F& f) const {
    for (std::int64_t c = 0; c < n; ++c) f(c);
  }
  // The largest value(c), -infinity of none; NaNs may be skipped.
  template <typename T, class F>
  STEELYARD_HOST_DEVICE T largest(std::int64_t n, const F& value) const {
    T best = -static_cast<T>(INFINITY);
#ifdef _OPENMP
#pragma omp simd reduction(max : best)
#endif
    for (std::int64_t c = 0; c < n; ++c) {
      const T v = value(c);
      best = v > best ? v : best;
    }
    return best;
  }
  // What join(a, b) makes of the threads' values, for all of them.
  template <typename T, class Join>
  STEELYARD_HOST_DEVICE T joined(const T& value, const Join&) const {
    return value;
  }
  // True for one thread of a team that has a row: it writes what is not written in each().
  STEELYARD_HOST_DEVICE bool leads() const { return true; }
};

template <class Team, typename T>
STEELYARD_HOST_DEVICE T sum_of(const Team& team, T value) {
  return team.joined(value, [](T a, T b) { return a + b; });
}

// kernel.row(r, team) for every row of [rows, columns].
template <class K>
concept TeamKernel = requires(const K& kernel, const OneThread& team) {
  kernel.rows;
  kernel.columns;
  kernel.row(0, team);
};
// And then finish(the sum of what the rows returned, in double), once.
template <class K>
concept TeamSumKernel = TeamKernel<K> && requires(const K& kernel) {
  kernel.finish(0.0);
};

// kernel(i, channel) for every element i of a ChannelLayout, K::kGrain of them at least to a
// thread.
template <class K>
concept LayoutKernel = requires(const K& kernel, std::int64_t i) {
  kernel.layout.channels;
  K::kGrain;
  kernel(i, i);
};

// kernel.of(tensor)(i) for every element of every tensor of a list; where there is kernel.idle()
// and it is true, for none.
template <class K>
concept ListKernel = requires(const K& kernel) {
  kernel.of(kernel.tensors[0]);
};

template <class... K>
struct KernelList {};
// Every one of the kernels for float and double.
template <template <class> class... K>
using ForFloats = KernelList<K<float>..., K<double>...>;
// One kernel for several types.
template <template <class> class K, class... T>
using ForTypes = KernelList<K<T>...>;

template <class... A, class... B>
KernelList<A..., B...> operator+(KernelList<A...>, KernelList<B...>);
template <class... Lists>
using JoinedKernels = decltype((Lists() + ...));

// `template struct CpuKernels<List>;` emits run() of the list's kernels where kernels/cpu/run.h
// defines it, CudaKernels those of a GPU: an address that is taken needs a function. The addresses
// are cast: for a tuple of hundreds the compiler took 25 s more in each of two files.
template <class List>
struct CpuKernels;
template <class... K>
struct CpuKernels<KernelList<K...>> {
  static void (*const functions[])();
};
template <class... K>
void (*const CpuKernels<KernelList<K...>>::functions[])() = {
    reinterpret_cast<void (*)()>(static_cast<void (*)(const K&)>(run<K>))...};

template <class List>
struct CudaKernels;
template <class... K>
struct CudaKernels<KernelList<K...>> {
  static void (*const functions[])();
};
template <class... K>
void (*const CudaKernels<KernelList<K...>>::functions[])() = {
    reinterpret_cast<void (*)()>(static_cast<void (*)(const CudaQueue&, const K&)>(run<K>))...};

}  // namespace steelyard::kernels
