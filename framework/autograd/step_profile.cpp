#include "steelyard/framework/autograd/step_profile.h"

#include <algorithm>

#include "steelyard/framework/autograd/tape_trace.h"

namespace steelyard {
namespace {

thread_local StepProfile* profiling = nullptr;

std::int64_t bytes_of(const Variable& variable) {
  return shape_size(variable.shape()) *
         (variable.has_companion() ? 1 : static_cast<std::int64_t>(dtype_bytes(variable.dtype())));
}

}  // namespace

StepProfile::StepProfile(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) parameters_.insert(parameter.raw());
}

void StepProfile::begin() {
  saved_ = parameters_;
  layer_of_.clear();
  pass_ = StepPass::kForward;
  profiling = this;
  kernels::kernel_watcher = this;
}

void StepProfile::end() {
  if (profiling != this) return;
  profiling = nullptr;
  kernels::kernel_watcher = nullptr;
}

std::size_t StepProfile::layer_index(const std::string& path) {
  const auto [found, is_new] = index_.emplace(path, layers_.size());
  if (is_new) layers_.push_back({.layer = path});
  return found->second;
}

void StepProfile::ran(const std::type_info& kernel, const kernels::ProductWork* product,
                      double seconds) {
  const bool backward = pass_ == StepPass::kBackward;
  LayerProfile& layer = layers_[backward ? backward_layer_ : layer_index(module_path())];
  const auto same = [&](const KernelSum& sum) {
    return sum.kernel == kernel && sum.pass == pass_ &&
           (product == nullptr || sum.product->over_rows == product->over_rows);
  };
  auto sum = std::find_if(layer.kernels.begin(), layer.kernels.end(), same);
  if (sum == layer.kernels.end()) {
    sum = layer.kernels.insert(sum, {.kernel = kernel, .pass = pass_});
    if (product != nullptr) sum->product = {0, product->over_rows, product->in_integers};
  }
  sum->seconds += seconds;
  ++sum->count;
  if (product != nullptr) sum->product->multiply_adds += product->multiply_adds;
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
  if (profiling != nullptr) profiling->add_operation(*function, inputs, output);
}

ProfiledBackward::ProfiledBackward(const Function& function) {
  if (profiling == nullptr) return;
  const auto found = profiling->layer_of_.find(&function);
  profiling->backward_layer_ =
      found == profiling->layer_of_.end() ? profiling->layer_index("") : found->second;
  profiling->pass_ = StepPass::kBackward;
}

ProfiledBackward::~ProfiledBackward() {
  if (profiling != nullptr) profiling->pass_ = StepPass::kForward;
}

ProfiledUpdate::ProfiledUpdate() {
  if (profiling != nullptr) profiling->pass_ = StepPass::kUpdate;
}

ProfiledUpdate::~ProfiledUpdate() {
  if (profiling != nullptr) profiling->pass_ = StepPass::kForward;
}

}  // namespace steelyard
