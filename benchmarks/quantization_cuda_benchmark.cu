// Bandwidth of the quantization kernels on a GPU against a device-to-device copy.
//
// Buffers rotate, so that no call finds its data in the second-level cache; every round runs each
// kernel and the copy once, and a row is the median of the rounds' event times.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "benchmarks/quantization_cases.h"
#include "steelyard/kernels/cuda/launch.h"
#include "steelyard/kernels/device_memory.h"
#include "steelyard/kernels/value_type.h"

namespace {

using namespace steelyard::kernels;

constexpr std::int64_t kMiB = 1 << 20;
constexpr int kRotation = 4;  // times 256 MiB: far beyond any second-level cache

void check(cudaError_t error) { cuda::check(error, "CUDA runtime", __FILE__, __LINE__); }

class Timer {
 public:
  Timer() {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <typename Work>
  double milliseconds(Work&& work) {
    check(cudaEventRecord(begin_));
    work();
    check(cudaEventRecord(end_));
    check(cudaEventSynchronize(end_));
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin_, end_));
    return static_cast<double>(elapsed);
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Random numbers in [0, 2): as bf16, and as floats, whose upper halves are such numbers.
std::vector<BFloat16> random_values() {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0.0F, 1.99F);
  std::vector<BFloat16> values(std::size_t{1} << 22);
  for (BFloat16& value : values) value = narrow<BFloat16>(uniform(random));
  return values;
}

void fill(const DeviceBuffer& buffer) {
  static const std::vector<BFloat16> values = random_values();
  const std::size_t bytes = values.size() * sizeof(BFloat16);
  for (std::size_t done = 0; done < buffer.bytes(); done += bytes) {
    check(cudaMemcpy(buffer.data<std::uint8_t>() + done, values.data(),
                     std::min(bytes, buffer.bytes() - done), cudaMemcpyHostToDevice));
  }
}

struct Arrays {
  explicit Arrays(std::int64_t bytes)
      : x(DeviceType::kCuda, bytes),
        grad(DeviceType::kCuda, bytes),
        y(DeviceType::kCuda, bytes),
        codes(DeviceType::kCuda, bytes),
        mask(DeviceType::kCuda, bytes / 8) {
    for (DeviceBuffer* buffer : {&x, &grad, &y, &codes, &mask}) fill(*buffer);
  }
  DeviceBuffer x, grad, y, codes, mask;
};

DeviceBuffer filled(const std::vector<float>& values) {
  DeviceBuffer buffer(DeviceType::kCuda, values.size() * sizeof(float));
  buffer.copy_from_host(values.data(), buffer.bytes());
  return buffer;
}

struct Runner {
  Runner(const Work& work, const Sharing& sharing, ValueType type, std::int64_t n)
      : plan(QuantPlan::select(descriptor_of(work, sharing, type, n), DeviceType::kCuda)),
        sets(static_cast<std::size_t>(plan.num_parameter_sets())),
        scale(filled(std::vector<float>(sets, 0.01F))),
        lo(filled(std::vector<float>(sets, -1.0F))),
        hi(filled(std::vector<float>(sets, 1.0F))),
        zero_point(DeviceType::kCuda, sets * 4),
        grads(DeviceType::kCuda, 2 * sets * 4),
        flag(DeviceType::kCuda, 1),
        workspace(DeviceType::kCuda, std::max<std::size_t>(16, plan.workspace_bytes())),
        work_(work) {
    check(cudaMemset(zero_point.data(), 0, zero_point.bytes()));
    check(cudaMemset(flag.data(), 1, 1));
  }

  void run(const Arrays& a) const {
    const QuantArrays arrays =
        taken_by(work_, {.x = a.x.span(),
                         .grad_y = a.grad.span(),
                         .y = a.y.span(),
                         .grad_x = a.y.span(),
                         .codes = a.codes.span(),
                         .mask = a.mask.span(),
                         .scale = scale.span(),
                         .zero_point = zero_point.span<std::int32_t>(),
                         .grad_scale = grads.span<float>().first(sets),
                         .grad_zero_point = grads.span<float>().subspan(sets),
                         .range_lo = lo.span(),
                         .range_hi = hi.span(),
                         .initialized = flag.span<std::uint8_t>()});
    plan.run(nullptr, workspace.span(), arrays);
  }

  QuantPlan plan;
  std::size_t sets;
  DeviceBuffer scale, lo, hi, zero_point, grads, flag, workspace;

 private:
  Work work_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::json measure(ValueType type, std::int64_t mib, int rounds, const std::regex& filter) {
  const std::int64_t bytes = mib * kMiB;
  const std::int64_t n = bytes / value_bytes(type);
  std::vector<Arrays> arrays;
  for (int i = 0; i < kRotation; ++i) arrays.emplace_back(bytes);
  std::vector<std::string> names{"copy"};
  std::vector<double> moved{2.0 * static_cast<double>(value_bytes(type))};
  std::vector<std::unique_ptr<Runner>> runners(1);  // none for the copy
  for (const Work& work : works()) {
    for (const Sharing& sharing : sharings()) {
      const std::string name = std::string(work.name) + ", " + sharing.name;
      if (!makes_sense(work, sharing) || !std::regex_search(name, filter)) continue;
      names.push_back(name);
      moved.push_back(bytes_per_element(work, type));
      runners.push_back(std::make_unique<Runner>(work, sharing, type, n));
    }
  }
  Timer timer;
  std::vector<std::vector<double>> times(names.size());
  int turn = 0;
  for (int round = 0; round < rounds + 1; ++round) {  // the first one warms up
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Arrays& a = arrays[static_cast<std::size_t>(turn++ % kRotation)];
      const double elapsed = timer.milliseconds([&] {
        if (i == 0) {
          check(cudaMemcpyAsync(a.y.data(), a.x.data(), a.x.bytes(), cudaMemcpyDeviceToDevice));
        } else {
          runners[i]->run(a);
        }
      });
      if (round > 0) times[i].push_back(elapsed);
    }
  }
  nlohmann::json rows = nlohmann::json::array();
  double copy = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double speed = moved[i] * static_cast<double>(n) / median(times[i]) * 1e-6;
    if (i == 0) copy = speed;
    std::printf("%4d MiB %-4s  %-56s %8.1f GB/s  %5.2f of copy\n", static_cast<int>(mib),
                name_of(type), names[i].c_str(), speed, speed / copy);
    rows.push_back({{"mib", mib},
                    {"type", name_of(type)},
                    {"name", names[i]},
                    {"milliseconds", median(times[i])},
                    {"gb_per_s", speed},
                    {"ratio_to_copy", speed / copy}});
  }
  return rows;
}

}  // namespace

// usage: quantization_cuda_benchmark [RESULTS.json [FILTER]]
int main(int argc, char** argv) {
  if (!device_is_available(DeviceType::kCuda)) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  const std::regex filter(argc > 2 ? argv[2] : ".");
  nlohmann::json rows = nlohmann::json::array();
  for (const ValueType type : {ValueType::kF32, ValueType::kBF16}) {
    for (auto& row : measure(type, 256, 21, filter)) rows.push_back(std::move(row));
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  if (argc > 1) {
    std::FILE* file = std::fopen(argv[1], "w");
    if (file == nullptr) {
      std::fprintf(stderr, "%s: cannot be written\n", argv[1]);
      return 1;
    }
    const nlohmann::json result{
        {"benchmark", "quantization_cuda"}, {"gpu", device.name}, {"rows", rows}};
    std::fprintf(file, "%s\n", result.dump(2).c_str());
    std::fclose(file);
  }
  return 0;
}
