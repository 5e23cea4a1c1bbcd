#include "steelyard/qat/faults.h"

#include <charconv>

#include "steelyard/qat/measure.h"

namespace steelyard::qat {
namespace {

std::string shortest(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

std::optional<std::string> take_fault(const std::vector<NamedQuantizer>& quantizers) {
  for (const NamedQuantizer& entry : quantizers) {
    const Faults faults = entry.quantizer->take_faults();
    if (faults.non_finite > 0) {
      return std::to_string(faults.non_finite) + " non-finite values reached the quantizer " +
             entry.name;
    }
    if (faults.overflow) {
      return owner_of_quantizer(entry.name) + ", channel " +
             std::to_string(faults.overflow->channel) + ": the bias " +
             shortest(faults.overflow->bias) +
             " and the products it is added to can overflow int32; with these scales its "
             "magnitude may be at most " +
             shortest(faults.overflow->limit) +
             ". Lower the learning rate, let biases decay, or give the layer's weights or input "
             "fewer bits";
    }
  }
  return std::nullopt;
}

}  // namespace steelyard::qat
