// The quantizers of a model.
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// Every quantizer in the model with its path.
struct NamedQuantizer {
  std::string name;
  FakeQuantize* quantizer;
};
std::vector<NamedQuantizer> named_quantizers(Module& model);

// "the quantizer fc1.weight_quantizer never observed anything"
std::string never_observed_text(Module& model, const NeverObserved& error);

}  // namespace steelyard::qat
