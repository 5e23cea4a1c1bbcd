#include "steelyard/recipes/runs/records/step_timing.h"

#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/median.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/all_kernels.h"  // IWYU pragma: keep
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard {
namespace {

// The time of a kernel: that of the fastest of some runs, since others were disturbed.
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

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double sum(const TimedLayer& layer, std::initializer_list<WorkKind> kinds) {
  double seconds = 0;
  for (const WorkKind kind : kinds) seconds += layer.of(kind).seconds;
  return seconds;
}

using Kinds = std::unordered_map<std::type_index, WorkKind>;

template <class... K>
void add_kinds(kernels::KernelList<K...>, WorkKind kind, Kinds& kinds) {
  (kinds.emplace(typeid(K), kind), ...);
}

// The kernels of the forward pass that are neither products nor other work.
const Kinds& forward_kinds() {
  static const Kinds kinds = [] {
    using namespace kernels;  // NOLINT(google-build-using-namespace): a list of its names
    Kinds all;
    add_kinds(JoinedKernels<FakeQuantizeKernels, RequantizeKernels, WeightCodesKernels,
                            WideCodesKernels, KernelList<QuantPlan>>(),
              WorkKind::kQuantize, all);
    add_kinds(JoinedKernels<HistogramKernels, HistogramRangesKernels, PercentileKernels,
                            QuantizerStateKernels, ReduceKernels, ShrunkenRangeKernels>(),
              WorkKind::kObserve, all);
    return all;
  }();
  return kinds;
}

WorkKind kind_of(const KernelSum& sum) {
  if (sum.pass == StepPass::kUpdate) return WorkKind::kUpdate;
  if (sum.pass == StepPass::kBackward) {
    if (!sum.product) return WorkKind::kOtherBackward;
    return sum.product->over_rows ? WorkKind::kBackwardWeight : WorkKind::kBackwardInput;
  }
  if (sum.product) return WorkKind::kProduct;
  const auto found = forward_kinds().find(sum.kernel);
  return found == forward_kinds().end() ? WorkKind::kOtherForward : found->second;
}

std::int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double bound(const TimedLayer& layer, std::initializer_list<WorkKind> products, std::int64_t bytes,
             const MachineRates& rates) {
  double seconds = 0;
  for (const WorkKind kind : products) {
    const Work& work = layer.of(kind);
    seconds += static_cast<double>(work.multiply_adds) / rates.multiply_adds +
               static_cast<double>(work.integer_multiply_adds) / rates.integer_multiply_adds;
  }
  return std::max(seconds, static_cast<double>(bytes) / rates.bytes);
}

// Means of sums over steps.
TimedLayer mean_of(const LayerProfile& sums, std::int64_t steps) {
  TimedLayer layer{.layer = sums.layer,
                   .saved_bytes = sums.saved_bytes / steps,
                   .forward_bytes = sums.forward_bytes / steps,
                   .backward_bytes = sums.backward_bytes / steps};
  for (const KernelSum& kernel : sums.kernels) {
    Work& work = layer.work[static_cast<std::size_t>(kind_of(kernel))];
    work.seconds += kernel.seconds / static_cast<double>(steps);
    work.kernels += static_cast<double>(kernel.count) / static_cast<double>(steps);
    if (!kernel.product) continue;
    (kernel.product->in_integers ? work.integer_multiply_adds : work.multiply_adds) +=
        kernel.product->multiply_adds / steps;
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

std::string_view work_kind_name(WorkKind kind) {
  constexpr std::array<std::string_view, kWorkKinds> kNames{
      "product",        "quantize",        "observe",        "other forward",
      "backward input", "backward weight", "other backward", "update"};
  return kNames[static_cast<std::size_t>(kind)];
}

double TimedLayer::forward_seconds() const {
  return sum(*this, {WorkKind::kProduct, WorkKind::kQuantize, WorkKind::kObserve,
                     WorkKind::kOtherForward});
}

double TimedLayer::backward_seconds() const {
  return sum(*this,
             {WorkKind::kBackwardInput, WorkKind::kBackwardWeight, WorkKind::kOtherBackward});
}

double TimedLayer::seconds() const {
  return forward_seconds() + backward_seconds() + of(WorkKind::kUpdate).seconds;
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

StepTiming StepWatch::timing(const LoaderSeconds& loader) const {
  StepTiming timing{.device = device_name(device_),
                    .first_step = first_step_,
                    .steps = steps_,
                    .seconds = median(seconds_),
                    .data_seconds = median(data_seconds_),
                    .watched_seconds = sum(watched_seconds_) / static_cast<double>(steps_),
                    .page_faults = median(page_faults_),
                    .peak_bytes = allocator_stats(device_).peak_bytes,
                    .rates = measure_rates(device_)};
  timing.batches.waited = sum(data_seconds_);
  timing.batches.seconds = timing.batches.waited + sum(seconds_) + sum(watched_seconds_);
  // As many batches of those that were made.
  timing.batches.making =
      loader.making * static_cast<double>(data_seconds_.size()) / static_cast<double>(all_steps());
  std::unordered_map<std::string, std::string> types;
  for (const NamedModule& entry : model_.named_modules()) {
    types.emplace(entry.name, entry.module->type_name());
  }
  types[""] = "";
  for (const LayerProfile& sums : profile_.layers()) {
    TimedLayer layer = mean_of(sums, steps_);
    layer.type = types[layer.layer];
    if (!layer.layer.empty()) {  // the update's bytes are not known
      layer.forward_bound = bound(layer, {WorkKind::kProduct}, layer.forward_bytes, timing.rates);
      layer.backward_bound = bound(layer, {WorkKind::kBackwardInput, WorkKind::kBackwardWeight},
                                   layer.backward_bytes, timing.rates);
    }
    timing.layers.push_back(std::move(layer));
  }
  return timing;
}

}  // namespace steelyard
