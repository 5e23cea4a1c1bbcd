#include "steelyard/qat/model/saved_state.h"

#include <map>
#include <stdexcept>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/quantizers/quantizer_state.h"

namespace steelyard::qat {
namespace {

// The tensors that load_into() would copy into the quantizer, by its own names.
std::map<std::string, Tensor> state_in(const std::map<std::string, Tensor>& saved,
                                       const NamedQuantizer& entry, const std::string& suffix) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& own : module_state(*entry.quantizer)) {
    const auto found = saved.find(join_path(entry.name, own.name) + suffix);
    if (found == saved.end() || found->second.shape() != own.tensor.shape()) continue;
    const DType from = found->second.dtype();
    const DType to = own.tensor.dtype();
    if (from == to || (is_floating(from) && is_floating(to))) {
      state[own.name] = from == to ? found->second : found->second.to(to);
    }
  }
  return state;
}

}  // namespace

void require_quantizer_state(Module& model, const Checkpoint& checkpoint,
                             const std::string& source) {
  std::map<std::string, Tensor> saved;
  for (const NamedTensor& t : checkpoint.tensors) saved.emplace(t.name, t.tensor);
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    for (const char* suffix :
         {"", "/trained"}) {  // the second: of framework/train/weight_average.h
      try {
        check_quantizer_state(*entry.quantizer, state_in(saved, entry, suffix), suffix);
      } catch (const std::invalid_argument& error) {
        throw InputError(source + ": " + join_path(entry.name, error.what()));
      }
    }
  }
}

}  // namespace steelyard::qat
