// Where the time of training steps goes: kernels by the layer that runs them and by kind of work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "steelyard/framework/autograd.h"
#include "steelyard/kernels/watch.h"

namespace steelyard {

enum class WorkKind {
  kProduct,         // of the forward pass
  kQuantize,        // forward: codes from values or sums, values from codes
  kObserve,         // ranges of values, scales
  kOtherForward,    // normalization, activations, pooling, the loss ...
  kBackwardInput,   // products that give the gradient of a layer's input
  kBackwardWeight,  // ... of its weight
  kOtherBackward,
  kUpdate  // of the weights, and what is done to gradients first
};
inline constexpr std::size_t kWorkKinds = 8;
// "product", "backward input" ...
std::string_view work_kind_name(WorkKind kind);

struct Work {
  double seconds = 0;
  std::int64_t kernels = 0;
  std::int64_t multiply_adds = 0;          // of floats
  std::int64_t integer_multiply_adds = 0;  // of codes
};

// Sums over steps.
struct LayerProfile {
  std::string layer;  // path of the innermost slot; empty outside of all: the loss, the update
  std::array<Work, kWorkKinds> work{};
  // Of its operations: kept for backward, without parameters; and the least that each pass must
  // read and write if nothing stays in a cache: operands, results, what was kept and gradients.
  // Values with a companion count a byte each.
  std::int64_t saved_bytes = 0;
  std::int64_t forward_bytes = 0;
  std::int64_t backward_bytes = 0;

  const Work& of(WorkKind kind) const { return work[static_cast<std::size_t>(kind)]; }
};

// Between begin() and end() it hears of what this thread computes: one profile at a time.
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
  enum class Pass { kForward, kBackward, kUpdate };

  void ran(const std::type_info& kernel, const kernels::ProductWork* product,
           double seconds) override;
  WorkKind kind_of(const std::type_info& kernel, const kernels::ProductWork* product) const;
  std::size_t layer_index(const std::string& path);
  void add_operation(const Function& function, const std::vector<Variable>& inputs,
                     const Variable& output);

  std::unordered_set<const void*> parameters_;
  std::unordered_set<const void*> saved_;  // in this step
  std::vector<LayerProfile> layers_;
  std::unordered_map<std::string, std::size_t> index_;
  std::unordered_map<const Function*, std::size_t> layer_of_;  // of this step's tape
  Pass pass_ = Pass::kForward;
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
