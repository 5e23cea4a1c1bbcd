#include "steelyard/recipes/runs/step_timing.h"

#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "steelyard/framework/module.h"
#include "steelyard/framework/on_device.h"
#include "steelyard/framework/storage.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard {
namespace {

// Of the fastest of some runs: others were disturbed.
class FastestRun : private kernels::KernelWatcher {
 public:
  template <class K>
  double seconds(Device device, const K& kernel) {
    constexpr int kRuns = 5;
    fastest_ = 0;
    for (int i = 0; i < kRuns; ++i) {
      kernels::kernel_watcher = this;
      run(device, kernel);
      kernels::kernel_watcher = nullptr;
    }
    return fastest_;
  }

 private:
  void ran(const std::type_info&, const kernels::ProductWork*, double seconds) override {
    fastest_ = fastest_ == 0 ? seconds : std::min(fastest_, seconds);
  }
  double fastest_ = 0;
};

std::vector<Tensor> parameters_of(const Module& model) {
  std::vector<Tensor> parameters;
  for (const NamedParameter& p : model.named_parameters()) {
    parameters.push_back(p.variable.value());
  }
  return parameters;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double sum(const LayerProfile& layer, std::initializer_list<WorkKind> kinds) {
  double seconds = 0;
  for (const WorkKind kind : kinds) seconds += layer.of(kind).seconds;
  return seconds;
}

std::int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double bound(const LayerProfile& layer, std::initializer_list<WorkKind> products,
             std::int64_t bytes, const MachineRates& rates) {
  double seconds = 0;
  for (const WorkKind kind : products) {
    const Work& work = layer.of(kind);
    seconds += static_cast<double>(work.multiply_adds) / rates.multiply_adds +
               static_cast<double>(work.integer_multiply_adds) / rates.integer_multiply_adds;
  }
  return std::max(seconds, static_cast<double>(bytes) / rates.bytes);
}

// Sums over steps become means.
LayerProfile mean_of(LayerProfile layer, std::int64_t steps) {
  for (Work& work : layer.work) {
    work.seconds /= static_cast<double>(steps);
    for (std::int64_t* count : {&work.kernels, &work.multiply_adds, &work.integer_multiply_adds}) {
      *count /= steps;
    }
  }
  for (std::int64_t* bytes : {&layer.saved_bytes, &layer.forward_bytes, &layer.backward_bytes}) {
    *bytes /= steps;
  }
  return layer;
}

}  // namespace

MachineRates measure_rates(Device device) {
  constexpr std::int64_t kSide = 1024, kCopied = std::int64_t{16} << 20;
  const auto zeros = [&](Shape shape, DType dtype) { return Tensor::zeros(shape, dtype, device); };
  const Tensor a = zeros({kSide, kSide}, DType::kF32), b = zeros({kSide, kSide}, DType::kF32);
  const Tensor product = zeros({kSide, kSide}, DType::kF32);
  const Tensor x = zeros({kSide, kSide}, DType::kU8), w = zeros({kSide, kSide}, DType::kI8);
  const Tensor sums = zeros({kSide, kSide}, DType::kI32), zero_point = zeros({1}, DType::kI32);
  const Tensor from = zeros({kCopied}, DType::kF32), to = zeros({kCopied}, DType::kF32);
  FastestRun fastest;
  constexpr double kMultiplyAdds = static_cast<double>(kSide) * kSide * kSide;
  return {.multiply_adds =
              kMultiplyAdds /
              fastest.seconds(device,
                              kernels::Matmul<float>{.shape = {.m = kSide, .n = kSide, .k = kSide},
                                                     .a = a.data<float>(),
                                                     .b = b.data<float>(),
                                                     .c = product.data<float>()}),
          .integer_multiply_adds =
              kMultiplyAdds / fastest.seconds(device,
                                              kernels::IntegerMatmul<std::uint8_t>{
                                                  .m = kSide,
                                                  .n = kSide,
                                                  .k = kSide,
                                                  .x = x.data<std::uint8_t>(),
                                                  .zero_point = zero_point.data<std::int32_t>(),
                                                  .w = w.data<std::int8_t>(),
                                                  .acc = sums.data<std::int32_t>()}),
          .bytes = 2.0 * sizeof(float) * kCopied /
                   fastest.seconds(device, kernels::Scale<float>{.n = kCopied,
                                                                 .x = from.data<float>(),
                                                                 .factor = 1,
                                                                 .y = to.data<float>()})};
}

double TimedLayer::forward_seconds() const {
  return sum(profile, {WorkKind::kProduct, WorkKind::kQuantize, WorkKind::kObserve,
                       WorkKind::kOtherForward});
}

double TimedLayer::backward_seconds() const {
  return sum(profile,
             {WorkKind::kBackwardInput, WorkKind::kBackwardWeight, WorkKind::kOtherBackward});
}

double TimedLayer::seconds() const {
  return forward_seconds() + backward_seconds() + profile.of(WorkKind::kUpdate).seconds;
}

double StepTiming::outside_kernels() const {
  double inside = 0;
  for (const TimedLayer& layer : layers) inside += layer.seconds();
  return std::max(0.0, watched_seconds - inside);
}

StepWatch::StepWatch(Module& model, Device device, std::int64_t steps, std::atomic<bool>& stop)
    : model_(model),
      device_(device),
      steps_(steps),
      stop_(stop),
      profile_(parameters_of(model)),
      end_(Clock::now()) {}

void StepWatch::on_step_begin(std::int64_t step, std::int64_t) {
  begin_ = Clock::now();
  if (done_ == kWarmUp) first_step_ = step;
  if (done_ > kWarmUp) {
    data_seconds_.push_back(std::chrono::duration<double>(begin_ - end_).count());
  }
  faults_before_ = page_faults();
  if (watched()) profile_.begin();
}

void StepWatch::on_step_end(const StepReport& report) {
  profile_.end();
  report.loss();  // waits for a GPU
  end_ = Clock::now();
  if (done_ >= kWarmUp) {
    const double seconds = std::chrono::duration<double>(end_ - begin_).count();
    if (watched()) {
      watched_seconds_.push_back(seconds);
    } else {
      seconds_.push_back(seconds);
      page_faults_.push_back(static_cast<double>(page_faults() - faults_before_));
    }
  }
  if (++done_ == all_steps()) stop_ = true;
}

StepTiming StepWatch::timing() const {
  StepTiming timing{
      .device = device_name(device_),
      .first_step = first_step_,
      .steps = steps_,
      .seconds = median(seconds_),
      .data_seconds = median(data_seconds_),
      .watched_seconds = std::accumulate(watched_seconds_.begin(), watched_seconds_.end(), 0.0) /
                         static_cast<double>(steps_),
      .page_faults = median(page_faults_),
      .peak_bytes = allocator_stats(device_).peak_bytes,
      .rates = measure_rates(device_)};
  std::unordered_map<std::string, std::string> types;
  for (const NamedModule& entry : model_.named_modules()) {
    types.emplace(entry.name, entry.module->type_name());
  }
  types[""] = "";
  for (const LayerProfile& sums : profile_.layers()) {
    const LayerProfile layer = mean_of(sums, steps_);
    // Bounds are of layers only: the update's bytes are not known.
    const bool bounded = !layer.layer.empty();
    timing.layers.push_back(
        {.type = types[layer.layer],
         .profile = layer,
         .forward_bound =
             bounded ? bound(layer, {WorkKind::kProduct}, layer.forward_bytes, timing.rates) : 0,
         .backward_bound = bounded
                               ? bound(layer, {WorkKind::kBackwardInput, WorkKind::kBackwardWeight},
                                       layer.backward_bytes, timing.rates)
                               : 0});
  }
  return timing;
}

}  // namespace steelyard
