// Bandwidth of the quantization kernels against the fastest copy with the same threads.
//
// Every round runs each kernel and both copies once, one after the other, so that a drift of the
// machine meets all of them; a row is the median over rounds. Copy = the faster of memcpy and a
// copy with non-temporal stores.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stream.h"
#include "kernels/fake_quantize.h"
#include "kernels/histogram.h"
#include "kernels/reduce.h"

namespace {

using namespace steelyard::kernels;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kChannels = 64;
constexpr CodeRange kRange{0, 255};

struct Case {
  std::string name;
  double bytes_per_element;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// Memory that starts on a cache line, as the engine's tensors do.
struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t(kCacheLine)); }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;
template <typename T>
AlignedArray<T> aligned_array(std::int64_t n) {
  return AlignedArray<T>(static_cast<T*>(
      ::operator new[](static_cast<std::size_t>(n) * sizeof(T), std::align_val_t(kCacheLine))));
}

// Arrays of n floats and their codes, touched by the threads that will use them.
struct Arrays {
  explicit Arrays(std::int64_t size)
      : n(size),
        x(aligned_array<float>(n)),
        grad(aligned_array<float>(n)),
        y(aligned_array<float>(n)),
        codes(aligned_array<std::uint8_t>(n)),
        mask(aligned_array<std::uint8_t>(mask_bytes(n))),
        scale(kChannels, 0.05F),
        zero_point(kChannels, 117),
        counts(2048, 0) {
    parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t state = 12345U + static_cast<std::uint32_t>(begin);
      for (std::int64_t i = begin; i < end; ++i) {
        state = state * 1664525U + 1013904223U;
        x[i] = static_cast<float>(state >> 8) / 8388608.0F * 8.0F - 8.0F;
        grad[i] = x[i];
        y[i] = 0;
        codes[i] = 0;
      }
    });
    std::memset(mask.get(), 0xA5, static_cast<std::size_t>(mask_bytes(n)));
  }

  std::int64_t n;
  AlignedArray<float> x, grad, y;
  AlignedArray<std::uint8_t> codes, mask;
  std::vector<float> scale;
  std::vector<std::int32_t> zero_point;
  std::vector<std::uint64_t> counts;
};

void plain_copy(const Arrays& a) {
  parallel_for(a.n, 1, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(a.y.get() + begin, a.x.get() + begin, static_cast<std::size_t>(4 * (end - begin)));
  });
}

void non_temporal_copy(const Arrays& a) {
  // Sizes are whole MiB and the arrays are aligned: all of it is whole cache lines.
  parallel_for(4 * a.n / kCacheLine, 1, [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kFloats = kCacheLine / 4;
    stream_lines(a.y.get() + begin * kFloats, a.x.get() + begin * kFloats, end - begin);
    stream_fence();
  });
}

// The two copies first.
std::vector<Case> cases(Arrays& a) {
  const ChannelLayout tensor = ChannelLayout::per_tensor(a.n);
  const ChannelLayout last_axis{a.n / kChannels, kChannels, 1};
  const ChannelLayout planes{a.n / kChannels / 49, kChannels, 49};
  const auto forward = [&a](ChannelLayout layout) {
    fake_quantize_forward(layout, kRange, a.x.get(), a.scale.data(), a.zero_point.data(),
                          a.y.get());
  };
  return {
      {"copy: memcpy", 8, [&a] { plain_copy(a); }},
      {"copy: non-temporal", 8, [&a] { non_temporal_copy(a); }},
      {"fake_quantize forward", 8, [=] { forward(tensor); }},
      {"fake_quantize forward, channels last", 8, [=] { forward(last_axis); }},
      {"fake_quantize forward, channels of 49", 8, [=] { forward(planes); }},
      {"fake_quantize backward", 12,
       [=, &a] {
         fake_quantize_backward(tensor, kRange, a.x.get(), a.scale.data(), a.zero_point.data(),
                                a.grad.get(), a.y.get());
       }},
      {"quantize to u8 + mask", 5.125,
       [=, &a] {
         quantize(tensor, kRange, a.x.get(), a.scale.data(), a.zero_point.data(), a.codes.get(),
                  a.mask.get());
       }},
      {"apply_mask", 8.125, [&a] { apply_mask(a.n, a.mask.get(), a.grad.get(), a.y.get()); }},
      {"min_max", 4,
       [=, &a] {
         float lo, hi;
         min_max(tensor, a.x.get(), &lo, &hi, nullptr);
       }},
      {"histogram, 2048 bins", 4,
       [&a] {
         histogram_accumulate({histogram_exponent(8.0, 2048), 2048}, a.n, a.x.get(),
                              a.counts.data());
       }},
  };
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json measure(std::int64_t mib, int rounds) {
  Arrays arrays(mib * kMiB / 4);
  std::vector<Case> all = cases(arrays);
  for (const Case& one : all) one.run();
  for (int round = 0; round < rounds; ++round) {
    for (Case& one : all) one.seconds.push_back(seconds_of(one.run));
  }
  const auto bandwidth = [&](const Case& one) {
    return one.bytes_per_element * static_cast<double>(arrays.n) / median(one.seconds) * 1e-9;
  };
  const double copy = std::max(bandwidth(all[0]), bandwidth(all[1]));
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& one : all) {
    const double speed = bandwidth(one);
    fmt::print("{:4} MiB  {:40} {:7.1f} GB/s  {:5.2f} of copy\n", mib, one.name, speed,
               speed / copy);
    rows.push_back(
        {{"mib", mib}, {"name", one.name}, {"gb_per_s", speed}, {"ratio_to_copy", speed / copy}});
  }
  return rows;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bandwidth of the quantization kernels against copy");
  std::vector<std::int64_t> sizes{64, 256};
  int rounds = 15;
  int threads = num_threads();
  std::string out;
  app.add_option("--mib", sizes, "Array sizes in MiB of float32");
  app.add_option("--rounds", rounds, "Interleaved rounds");
  app.add_option("--threads", threads, "CPU threads");
  app.add_option("--out", out, "JSON file to write");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);

  nlohmann::json rows = nlohmann::json::array();
  for (const std::int64_t mib : sizes) {
    for (auto& row : measure(mib, rounds)) rows.push_back(std::move(row));
  }
  if (out.empty()) return 0;
  std::ofstream(out) << nlohmann::json{{"benchmark", "fake_quantize"},
                                       {"cpu", cpu_name()},
                                       {"threads", threads},
                                       {"unix_time", std::time(nullptr)},
                                       {"rounds", rounds},
                                       {"rows", rows}}
                            .dump(2)
                     << '\n';
  return 0;
}
