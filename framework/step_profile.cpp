#include "steelyard/framework/step_profile.h"

#include <typeindex>

#include "steelyard/framework/tape_trace.h"
#include "steelyard/kernels/all_kernels.h"
#include "steelyard/kernels/quant_plan.h"

namespace steelyard {
namespace {

thread_local StepProfile* listening = nullptr;

using Kinds = std::unordered_map<std::type_index, WorkKind>;

template <class... K>
void add_kinds(kernels::KernelList<K...>, WorkKind kind, Kinds& kinds) {
  (kinds.emplace(typeid(K), kind), ...);
}

// Of the forward pass, what is neither a product nor other work.
const Kinds& forward_kinds() {
  static const Kinds kinds = [] {
    using namespace kernels;  // NOLINT(google-build-using-namespace): a list of its names
    Kinds all;
    add_kinds(JoinedKernels<BlockScalesKernels, FakeQuantizeKernels, RequantizeKernels,
                            WeightCodesKernels, WideCodesKernels, KernelList<QuantPlan>>(),
              WorkKind::kQuantize, all);
    add_kinds(JoinedKernels<HistogramKernels, HistogramRangesKernels, PercentileKernels,
                            QuantizerStateKernels, ReduceKernels, ShrunkenRangeKernels>(),
              WorkKind::kObserve, all);
    return all;
  }();
  return kinds;
}

std::int64_t bytes_of(const Variable& variable) {
  return shape_size(variable.shape()) *
         (variable.has_companion() ? 1 : static_cast<std::int64_t>(dtype_bytes(variable.dtype())));
}

}  // namespace

std::string_view work_kind_name(WorkKind kind) {
  constexpr std::array<std::string_view, kWorkKinds> kNames{
      "product",        "quantize",        "observe",        "other forward",
      "backward input", "backward weight", "other backward", "update"};
  return kNames[static_cast<std::size_t>(kind)];
}

StepProfile::StepProfile(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) parameters_.insert(parameter.raw());
}

void StepProfile::begin() {
  saved_ = parameters_;
  layer_of_.clear();
  pass_ = Pass::kForward;
  listening = this;
  kernels::kernel_watcher = this;
}

void StepProfile::end() {
  if (listening != this) return;
  listening = nullptr;
  kernels::kernel_watcher = nullptr;
}

std::size_t StepProfile::layer_index(const std::string& path) {
  const auto [found, is_new] = index_.emplace(path, layers_.size());
  if (is_new) layers_.push_back({.layer = path});
  return found->second;
}

WorkKind StepProfile::kind_of(const std::type_info& kernel,
                              const kernels::ProductWork* product) const {
  if (pass_ == Pass::kUpdate) return WorkKind::kUpdate;
  if (pass_ == Pass::kBackward) {
    if (product == nullptr) return WorkKind::kOtherBackward;
    return product->over_rows ? WorkKind::kBackwardWeight : WorkKind::kBackwardInput;
  }
  if (product != nullptr) return WorkKind::kProduct;
  const auto found = forward_kinds().find(kernel);
  return found == forward_kinds().end() ? WorkKind::kOtherForward : found->second;
}

void StepProfile::ran(const std::type_info& kernel, const kernels::ProductWork* product,
                      double seconds) {
  const std::size_t layer = pass_ == Pass::kBackward ? backward_layer_ : layer_index(module_path());
  Work& work = layers_[layer].work[static_cast<std::size_t>(kind_of(kernel, product))];
  work.seconds += seconds;
  ++work.kernels;
  if (product == nullptr) return;
  (product->in_integers ? work.integer_multiply_adds : work.multiply_adds) +=
      product->multiply_adds;
}

void StepProfile::add_operation(const Function& function, const std::vector<Variable>& inputs,
                                const Variable& output) {
  const std::size_t index = layer_index(module_path());
  layer_of_[&function] = index;
  LayerProfile& layer = layers_[index];
  layer.forward_bytes += bytes_of(output);
  layer.backward_bytes += shape_size(output.shape()) * 4;  // its gradient
  for (const Variable& input : inputs) {
    if (!input.defined()) continue;
    layer.forward_bytes += bytes_of(input);
    if (input.requires_grad()) layer.backward_bytes += shape_size(input.shape()) * 4;
  }
  for (const Tensor& tensor : function.saved()) {
    if (!tensor.defined()) continue;
    layer.backward_bytes += tensor.bytes();
    if (saved_.insert(tensor.raw()).second) layer.saved_bytes += tensor.bytes();
  }
}

void profile_operation(const std::shared_ptr<Function>& function,
                       const std::vector<Variable>& inputs, const Variable& output) {
  if (listening != nullptr) listening->add_operation(*function, inputs, output);
}

ProfiledBackward::ProfiledBackward(const Function& function) {
  if (listening == nullptr) return;
  const auto found = listening->layer_of_.find(&function);
  listening->backward_layer_ =
      found == listening->layer_of_.end() ? listening->layer_index("") : found->second;
  listening->pass_ = StepProfile::Pass::kBackward;
}

ProfiledBackward::~ProfiledBackward() {
  if (listening != nullptr) listening->pass_ = StepProfile::Pass::kForward;
}

ProfiledUpdate::ProfiledUpdate() {
  if (listening != nullptr) listening->pass_ = StepProfile::Pass::kUpdate;
}

ProfiledUpdate::~ProfiledUpdate() {
  if (listening != nullptr) listening->pass_ = StepProfile::Pass::kForward;
}

}  // namespace steelyard
