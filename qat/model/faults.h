// The faults that quantizers have counted: as text, and as the errors of a prepared model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/qat/model/named_quantizers.h"

namespace steelyard::qat {

// The first quantizer with a fault since the last call: one sentence that names it, or for a bias
// the layer and channel. Those before it start anew. Waits for a GPU.
// Throws std::invalid_argument for a null quantizer.
std::optional<std::string> take_fault(const std::vector<NamedQuantizer>& quantizers);

// Whether a model that prepare() made throws TrainingDiverged, with take_fault()'s sentence, where
// its quantizers have counted faults. It does unless told otherwise, and looks
//   - after every pass in evaluation,
//   - at the end of backward(), on the CPU,
//   - in Optimizer::step(); on a GPU, where asking waits, in every kGpuCheckSteps-th.
// All counters start anew when it throws. Throws std::invalid_argument for other models.
void set_fault_errors(Module& model, bool on);

inline constexpr std::int64_t kGpuCheckSteps = 50;

// While it exists, no prepared model in `model` throws for faults: the caller looks, or runs trials
// whose faults mean nothing and, with kDropped, are forgotten at the end.
class FaultErrorsOff {
 public:
  enum class Counted { kKept, kDropped };
  explicit FaultErrorsOff(Module& model, Counted counted = Counted::kKept);
  ~FaultErrorsOff();
  FaultErrorsOff(const FaultErrorsOff&) = delete;
  FaultErrorsOff& operator=(const FaultErrorsOff&) = delete;

 private:
  struct Switch {
    std::shared_ptr<bool> on;  // of a model, which may be gone when a callback is destroyed
    bool was_on;
  };
  std::vector<Switch> switches_;
  std::vector<NamedQuantizer> dropped_;
};

}  // namespace steelyard::qat
