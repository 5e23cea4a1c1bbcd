// A profile of training steps: the time of kernels by the layer and the pass that runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/kernels/watch.h"

namespace steelyard {

enum class StepPass { kForward, kBackward, kUpdate };

// The kernels of one type in one pass of a layer.
struct KernelSum {
  std::type_index kernel;
  StepPass pass;
  double seconds = 0;
  std::int64_t count = 0;
  // The work of products, with the multiply_adds of all of them; nothing for other kernels.
  std::optional<kernels::ProductWork> product = {};
};

// Sums over steps.
struct LayerProfile {
  std::string layer;  // path of the innermost slot; empty outside of all: the loss, the update
  std::vector<KernelSum> kernels = {};
  // Bytes of the layer's operations: those kept for the backward pass, without parameters, and the
  // least that each pass must read and write if nothing stays in a cache: operands, results, kept
  // tensors and gradients. Values with a companion count a byte each.
  std::int64_t saved_bytes = 0;
  std::int64_t forward_bytes = 0;
  std::int64_t backward_bytes = 0;
};

// Between begin() and end() it records the kernels that this thread runs; one profile at a time.
class StepProfile : private kernels::KernelWatcher {
 public:
  // Parameters do not count as saved.
  explicit StepProfile(const std::vector<Tensor>& parameters);
  ~StepProfile() override { end(); }

  void begin();
  void end();
  // In the order in which layers were first seen.
  const std::vector<LayerProfile>& layers() const { return layers_; }

 private:
  friend class ProfiledBackward;
  friend class ProfiledUpdate;
  friend void profile_operation(const std::shared_ptr<Function>&, const std::vector<Variable>&,
                                const Variable&);
  void ran(const std::type_info& kernel, const kernels::ProductWork* product,
           double seconds) override;
  std::size_t layer_index(const std::string& path);
  void add_operation(const Function& function, const std::vector<Variable>& inputs,
                     const Variable& output);

  std::unordered_set<const void*> parameters_;
  std::unordered_set<const void*> saved_;  // in this step
  std::vector<LayerProfile> layers_;
  std::unordered_map<std::string, std::size_t> index_;
  std::unordered_map<const Function*, std::size_t> layer_of_;  // of this step's tape
  StepPass pass_ = StepPass::kForward;
  std::size_t backward_layer_ = 0;
};

// Called by record(); does nothing where nothing is profiled.
void profile_operation(const std::shared_ptr<Function>& function,
                       const std::vector<Variable>& inputs, const Variable& output);

// While one lives, kernels belong to the backward pass of the function's layer.
class ProfiledBackward {
 public:
  explicit ProfiledBackward(const Function& function);
  ~ProfiledBackward();
  ProfiledBackward(const ProfiledBackward&) = delete;
  ProfiledBackward& operator=(const ProfiledBackward&) = delete;
};

// ... to the update of the weights.
class ProfiledUpdate {
 public:
  ProfiledUpdate();
  ~ProfiledUpdate();
  ProfiledUpdate(const ProfiledUpdate&) = delete;
  ProfiledUpdate& operator=(const ProfiledUpdate&) = delete;
};

}  // namespace steelyard
