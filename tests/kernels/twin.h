// Arrays in the memories of the CPU and of a GPU, whose bits must stay equal when both run a call.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cuda_queue.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "tests/kernels/quant_plan/quant_device.h"

namespace steelyard::kernels::test {

// An array of the CPU and one of the GPU that start alike.
template <typename T>
class Twin {
 public:
  explicit Twin(std::vector<T> values) : cpu_(std::move(values)), gpu_(OnDevice::of(cpu_)) {}
  // For results: bytes that no kernel writes by chance.
  explicit Twin(std::int64_t size) : Twin(std::vector<T>(static_cast<std::size_t>(size), T(99))) {}
  // A null pointer.
  Twin() : Twin(std::vector<T>()) { null_ = true; }

  T* cpu() { return null_ ? nullptr : cpu_.data(); }
  T* gpu() { return null_ ? nullptr : gpu_.template get<T>(); }
  const std::vector<T>& values() const { return cpu_; }

  // The number of elements with other bits on the GPU; those of a NaN are not promised.
  std::int64_t differences() const {
    const std::vector<T> other = gpu_.template host<T>();
    std::int64_t count = 0;
    for (std::size_t i = 0; i < cpu_.size(); ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(cpu_[i]) && std::isnan(other[i])) continue;
      }
      count += std::memcmp(&cpu_[i], &other[i], sizeof(T)) == 0 ? 0 : 1;
    }
    return count;
  }

 private:
  std::vector<T> cpu_;
  OnDevice gpu_;
  bool null_ = false;
};

// Memory of the GPU for as long as a kernel needs it.
class TakenMemory : public ScratchMemory {
 public:
  void* take(std::size_t bytes) override { return allocate(bytes); }
  void give_back(void* memory, std::size_t) noexcept override { release(memory); }
};

// Calls f(queue) with a queue of the GPU.
template <typename F>
void on_gpu(const F& f) {
  TakenMemory memory;
  const OnDevice arrivals =
      OnDevice::of(std::vector<std::uint32_t>(static_cast<std::size_t>(CudaQueue::kArrivals), 0));
  f(CudaQueue{nullptr, &memory, arrivals.get<std::uint32_t>()});
}

// Calls f(at) for the CPU and f(at, queue) for the GPU; at(twin) is the twin's pointer there.
template <typename F>
void on_both(const F& f) {
  f([](auto& twin) { return twin.cpu(); });
  on_gpu([&](const CudaQueue& queue) { f([](auto& twin) { return twin.gpu(); }, queue); });
}

// What a quantizer with one scale keeps, after a first step from -0.5 to 0.25.
struct RangeTwins {
  Twin<float> lo{std::vector<float>{-0.5F}}, hi{std::vector<float>{0.25F}}, scale{1}, pass_scale{1};
  Twin<std::int64_t> steps{std::vector<std::int64_t>{1}};
  Twin<std::int32_t> zero_point{1}, pass_zero_point{1};
  Twin<std::uint8_t> zero_range{1};
  Twin<std::int64_t> non_finite{std::vector<std::int64_t>{3}};

  template <typename At>
  RangeQuantizer quantizer(const At& at) {
    return {at(lo),         at(hi),         at(steps),      at(scale),          at(zero_point),
            at(zero_range), at(non_finite), at(pass_scale), at(pass_zero_point)};
  }
  void expect_equal() const {
    EXPECT_EQ(lo.differences() + hi.differences() + zero_range.differences(), 0);
    EXPECT_EQ(steps.differences() + scale.differences() + zero_point.differences(), 0);
    EXPECT_EQ(pass_scale.differences() + pass_zero_point.differences(), 0);
    EXPECT_EQ(non_finite.differences(), 0);
    EXPECT_EQ(pass_scale.values(), scale.values());
    EXPECT_EQ(pass_zero_point.values(), zero_point.values());
  }
};

// Codes of any kind from lo to hi.
template <typename Code>
std::vector<Code> random_codes(std::int64_t n, int lo, int hi, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> code(lo, hi);
  std::vector<Code> codes(static_cast<std::size_t>(n));
  for (Code& c : codes) c = static_cast<Code>(code(random));
  return codes;
}

// Reals of the size of `spread`, among them exact halves, both zeros, denormals, huge ones and,
// with `any`, NaN and infinities.
template <typename T>
std::vector<T> random_reals(std::int64_t n, T spread, unsigned seed, bool any = true) {
  std::mt19937 random(seed);
  std::normal_distribution<T> normal(0, spread);
  const T infinity = std::numeric_limits<T>::infinity();
  const T edges[] = {T(0),
                     -T(0),
                     T(0.5),
                     T(-1.5),
                     std::numeric_limits<T>::denorm_min(),
                     -std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max(),
                     std::numeric_limits<T>::lowest(),
                     infinity,
                     -infinity,
                     std::numeric_limits<T>::quiet_NaN()};
  std::uniform_int_distribution<std::size_t> edge(0, any ? 10 : 5);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = random() % 13 == 0 ? edges[edge(random)] : normal(random);
  return values;
}

}  // namespace steelyard::kernels::test
