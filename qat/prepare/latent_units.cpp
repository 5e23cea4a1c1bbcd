#include "steelyard/qat/prepare/latent_units.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <map>
#include <string>

#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/learned_scale.h"

namespace steelyard::qat {

StepUnits latent_units(Module& model) {
  std::map<std::string, StepUnit> units;
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    for (const NamedBuffer& buffer : entry.quantizer->named_buffers()) {
      if (buffer.name != "initial_scale") continue;
      const kernels::CodeRange range = entry.quantizer->config().scheme.code_range();
      // An offset moves the range's lower end as far as the scale moves the upper one.
      const double intervals = double(range.qmax) - double(range.qmin);
      units[join_path(entry.name, kLearnedScale)] = {buffer.tensor, kScalesOfAStep};
      units[join_path(entry.name, kLearnedOffset)] = {buffer.tensor, kScalesOfAStep * intervals};
    }
  }
  return [units = std::move(units)](const NamedParameter& p) {
    const auto unit = units.find(p.name);
    return unit == units.end() ? StepUnit() : unit->second;
  };
}

}  // namespace steelyard::qat
