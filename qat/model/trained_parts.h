// Fine-tuning of parts of a model: the rest, including its quantizers, stays unchanged.
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"

namespace steelyard::qat {

// The modules of a model that targets name, with everything beneath them; by default all of it.
class TrainedParts {
 public:
  TrainedParts() = default;
  // `model` is the float model, before prepare(): paths stay, types do not. Targets are written as
  // in a QuantizeGroup, `places` as there, `key` names the list in messages. Throws InputError when
  // a target matches nothing, or only modules without parameters.
  TrainedParts(Module& model, const std::vector<std::string>& targets,
               const std::vector<std::string>& places, const std::string& key);

  bool everything() const { return everything_; }
  // Whether these parts contain a module, parameter or buffer.
  bool contain(const std::string& path) const;

 private:
  bool everything_ = true;
  std::vector<std::string> paths_;
};

// Parameters outside of `trained` want no gradient from now on: no work is done for them,
// optimizers leave them alone. (ScheduleCallback keeps their batch norms and quantizers.) Returns
// how many values are trained.
std::int64_t freeze_rest(Module& model, const TrainedParts& trained);

}  // namespace steelyard::qat
