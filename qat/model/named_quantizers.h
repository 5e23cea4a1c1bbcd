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

}  // namespace steelyard::qat
